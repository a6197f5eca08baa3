"""Encodings that replace the product of q and k (`scores`): kernels, wrappers, what is caught."""

from dataclasses import replace

import pytest
import torch

import pezoo
from pezoo.adapters import BackendError, attend, attention_mask, resolve
from pezoo.base import Encoding
from pezoo.encodings.randomized import Randomized
from pezoo.functional import at_least_float32
from pezoo.testing import SHAPE, build, context, hooks, parameters, run_check, sequences, tokens

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


def setting(make=ReRoPE):
    encoding = build(make).double()
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(2, 11, SHAPE.d_model, generator=generator).double()
    ctx = encoding.prepare(context(tokens(2, 11), x=x)).at(0, x)
    q, k, v = torch.randn(3, 2, SHAPE.n_heads, 11, SHAPE.d_head, generator=generator).double()
    return encoding, q, k, v, ctx


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
