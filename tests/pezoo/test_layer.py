"""`pezoo.attention` equals what a model computes hook by hook, for every encoding."""

import math
from dataclasses import replace

import pytest
import torch

import pezoo
from pezoo.adapters import attention_mask
from pezoo.base import Encoding, Pass
from pezoo.testing import SHAPE, build, context, tokens
from pezoo.testing.probe import key_weight, task_prf

torch.set_num_threads(1)
D = torch.float64
READ_X = [
    *("abacus", "asentmax", "bipe", "cable", "carope", "coupled", "cpe", "fox", "grape", "latch"),
    *("learned", "path", "prism", "prism_spectral", "repo", "selective_rope", "shifted"),
    *("shifted_sinusoidal", "sinusoidal", "wall"),
]


def make(text):
    text = f"{text}(cursors=2,d_pe=16)" if text.startswith("prism") else text
    return build(lambda shape: pezoo.make(text, shape)).double()


def inputs(t=10, groups=SHAPE.n_heads):
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(2, t, SHAPE.d_model, generator=generator, dtype=D)
    q = torch.randn(2, SHAPE.n_heads, t, SHAPE.d_head, generator=generator, dtype=D)
    k, v = torch.randn(2, 2, groups, t, SHAPE.d_head, generator=generator, dtype=D)
    return x, q, k, v


TOKENS = {"ids": tokens(2, 10), "slots": context(tokens(2, 10)).slots}
TOLD = {"scale": torch.tensor([5]), "w_key": key_weight().double(), "task_prf": task_prf}


