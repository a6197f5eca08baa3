"""All attention backends compute the same; here on the CPU."""

from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import pezoo
from pezoo.adapters import BACKENDS, BackendError, attend, attention_mask, resolve
from pezoo.base import Columns, Encoding
from pezoo.testing import SHAPE, build, context, tokens

torch.set_num_threads(1)
D = torch.float64
TEXTS = [
    "prism_2025(cursors=2,d_pe=16,hidden=12)" if n == "prism" else n
    for n in pezoo.names()
    if pezoo.adapters.resolve("auto", pezoo.make(n, SHAPE)) == "sdpa"
] + ["randomized:rope"]


class Hard(Encoding):
    """Attention to the one best key."""

    def weights(self, logits, ctx):
        return torch.nn.functional.one_hot(logits.argmax(-1), logits.shape[-1]).to(logits.dtype)


def inputs(text, padded=False, t=10, b=2):
    encoding = build(lambda shape: pezoo.make(text, shape)).double()
    h, k = SHAPE.n_heads, SHAPE.d_head
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(b, t, SHAPE.d_model, generator=generator, dtype=D)
    pos = torch.arange(t)[None]
    if padded:
        pos = (torch.arange(t) - 3 * (torch.arange(b)[:, None] % 2)).clamp(min=-1)
    ctx = encoding.prepare(context(tokens(b, t), pos, x=x))
    q, key, v = torch.randn(3, b, h, t, k, generator=generator, dtype=D).unbind(0)
    q, key = encoding.transform(q, key, ctx.at(1, x))
    return encoding, q, key, v, ctx.at(1, x)


def outcome(encoding, q, k, v, ctx, mask, backend):
    """The output, and the gradients of q, k, v and the encoding's parameters (None if unused)."""
    q, k, v = (x.detach().requires_grad_() for x in (q, k, v))
    out = attend(encoding, q, k, v, ctx, mask, backend)
    weight = torch.linspace(-1, 2, out.numel(), dtype=D).view(out.shape)
    given = [q, k, v, *encoding.parameters()]
    return [out, *torch.autograd.grad((out * weight).sum(), given, allow_unused=True)]


def assert_same(encoding, q, k, v, ctx, mask, atol=1e-10, rtol=1e-8):
    wanted, got = (outcome(encoding, q, k, v, ctx, mask, name) for name in ("eager", "sdpa"))
    assert wanted[0].isfinite().all()
    for a, b in zip(got, wanted, strict=True):
        assert (a is None) == (b is None)
        if b is not None:
            torch.testing.assert_close(a, b, atol=atol, rtol=rtol)


@pytest.mark.parametrize("text", TEXTS)
@pytest.mark.parametrize("case", ["causal", "padded", "last queries"])
def test_sdpa_equals_eager(text, case):
    encoding, q, k, v, ctx = inputs(text, case == "padded")
    mask = attention_mask(ctx) if case == "padded" else None
    if case == "last queries":
        if text in ("cable", "fox", "grape"):
            pytest.skip("they keep gates of earlier passes: see test_layer.py")
        ctx = replace(ctx, n_new=5)
        q, mask = q[:, :, -5:], attention_mask(ctx)
    assert_same(encoding, q, k, v, ctx, mask)


@settings(max_examples=20)
@given(
    text=st.sampled_from(["relative", "randomized:relative"]),
    t=st.integers(SHAPE.d_model, 32),
    new=st.integers(1, 32),
    padded=st.booleans(),
)
def test_a_bias_in_columns_at_any_length(text, t, new, padded):
    encoding, q, k, v, ctx = inputs(text, padded, t)
    ctx = replace(ctx, n_new=min(t, new))
    mask = attention_mask(ctx)
    assert_same(encoding, q[:, :, -ctx.new :], k, v, ctx, mask, atol=1e-4, rtol=1e-3)


def test_relative_needs_no_bias_where_a_head_has_room(monkeypatch):
    encoding, q, k, v, ctx = inputs("relative", padded=True, t=SHAPE.d_model)
    monkeypatch.setattr(encoding, "bias", lambda *args: pytest.fail("a bias was built"))
    attend(encoding, q, k, v, ctx, attention_mask(ctx), "sdpa")
    ctx = replace(ctx, n_new=ctx.new - 1)
    assert encoding.bias_form(q[:, :, 1:], k, ctx, Columns) is None


def test_resolve():
    nope = pezoo.make("nope", SHAPE)
    assert resolve("auto", nope) == "sdpa"
    for backend in BACKENDS:
        assert resolve(backend, nope) == backend
    for unknown in ("flash", "numba"):
        with pytest.raises(BackendError, match=f"unknown attention '{unknown}'.*sdpa"):
            resolve(unknown, nope)


def test_an_encoding_that_replaces_softmax():
    encoding = Hard(SHAPE)
    _, q, k, v, ctx = inputs("nope")
    assert resolve("auto", encoding) == resolve("eager", encoding) == "eager"
    for backend in ("sdpa", "flex"):
        with pytest.raises(BackendError, match=f"Hard replaces softmax, which {backend}"):
            resolve(backend, encoding)
    out = attend(encoding, q, k, v, ctx)  # eager by default
    best = (q @ k.mT).masked_fill(~torch.ones(10, 10).tril().bool(), -torch.inf).argmax(-1)
    want = v.gather(2, best[..., None].expand(-1, -1, -1, v.shape[-1]))
    torch.testing.assert_close(out, want)
