"""Rotary position embedding."""

import torch
from torch import Tensor

from pezoo.base import Context, Encoding, Shape
from pezoo.functional import at_least_float32, inverse_frequencies
from pezoo.registry import register


@register("rope")
class RoPE(Encoding):
    """Rotate pairs of q and k by angles proportional to their position.

    Formula: pair m of position p turns by p w_m, w_m = base^(-2m/K), so that q_i k_j depends on
    i - j alone.

    Example: K = 2, w_0 = 1: q = (1, 0) at position p becomes (cos p, sin p).

    Shapes: q, k (B, H, T, K) -> the same. Angles are float32 whatever the dtype of q.
    Options: base; layout "interleaved" pairs (2m, 2m+1), as in the paper, "half" pairs
    (m, m + K/2), as in most released language models. The two differ by a permutation of K.
    Errors: ValueError for an odd K or an unknown layout.

    Paper: Su et al. 2021, "RoFormer", Equation 15.
    """

    summary = "rotates pairs of q and k by their position"
    paper = "Su et al. 2021"
    relative = True

    def __init__(
        self, shape: Shape, *, base: float = 10_000.0, layout: str = "interleaved"
    ) -> None:
        super().__init__(shape)
        if shape.d_head % 2:
            raise ValueError(f"rope needs an even d_head, was given {shape.d_head}")
        if layout not in ("interleaved", "half"):
            raise ValueError(f"layout must be interleaved or half, was {layout!r}")
        self.base, self.layout = base, layout

    def transform(self, q: Tensor, k: Tensor, ctx: Context) -> tuple[Tensor, Tensor]:
        w = inverse_frequencies(self.shape.d_head, self.base, q.device)
        angle = ctx.query_pos[:, None, :, None].float() * w  # (B|1, 1, T, K/2)
        return self._rotate(q, angle), self._rotate(k, angle)

    def _rotate(self, x: Tensor, angle: Tensor) -> Tensor:
        cos, sin = angle.cos(), angle.sin()
        if self.layout == "half":
            a, b = at_least_float32(x).chunk(2, -1)
            return torch.cat([a * cos - b * sin, a * sin + b * cos], -1).to(x.dtype)
        a, b = at_least_float32(x).reshape(*x.shape[:-1], -1, 2).unbind(-1)
        return torch.stack([a * cos - b * sin, a * sin + b * cos], -1).flatten(-2).to(x.dtype)
