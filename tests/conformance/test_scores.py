"""An encoding that replaces the product of q and k (`scores`) passes every check and kernel."""

import math
from dataclasses import replace

import pytest
import torch

import pezoo
from pezoo.adapters import BackendError, attend, attention_mask, resolve
from pezoo.base import Encoding
from pezoo.encodings.randomized import Randomized
from pezoo.functional import at_least_float32
from pezoo.testing import (
    SHAPE,
    build,
    context,
    hooks,
    parameters,
    parametrize_with_checks,
    run_check,
    sequences,
    tokens,
)

W = 4


def turned(x, pos):
    """Rotate pairs (m, m + K/2) of x (B, H, T, K) by pos (B|1, T)."""
    half = x.shape[-1] // 2
    speed = 0.5 ** torch.arange(half, device=x.device, dtype=torch.float32)
    angle = pos[:, None, :, None] * speed
    cos, sin, x = angle.cos(), angle.sin(), at_least_float32(x)
    a, b, rest = x[..., :half], x[..., half : 2 * half], x[..., 2 * half :]
    return torch.cat([a * cos - b * sin, a * sin + b * cos, rest], -1)


class ReRoPE(Encoding):
    """RoPE at distance f(d) = d below w, else w (Su 2023): a product for each branch."""

    relative = True

    def scores(self, q, k, ctx):
        near = turned(q, ctx.query_pos) @ turned(k, ctx.pos).mT
        far = turned(q, torch.full_like(ctx.query_pos, W)) @ at_least_float32(k).mT
        return torch.where(ctx.distance()[:, None] < W, near, far) * self.shape.d_head**-0.5


class Scaled(ReRoPE):
    """With a gain for each layer and head, read while the scores are computed."""

    def __init__(self, shape):
        super().__init__(shape)
        self.gain = torch.nn.Parameter(torch.ones(shape.n_layers, shape.n_heads))

    def scores(self, q, k, ctx):
        return super().scores(q, k, ctx) * self.gain[ctx.layer][:, None, None]


@parametrize_with_checks({"rerope": ReRoPE, "scaled": Scaled})
def test_conformance(check, factory):
    check(factory)


def setting(make=ReRoPE, pos=None, groups=SHAPE.n_heads, t=11):
    encoding = build(make).double()
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(2, t, SHAPE.d_model, generator=generator).double()
    ctx = context(tokens(2, t), torch.arange(t)[None] if pos is None else pos, x=x)
    ctx = encoding.prepare(ctx).at(0, x)
    q = torch.randn(2, SHAPE.n_heads, t, SHAPE.d_head, generator=generator).double()
    k, v = torch.randn(2, 2, groups, t, SHAPE.d_head, generator=generator).double()
    return encoding, q, k, v, ctx


def naive(q, k, v, pos, f):
    """Attention in loops: q_i and k_j rotated apart by f(i - j)."""
    share, out = q.shape[1] // k.shape[1], torch.zeros_like(q)
    half = q.shape[-1] // 2
    for b, h, i in torch.cartesian_prod(*map(torch.arange, q.shape[:3])).tolist():
        seen = [j for j in range(i + 1) if pos[j] >= 0 or j == i]
        logits = []
        for j in seen:
            total, key = 0.0, k[b, h // share, j]
            for m in range(half):
                angle = f(int(pos[i] - pos[j])) * 0.5**m
                query, other = (complex(*z[m::half].tolist()) for z in (q[b, h, i], key))
                turn = complex(math.cos(angle), math.sin(angle))
                total += (query * other.conjugate() * turn).real
            logits.append(total / math.sqrt(q.shape[-1]))
        weights = torch.tensor(logits).double().softmax(0)
        out[b, h, i] = weights @ v[b, h // share, seen]
    return out


@pytest.mark.parametrize("groups", [1, 3])
def test_rerope_equals_a_loop_over_pairs(groups):
    pos = torch.tensor([-1, -1, *range(9)])
    encoding, q, k, v, ctx = setting(pos=pos[None], groups=groups)
    want = naive(q, k, v, pos, lambda d: min(d, W))
    torch.testing.assert_close(attend(encoding, q, k, v, ctx), want, atol=1e-6, rtol=1e-6)
    rope = naive(q, k, v, pos, lambda d: d)
    assert not torch.allclose(rope, want, atol=1e-3)


def test_a_kernel_that_computes_the_product_is_refused():
    encoding, q, k, v, ctx = setting()
    around = Randomized(SHAPE, ReRoPE)
    for own in (encoding, around):
        found = {resolve("auto", own), resolve("eager", own)}
        assert found == {"eager"}
        for backend in ("sdpa", "flex"):
            with pytest.raises(BackendError, match=f"product of q and k.*{backend}"):
                resolve(backend, own)
    with pytest.raises(BackendError):
        attend(encoding, q, k, v, ctx, None, "sdpa")
    assert not Randomized(SHAPE, lambda shape: pezoo.make("rope", shape)).replaces_scores


def test_randomized_forwards_scores():
    around = build(lambda shape: Randomized(shape, ReRoPE, max_len=11)).double()
    encoding, q, k, v, ctx = setting()
    here = around.prepare(context(tokens(2, 11), x=ctx.x)).at(0, ctx.x)
    torch.testing.assert_close(attend(around, q, k, v, here), attend(encoding, q, k, v, ctx))


def test_scores_are_cast_and_a_bias_is_added():
    class Both(ReRoPE):
        def bias(self, q, k, ctx):
            return -ctx.distance()[:, None].to(q.dtype)

    encoding, q, k, v, ctx = setting(Both)
    logits = encoding.scores(q, k, ctx) - ctx.distance()[:, None]
    want = logits.masked_fill(~attention_mask(ctx), -torch.inf).softmax(-1) @ v
    torch.testing.assert_close(attend(encoding, q, k, v, ctx), want)
    low = [x.bfloat16() for x in (q, k, v)]
    assert attend(encoding, *low, ctx).dtype == torch.bfloat16


class ByColumn(ReRoPE):
    def scores(self, q, k, ctx):
        pos = torch.arange(k.shape[2], device=k.device)[None]
        return super().scores(q, k, replace(ctx, pos=pos))


class Detached(Scaled):
    def scores(self, q, k, ctx):
        return super().scores(q, k.detach(), ctx)


class FirstLayer(Scaled):
    def scores(self, q, k, ctx):
        return super().scores(q, k, ctx) * self.gain[0].mean()


class Narrow(ReRoPE):
    def scores(self, q, k, ctx):
        return super().scores(q, k, ctx)[:, :1]


class FutureMax(ReRoPE):
    def scores(self, q, k, ctx):
        scores = super().scores(q, k, ctx)
        return scores * scores.abs().amax()


class InPlace(ReRoPE):
    def scores(self, q, k, ctx):
        q.mul_(1.0 + ctx.pos.shape[1])
        return super().scores(q, k, ctx)


@pytest.mark.parametrize(
    ("module", "check", "cls"),
    [
        (sequences, "positions", ByColumn),
        (sequences, "prefix_stability", FutureMax),
        (parameters, "derivatives", Detached),
        (parameters, "own_layer", FirstLayer),
        (hooks, "shapes", Narrow),
        (hooks, "inputs", InPlace),
    ],
)
def test_wrong_scores_are_caught(module, check, cls):
    with pytest.raises(AssertionError, match=f"check_{check}"):
        run_check(getattr(module, f"check_{check}"), cls)
