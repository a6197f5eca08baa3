"""PoPE: content sets the length, position the angle of each component."""

import math
from dataclasses import replace
from typing import Unpack

import torch
from torch import Tensor, nn
from torch.nn.functional import softplus

from pezoo.base import Context, Encoding, Pass, Shape, Sizes
from pezoo.functional import at_least_float32, has_float64, inverse_frequencies
from pezoo.registry import register
from pezoo.spec import choice

WAVES = "pope.waves"


@register("pope")
class PoPE(Encoding):
    """Turn each component of q and k into a vector whose length is content and angle position.

    Formula: a_ij = sum_m softplus(q_im) softplus(k_jm) cos((i - j) w_m - delta_m) / sqrt(K), w_m =
    base^(-m/K), m = 0..K-1, and delta learned per head, clamped to [-2 pi, 0].

    Example: K = 1, q = k = 0, delta = 0: both have length log 2 = .69, so that the logit at
    distance d is .48 cos d.

    Shapes: q, k (B, H, T, K) -> (B, H, T, 2K), float32 at least, cosines first. Per layer delta (H,
    K). Angles are float64 where the device has it. delta turns q backwards, where the paper turns k
    forwards: the same product, with one k for all heads of a group.
    Options: base; start, of delta: "zero", or "uniform" within the clamp, as the released code has
    it too.
    Errors: ValueError for a base that is not positive and finite, and for an unknown start.

    Paper: Gopalakrishnan et al. 2025, "Decoupling the What and Where". With delta = 0 it is RoPE of
    width 2K on pairs (softplus(x_m), 0). Two things about the start: delta = 0 lies on the edge of
    the clamp, above which it has no gradient; and softplus(0) is not 0, so that untrained logits
    are .48 sqrt(K) at distance 0 and fall from there: attention begins local.
    """

    summary = "content as lengths, positions as angles of components of q and k"
    paper = "Gopalakrishnan et al. 2025"
    reports = "extrapolates better than rope, without fine-tuning"
    reads = "distance"
    prf_text = "i - j"
    relative = True

    def __init__(
        self,
        shape: Shape | None = None,
        *,
        base: float = 10_000.0,
        start: str = "zero",
        **sizes: Unpack[Sizes],
    ) -> None:
        super().__init__(shape, **sizes)
        shape = self.shape
        choice("start", start, ("zero", "uniform"))
        inverse_frequencies(2 * shape.d_head, base)  # raises for a base that has none
        self.base = base
        delta = torch.zeros(shape.n_layers, shape.n_heads, shape.d_head)
        self.delta = nn.Parameter(delta if start == "zero" else delta.uniform_(-2 * math.pi, 0))

    def prf(self, ctx: Context) -> Tensor:
        return ctx.distance()[0]

    def prepare(self, ctx: Context) -> Pass:
        ctx = super().prepare(ctx)
        w = inverse_frequencies(2 * self.shape.d_head, self.base, ctx.pos.device)
        w = w.double() if has_float64(w.device) else w
        angle = ctx.query_pos[:, None, :, None] * w  # (B|1, 1, T, K)
        return replace(ctx, drawn={**(ctx.drawn or {}), WAVES: _waves(angle)})

    def transform(self, q: Tensor, k: Tensor, ctx: Pass) -> tuple[Tensor, Tensor]:
        ctx.check_prepared()
        waves = (ctx.drawn or {})[WAVES]
        delta = at_least_float32(self.delta[ctx.layer]).clamp(-2 * math.pi, 0)[:, None]
        (cos, sin), (cos_d, sin_d) = (both.chunk(2, -1) for both in (waves, _waves(delta)))
        back = torch.cat([cos * cos_d + sin * sin_d, sin * cos_d - cos * sin_d], -1)
        return _turned(q, back), _turned(k, waves)


def _waves(angle: Tensor) -> Tensor:
    """Return cosines and sines of angles (..., K), (..., 2K)."""
    return torch.cat([angle.cos(), angle.sin()], -1)


def _turned(x: Tensor, waves: Tensor) -> Tensor:
    """Multiply the lengths softplus(x), (B, H, T, K), by cosines and sines: (B, H, T, 2K)."""
    length = softplus(at_least_float32(x))
    return torch.cat([length, length], -1) * waves.to(length.dtype)