def long_form(encoding, x, q, k, v, pos, **fields):
    torch.manual_seed(1)
    ctx = Pass(pos, x=x, **TOLD, **fields)
    ctx = encoding.prepare(replace(ctx, drawn=encoding.draw(ctx, length=q.shape[2])))
    ctx = ctx.at(0, encoding.embed(x, ctx))
    q, k = encoding.transform(q, k, ctx)
    k, v = (y.repeat_interleave(q.shape[1] // y.shape[1], 1) for y in (k, v))
    logits = encoding.scores(q, k, ctx)
    logits = q @ k.mT / math.sqrt(SHAPE.d_head) if logits is None else logits
    bias = encoding.bias(q, k, ctx)
    logits = (logits if bias is None else logits + bias).masked_fill(
        ~attention_mask(ctx), -torch.inf
    )
    weights = encoding.weights(logits, ctx)
    return (logits.softmax(-1) if weights is None else weights) @ v


def in_chunks(encoding, x, q, k, v, pos, sizes, **fields):
    torch.manual_seed(1)
    cache, parts = pezoo.Cache(length=q.shape[2]), []
    many = zip(*(y.split(sizes, 2) for y in (q, k, v)), strict=True)
    each = [y.split(sizes, 1) for y in (x, *fields.values(), *([] if pos is None else [pos]))]
    for (*three,), (part, *told) in zip(many, zip(*each, strict=True), strict=True):
        here = None if pos is None else told.pop()
        own = dict(zip(fields, told, strict=True))
        parts.append(pezoo.attention(*three, encoding, here, part, cache, **TOLD, **own))
    return torch.cat(parts, 2), cache


@pytest.mark.parametrize("name", sorted({*pezoo.names()} - {"cpe"}))  # it takes no cache
def test_it_equals_the_long_form_in_one_pass_and_token_by_token(name):
    encoding, (x, q, k, v) = make(name), inputs()
    want = long_form(encoding, x, q, k, v, torch.arange(10)[None], **TOKENS)
    torch.manual_seed(1)
    got = pezoo.attention(q, k, v, encoding, x=x, **TOLD, **TOKENS)
    torch.testing.assert_close(got, want, atol=1e-6, rtol=1e-6)
    for sizes in ([1] * 10, [4, 1, 5]):
        steps, cache = in_chunks(encoding, x, q, k, v, None, sizes, **TOKENS)
        torch.testing.assert_close(steps, want, atol=1e-6, rtol=1e-6)
    assert torch.equal(cache.pos, torch.arange(10)[None])
    assert [y.shape[2] for y in cache.layers[0]] == [10, 10]


@pytest.mark.parametrize("name", ["rope", "alibi", "geometric", "prism", "randomized:rope"])
@pytest.mark.parametrize("groups", [1, 3])
def test_padding_documents_and_grouped_heads(name, groups):
    encoding, (x, q, k, v) = make(name), inputs(groups=groups)
    pos = torch.tensor([[-1, -1, *range(8)], [*range(4), *range(6)]])
    want = long_form(encoding, x, q, k, v, pos)
    steps, _ = in_chunks(encoding, x, q, k, v, pos, [3, 1, 6])
    torch.testing.assert_close(steps, want, atol=1e-6, rtol=1e-6)


def test_a_cache_whose_rows_share_positions_goes_on_with_a_row_each():
    encoding, (x, q, k, v) = make("rope"), inputs()
    pos, cache = torch.arange(10).repeat(2, 1), pezoo.Cache()
    pezoo.attention(*(y[:, :, :6] for y in (q, k, v)), encoding, cache=cache)
    got = pezoo.attention(*(y[:, :, 6:] for y in (q, k, v)), encoding, pos[:, 6:], cache=cache)
    want = long_form(encoding, x, q, k, v, pos)[:, :, 6:]
    torch.testing.assert_close(got, want, atol=1e-6, rtol=1e-6)


@pytest.mark.parametrize("begin", [[100, 101, 102, 103], [-1, -1, 0, 1], [0, 1, 2, 0]])
def test_positions_continue_after_the_last_token_of_each_row(begin):
    """Of a late start, of padding and of a second document."""
    encoding, (x, q, k, v) = make("alibi"), inputs()
    rows = torch.tensor([begin, range(4)])
    pos = torch.cat([rows, rows[:, -1:] + torch.arange(1, 7)], 1)
    cache = pezoo.Cache()
    pezoo.attention(*(y[:, :, :4] for y in (q, k, v)), encoding, pos[:, :4], cache=cache)
    got = pezoo.attention(*(y[:, :, 4:] for y in (q, k, v)), encoding, cache=cache)
    assert torch.equal(cache.pos, pos)
    want = long_form(encoding, x, q, k, v, pos)[:, :, 4:]
    torch.testing.assert_close(got, want, atol=1e-6, rtol=1e-6)


def test_ids_and_slots_are_those_of_the_new_tokens():
    class Reads(Encoding):
        def bias(self, q, k, ctx):
            keys = (ctx.ids + 3 * ctx.slots).to(q.dtype)
            return (keys[:, -ctx.new :, None] - keys[:, None]).abs().neg()[:, None]

    encoding, (x, q, k, v) = Reads(SHAPE), inputs()
    want = long_form(encoding, x, q, k, v, torch.arange(10)[None], **TOKENS)
    steps, _ = in_chunks(encoding, x, q, k, v, None, [3, 1, 6], **TOKENS)
    torch.testing.assert_close(steps, want)


@pytest.mark.parametrize("name", READ_X)
def test_missing_embeddings_are_said(name):
    _, q, k, v = inputs()
    with pytest.raises(ValueError, match=f"{name} .*token embeddings: pass .*x"):
        pezoo.attention(q, k, v, make(name), **TOKENS)


def test_the_others_need_no_embeddings():
    _, q, k, v = inputs()
    for name in set(pezoo.names()) - {*READ_X}:
        assert pezoo.attention(q, k, v, make(name), **TOLD).shape == v.shape


def test_a_failed_step_leaves_the_cache():
    encoding, (x, q, k, v) = make("learned"), inputs(t=20)
    cache = pezoo.Cache()
    first, second = (tuple(y.split(12, 2)[i] for y in (q, k, v)) for i in range(2))
    pezoo.attention(*first, encoding, x=x[:, :12], cache=cache)
    with pytest.raises(pezoo.PositionError):
        pezoo.attention(*second, encoding, x=x[:, 12:], cache=cache)
    assert cache.pos.shape == (1, 12)
    assert cache.layers[0][0].shape[2] == 12


def test_keys_that_change_later_are_not_cached():
    _, q, k, v = inputs()
    encoding = pezoo.RoPE(d_head=SHAPE.d_head)
    encoding.prefix_stable = False
    assert pezoo.attention(q, k, v, encoding).shape == v.shape
    with pytest.raises(ValueError, match="earlier keys"):
        pezoo.attention(q, k, v, encoding, cache=pezoo.Cache())


def test_what_does_not_fit_is_said():
    _, q, k, v = inputs()
    rope, cache = pezoo.RoPE(d_head=SHAPE.d_head), pezoo.Cache()
    pezoo.attention(q, k, v, rope, cache=cache)
    for encoding, error, words, options in (
        ("rope", TypeError, "RoPE", {}),
        (pezoo.RoPE(d_head=16), ValueError, "d_head=16", {}),
        (pezoo.ALiBi(n_heads=1), ValueError, "n_heads=1", {}),
        (pezoo.ALiBi(n_heads=SHAPE.n_heads), ValueError, "rope", {"cache": cache}),
    ):
        with pytest.raises(error, match=words):
            pezoo.attention(q, k, v, encoding, **options)
    for bad in ((q, k[0], v), (q, k[:, :, 1:], v), (q, k[..., 1:], v), (q, k, v[:1])):
        with pytest.raises(ValueError, match=r"must be \(B, G, T, K\) = \(2, G, 10, "):
            pezoo.attention(*bad, rope)
    for sizes in ({"d_head": "8"}, {"d_head": 8.0}, {"d_head": True}, {"d_head": 0}):
        with pytest.raises(ValueError, match="d_head must be a whole number"):
            pezoo.RoPE(**sizes)
    with pytest.raises(TypeError, match=r"theta.* base, .*d_head"):
        pezoo.RoPE(d_head=16, theta=5e5)


@pytest.mark.parametrize("name", ["ids", "slots"])
def test_ids_and_slots_of_another_number_of_tokens(name):
    _, q, k, v = inputs()
    encoding = make("bipe" if name == "ids" else "coupled")
    with pytest.raises(ValueError, match=rf"{name} must be \(B, 10\), one for each new token; got"):
        pezoo.attention(q, k, v, encoding, **{name: torch.zeros(2, 5, dtype=torch.long)})
