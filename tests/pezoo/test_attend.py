"""`attend` in other models: the mask that it builds, shared heads, its errors."""

from dataclasses import replace
from itertools import pairwise

import pytest
import torch
from torch.nn.attention.flex_attention import create_block_mask

import pezoo
from pezoo.adapters import attend, attention_mask, resolve
from pezoo.base import Context, Pass
from pezoo.testing import SHAPE, build, context, tokens

torch.set_num_threads(1)
D = torch.float64
TEXTS = [
    "nope",
    "rope",
    "alibi",
    "relative",
    "t5",
    "prism_2025(cursors=1,d_pe=8,hidden=6)",
    "geometric",
]


def backends(encoding):
    return ["eager"] if encoding.replaces_softmax else ["eager", "sdpa"]


def setting(text, t=12, groups=SHAPE.n_heads, pos=None):
    encoding = build(lambda shape: pezoo.make(text, shape)).double().eval()
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(2, t, SHAPE.d_model, generator=generator, dtype=D)
    ctx = encoding.prepare(
        context(tokens(2, t), torch.arange(t)[None] if pos is None else pos, x=x)
    )
    q = torch.randn(2, SHAPE.n_heads, t, SHAPE.d_head, generator=generator, dtype=D)
    k, v = torch.randn(2, 2, groups, t, SHAPE.d_head, generator=generator, dtype=D)
    return encoding, q, k, v, ctx.at(1, x)


@pytest.mark.parametrize("text", TEXTS)
def test_without_a_mask_the_last_query_stands_beside_the_last_key(text):
    encoding, q, k, v, ctx = setting(text)
    q, k = encoding.transform(q, k, ctx)
    whole = attend(encoding, q, k, v, ctx, None, "eager")
    for backend in backends(encoding):
        for new in (1, 5, 12):
            out = attend(encoding, q[:, :, -new:], k, v, replace(ctx, n_new=new), None, backend)
            torch.testing.assert_close(out, whole[:, :, -new:])


@pytest.mark.parametrize("text", TEXTS)
def test_without_a_mask_other_documents_are_hidden(text):
    pos = torch.tensor([[*range(5), *range(7)]])
    encoding, q, k, v, ctx = setting(text, pos=pos)
    q, k = encoding.transform(q, k, ctx)
    last = replace(ctx, pos=pos[:, 5:])
    for backend in backends(encoding):
        out = attend(encoding, q, k, v, ctx, None, backend)
        alone = attend(encoding, *(x[:, :, 5:] for x in (q, k, v)), last, None, backend)
        torch.testing.assert_close(out[:, :, 5:], alone)
        for new in (1, 6):
            part = attend(encoding, q[:, :, -new:], k, v, replace(ctx, n_new=new), None, backend)
            torch.testing.assert_close(part, out[:, :, -new:])


def test_positions_that_rise_need_no_mask(monkeypatch):
    encoding, q, k, v, ctx = setting("rope")
    monkeypatch.setattr(pezoo.adapters, "attention_mask", None)
    assert attend(encoding, q, k, v, ctx, None, "sdpa").shape == v.shape


@pytest.mark.parametrize("text", TEXTS)
@pytest.mark.parametrize("rows", [1, 2])
def test_without_a_mask_padding_is_hidden(text, rows):
    pos = (torch.arange(12) - 3).clamp(min=-1).expand(rows, -1)
    encoding, q, k, v, ctx = setting(text, pos=pos)
    q, k = encoding.transform(q, k, ctx)
    changed = v.clone()
    changed[:, :, :3] = 100.0
    for backend in backends(encoding):
        want, got = (attend(encoding, q, k, x, ctx, None, backend) for x in (v, changed))
        torch.testing.assert_close(got[:, :, 3:], want[:, :, 3:])


def test_heads_that_cannot_be_shared_are_refused():
    encoding, q, k, v, ctx = setting("rope")
    few = SHAPE.n_heads - 1
    for backend in backends(encoding):
        with pytest.raises(ValueError, match=r"k \(2, .* do not fit: expected .* a divisor"):
            attend(encoding, q, k[:, :few], v[:, :few], ctx, None, backend)


def test_tensors_of_another_kind_are_refused():
    encoding, q, k, v, ctx = setting("alibi")
    for given, text in ((v.numpy(), "ndarray"), (v.long(), "int64"), (v[0], r"\(3, 12, 8\)")):
        with pytest.raises(ValueError, match=f"v must be floats .*{text}"):
            attend(encoding, q, k, given, ctx)


