import math

import pytest
import torch

from pezoo import Context, Shape, attend, make
from pezoo.adapters import attention_mask
from pezoo.testing import build

D = torch.float64
SHAPE = Shape(d_model=16, n_heads=4, d_head=4, n_layers=2, train_len=12)
POS = torch.tensor([[-1, 0, 1, 2, 3, 0, -1, 1, 2], [4, 5, 6, 7, 8, 9, 10, 11, 12]])
N = [[1, 1, 2, 3, 4, 1, 1, 2, 3], [1, 2, 3, 4, 5, 6, 7, 8, 9]]  # keys that each query sees


def made(text, pos=POS, layer=1):
    encoding = build(lambda shape: make(text, shape), SHAPE).double()
    return encoding, encoding.prepare(Context(pos)).at(layer, None)


def qkv(seed=0):
    return torch.randn(3, 2, 4, 9, 4, dtype=D, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("text", ["ssmax:nope", "ssmax:alibi", "ssmax(scale_bias=true):alibi"])
def test_it_is_the_formula(text):
    (encoding, ctx), (q, k, v) = made(text), qkv()
    got = attend(encoding, *encoding.transform(q, k, ctx), v, ctx)
    s, seen = encoding.s[1].tolist(), attention_mask(ctx).expand(2, 1, 9, 9)
    for b in range(2):
        for h in range(4):
            slope = 0 if "nope" in text else 2.0 ** (-2 * (h + 1))
            for i in POS[b].ge(0).nonzero().flatten().tolist():
                keys = [j for j in range(9) if seen[b, 0, i, j]]
                assert len(keys) == N[b][i]
                f = s[h] * math.log(len(keys))
                each = f if "scale_bias" in text else 1
                far = [abs(int(POS[b, i]) - int(POS[b, j])) for j in keys]
                logits = [f * float(q[b, h, i] @ k[b, h, j]) / 2 for j in keys]
                e = [math.exp(z - each * slope * d) for z, d in zip(logits, far, strict=True)]
                want = sum(w / sum(e) * v[b, h, j] for w, j in zip(e, keys, strict=True))
                torch.testing.assert_close(got[b, h, i], want, atol=1e-12, rtol=0)


@pytest.mark.parametrize("inner", ["rope", "alibi", "nope", "shaw", "geometric"])
def test_where_s_log_n_is_1_it_is_the_inner_encoding(inner):
    (encoding, ctx), (q, k, v) = made(f"ssmax:{inner}"), qkv()
    plain = make(inner, SHAPE).double()
    plain.load_state_dict(encoding.inner.state_dict())
    own = plain.prepare(Context(POS)).at(1, None)
    want = attend(plain, *plain.transform(q, k, own), v, own)
    for i in range(9):
        for b in range(2):
            with torch.no_grad():
                encoding.s.fill_(1 / math.log(max(2, N[b][i])))
            got = attend(encoding, *encoding.transform(q, k, ctx), v, ctx)
            torch.testing.assert_close(got[b, :, i], want[b, :, i], atol=1e-12, rtol=0)


@pytest.mark.parametrize("outer", ["ssmax", "asentmax(alpha=1.0)"])
@pytest.mark.parametrize(
    "inner", ["relative", "shaw", "cope", "fox", "dape", "path", "self_extend(window=3)", "alibi"]
)
def test_the_inner_encoding_reads_the_queries_before_they_are_scaled(inner, outer):
    q, k, v = qkv()
    x = torch.randn(2, 9, 16, dtype=D, generator=torch.Generator().manual_seed(1))
    encoding = build(lambda shape: make(f"{outer}:{inner}", shape), SHAPE).double()
    plain = encoding.inner
    ctx = encoding.prepare(Context(POS, x=x)).at(1, x)
    own = plain.prepare(Context(POS, x=x)).at(1, x)
    rotated, keys = plain.transform(q, k, own)
    scores = plain.scores(rotated, keys, own)
    logits = encoding.factor(ctx) * (rotated @ keys.mT / 2 if scores is None else scores)
    bias = plain.bias(rotated, keys, own)
    logits = logits if bias is None else logits + bias
    want = logits.masked_fill(~attention_mask(ctx), -torch.inf).softmax(-1) @ v
    for backend in ("auto", "eager"):
        got = attend(encoding, *encoding.transform(q, k, ctx), v, ctx, None, backend)
        torch.testing.assert_close(got, want, atol=1e-12, rtol=0)


def test_where_the_factor_is_0_the_bias_is_that_of_the_queries():
    (encoding, ctx), (q, k, _) = made("ssmax(start=0.0):relative"), qkv()
    want = encoding.inner.bias(*encoding.inner.transform(q, k, ctx), ctx)
    got = encoding.bias(*encoding.transform(q, k, ctx), ctx)
    torch.testing.assert_close(got, want, atol=1e-12, rtol=0)
    (gradient,) = torch.autograd.grad(got.sum(), encoding.s)
    assert gradient.abs().max() < 1e-6


def test_training_begins_with_logits_of_the_usual_size():
    encoding = make("ssmax", SHAPE)
    ctx = encoding.prepare(Context(torch.arange(12)[None])).at(0, None)
    torch.testing.assert_close(encoding.factor(ctx).mean(2), torch.ones(1, 4, 1))
    assert (make("ssmax(start=1)", SHAPE).s == 1).all()


def test_only_heads_without_positions_are_scaled():
    encoding, ctx = made("ssmax:nape")
    assert encoding.s.shape == (2, 2)
    assert (encoding.factor(ctx)[:, :2] == 1).all()
    assert encoding.heads_with_positions == 2
    assert make("ssmax:nape(heads=4)", SHAPE).s.shape == (2, 4)


@pytest.mark.parametrize("part", ["bipe:alibi", "shifted:alibi", "alibi"])
def test_the_bias_of_a_part_that_moves_positions_is_scaled(part):
    ids, (q, k, _) = torch.arange(9)[None] % 3 + 9, qkv()
    plain, scaled = (
        build(lambda shape, option=option: make(f"ssmax{option}:layers:{part},nope", shape), SHAPE)
        for option in ("", "(scale_bias=true)")
    )
    ctx = Context(POS[1:], x=torch.zeros(1, 9, 16), ids=ids)
    wanted, found = (
        one.double().bias(q, k, one.prepare(ctx).at(0, ctx.x)) for one in (plain, scaled)
    )
    factor = scaled.factor(scaled.prepare(ctx).at(0, ctx.x))
    torch.testing.assert_close(found, wanted * factor)
    assert wanted.any()


def test_scaled_windows_stay_windows():
    (encoding, ctx), (q, k, _) = made("ssmax(scale_bias=true):hard_alibi"), qkv()
    bias = encoding.bias(q, k, ctx)
    assert torch.equal(bias.isneginf(), encoding.inner.bias(q, k, ctx).isneginf())
    bias.exp().sum().backward()
    assert encoding.s.grad.isfinite().all()


@pytest.mark.parametrize(
    ("n", "want"), [(1, 1), (3, 1), (4, 1 + 0.1 * math.log(2)), (9, 1 + 0.1 * math.log(3))]
)
def test_the_scale_of_llama_4(n, want):
    """1 + attn_scale log(1 + floor((p + 1) / floor_scale)), modeling_llama4.py."""
    encoding, ctx = made("ssmax(floor=4):nope")
    assert encoding.factor(ctx)[1, 0, n - 1].item() == pytest.approx(want)
    assert not list(encoding.parameters())


@pytest.mark.parametrize(
    ("options", "n", "want"),
    [
        ("", 12, 1),
        ("", 13, math.log(13) / math.log(12)),
        ("floor=4,", 4, 1),
        ("floor=4,", 9, math.log(9) / math.log(4)),
        ("floor=4,rate=0.5,", 3, 1),
        ("floor=4,rate=0.5,", 9, 1 + 0.5 * math.log(9 / 4)),
    ],
)
def test_the_logarithm_beyond_the_training_length(options, n, want):
    encoding, ctx = made(f"ssmax({options}log_n=true):nope", torch.arange(n)[None])
    assert encoding.factor(ctx)[0, 0, -1].item() == pytest.approx(want)
    assert not list(encoding.parameters())


def test_it_is_what_rerope_has_as_an_option():
    """clip(log(p + 1) / log(training_length), 1), rerope_patch.py."""
    q, k, v = torch.randn(3, 1, 4, 30, 4, dtype=D, generator=torch.Generator().manual_seed(0))
    found = []
    for text in ("ssmax(log_n=true):rerope", "rerope(log_n=true)", "ssmax(floor=12):rerope"):
        encoding, ctx = made(text, torch.arange(30)[None])
        found.append(attend(encoding, *encoding.transform(q, k, ctx), v, ctx))
    torch.testing.assert_close(found[0], found[1], atol=1e-6, rtol=0)
    assert (found[0] - found[2]).abs().max() > 1e-3  # Llama 4's is another