@pytest.mark.parametrize("text", ["alibi", "t5", "kerple", "rope"])
def test_positions_of_the_new_tokens_alone_are_refused(text):
    encoding, q, k, v, ctx = setting(text)
    alone = replace(ctx, pos=ctx.pos[:, -1:], n_new=1)
    for backend in backends(encoding):
        with pytest.raises(ValueError, match=r"positions of all 12 keys.*has 1 positions"):
            attend(encoding, q[:, :, -1:], k, v, alone, None, backend)


@pytest.mark.parametrize("text", ["nope", "alibi"])
def test_a_mask_is_boolean_and_may_be_a_matrix(text):
    encoding, q, k, v, ctx = setting(text)
    mask = attention_mask(ctx)
    mask[..., 5:, 1] = False
    for backend in backends(encoding):
        want = attend(encoding, q, k, v, ctx, mask, backend)
        got = attend(encoding, q, k, v, ctx, mask[0, 0], backend)
        assert torch.equal(got, want)
        for other in (mask.double(), mask.long(), torch.where(mask, 0.0, -torch.inf), mask[0]):
            with pytest.raises(ValueError, match="mask must be"):
                attend(encoding, q, k, v, ctx, other, backend)


@pytest.mark.parametrize("text", ["fox", "path", "cope", "stick_breaking", "randomized:fox"])
def test_later_keys_are_refused_where_the_encoding_is_for_decoders(text, monkeypatch):
    encoding, q, k, v, ctx = setting(text)
    q, k = encoding.transform(q, k, ctx)
    every = torch.ones(12, 12, dtype=torch.bool)
    for mask in (every, every[None, None], every[None, None, :1], every.tril(1)):
        with pytest.raises(ValueError, match=r"is for decoders .* keys after the query"):
            attend(encoding, q, k, v, ctx, mask)
    blocks = create_block_mask(lambda b, h, i, j: j <= i + 1, 1, None, 12, 12, device="cpu")
    with pytest.raises(ValueError, match=r"is for decoders .* keys after the query"):
        attend(encoding, q, k, v, ctx, blocks, "flex")
    plain = attend(encoding, q, k, v, ctx)
    torch.testing.assert_close(attend(encoding, q, k, v, ctx, every.tril()), plain)
    monkeypatch.setattr("pezoo.adapters._known_true", lambda x: False)  # as on a GPU
    torch.testing.assert_close(attend(encoding, q, k, v, ctx, every), plain)


def test_the_last_queries_see_all_but_later_keys():
    encoding, q, k, v, ctx = setting("stick_breaking")
    new, whole = replace(ctx, n_new=2), attend(encoding, q, k, v, ctx)
    mask = torch.ones(2, 12, dtype=torch.bool)
    got = attend(encoding, q[:, :, -2:], k, v, new, mask.tril(10))
    torch.testing.assert_close(got, whole[:, :, -2:])
    with pytest.raises(ValueError, match="after the query"):
        attend(encoding, q[:, :, -2:], k, v, new, mask)


def test_an_unknown_mask_is_refused():
    encoding, q, k, v, ctx = setting("rope")
    with pytest.raises(ValueError, match="a tensor, None or 'causal'"):
        attend(encoding, q, k, v, ctx, "full")


def test_causal_spares_the_look_at_positions():
    encoding, q, k, v, ctx = setting("rope")
    for backend in backends(encoding):
        got = attend(encoding, q, k, v, ctx, "causal", backend)
        torch.testing.assert_close(got, attend(encoding, q, k, v, ctx, attention_mask(ctx)))


ENCODERS = [*TEXTS, "rerope(window=3)", "self_extend(window=3,group=2)", "bipe:alibi", "dape:t5"]


@pytest.mark.slow
@pytest.mark.parametrize("text", ENCODERS)
def test_without_causal_each_query_sees_its_whole_document(text):
    rows = [[0, 1, 2, 3, 4, 0, 1, 2, 3, 4, 5, 6], [-1, -1, 0, 1, -1, 2, 3, 4, 0, 1, 2, 3]]
    pos, seen = torch.tensor(rows), torch.zeros(2, 1, 12, 12, dtype=torch.bool)
    for row, ends in enumerate(((0, 5, 12), (0, 8, 12))):
        for start, end in pairwise(ends):
            seen[row, 0, start:end, start:end] = pos[row, start:end] >= 0
    seen |= torch.eye(12, dtype=torch.bool)
    encoding, q, k, v, ctx = setting(text, pos=pos)
    q, k = encoding.transform(q, k, ctx)
    assert torch.equal(attention_mask(ctx, causal=False), seen)
    want = attend(encoding, q, k, v, ctx, seen, "eager")
    fused = ["sdpa", "flex"] if resolve("auto", encoding) == "sdpa" else []
    for backend in ("auto", "eager", *fused):
        with torch.no_grad():
            got = attend(encoding, q, k, v, ctx, None, backend, causal=False)
        torch.testing.assert_close(got, want, atol=1e-6, rtol=1e-6)
    assert not torch.allclose(want, attend(encoding, q, k, v, ctx))


def test_without_causal_a_layer_is_plain_attention():
    encoding, q, k, v, _ = setting("nope")
    want = torch.nn.functional.scaled_dot_product_attention(q, k, v)
    torch.testing.assert_close(pezoo.attention(q, k, v, encoding, causal=False), want)


def test_what_needs_a_causal_mask_refuses_to_go_without():
    fox, q, k, v, ctx = setting("fox")
    with pytest.raises(ValueError, match="fox needs a causal mask"):
        attend(fox, q, k, v, ctx, causal=False)
    rope, q, k, v, ctx = setting("rope")
    with pytest.raises(ValueError, match="'causal' contradicts"):
        attend(rope, q, k, v, ctx, "causal", causal=False)
    with pytest.raises(ValueError, match="leave out the cache"):
        pezoo.attention(q, k, v, rope, cache=pezoo.Cache(), causal=False)


def test_a_forgotten_prepare_is_said():
    encoding, q, k, v, ctx = setting("rope")
    fresh = Context(ctx.pos, x=ctx.x)
    for forgetful in (lambda: fresh.at(1, ctx.x), lambda: attend(encoding, q, k, v, fresh)):
        with pytest.raises(ValueError, match="not returned by prepare"):
            forgetful()


@pytest.mark.parametrize(
    ("text", "hook"),
    [
        ("learned", "embed"),
        ("rope", "transform"),
        ("shifted_sinusoidal", "embed"),
        ("randomized:sinusoidal", "embed"),
        ("randomized:rope", "transform"),
        ("randomized", "bias"),
        (TEXTS[5], "transform"),
        ("prism_spectral(cursors=1,d_pe=8,hidden=6)", "transform"),
    ],
)
def test_an_encoding_that_needs_prepare_says_so_in_its_first_hook(text, hook):
    encoding, q, k, _, ctx = setting(text)
    given = (ctx.x,) if hook == "embed" else (q, k)
    with pytest.raises(ValueError, match="not returned by prepare"):
        getattr(encoding, hook)(*given, replace(ctx, prepared=False))


@pytest.mark.parametrize("text", [*TEXTS, "learned", "randomized:rope"])
def test_a_context_that_prepare_returned_is_not_prepared_again(text):
    """Draws belong to one pass, and positions may have been rewritten."""
    encoding, _, _, _, ctx = setting(text)
    longer = torch.arange(13)[None]
    for again in (ctx, replace(ctx, pos=longer, x=ctx.x[:, :1], n_new=1)):
        with pytest.raises(ValueError, match="returned by prepare"):
            encoding.prepare(again)


def test_what_was_drawn_for_another_pass_is_refused():
    encoding, _, _, _, ctx = setting("prism_2025(cursors=1,d_pe=8,hidden=6,state_noise=1)")
    drawn = encoding.train().draw(ctx)
    ctx = Pass(torch.arange(13)[None], x=ctx.x[:, :1], n_new=1, drawn=drawn)
    with pytest.raises(ValueError, match="belongs to another pass"):
        encoding.prepare(ctx)


@pytest.mark.parametrize(
    "text", ["relative", "shaw", "kerple", "lbpe", "geometric", "randomized", TEXTS[5]]
)
def test_a_forgotten_layer_is_said(text):
    encoding, q, k, v, _ = setting(text)
    ctx = encoding.prepare(context(tokens(2, 12), x=torch.zeros(2, 12, SHAPE.d_model, dtype=D)))
    with pytest.raises(ValueError, match="layer is not set"):
        attend(encoding, *encoding.transform(q, k, ctx), v, ctx)
    one = build(lambda shape: pezoo.make(text, replace(shape, n_layers=1))).double()
    ctx = one.prepare(context(tokens(2, 12), x=torch.zeros(2, 12, SHAPE.d_model, dtype=D)))
    attend(one, *one.transform(q, k, ctx), v, ctx)  # with one layer there is no doubt


@pytest.mark.parametrize("backend", ["eager", "sdpa"])
def test_shapes_that_do_not_fit_are_refused_before_memory_is_touched(backend):
    encoding, q, k, v, ctx = setting("rope")
    for a, b, c in ((q[..., :-1], k, v), (q, k[..., :-1], v), (q[:1], k, v), (q, k[:1], v[:1])):
        with pytest.raises(ValueError, match="do not fit"):
            attend(encoding, a, b, c, ctx, None, backend)
