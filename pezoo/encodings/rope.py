"""Rotary position embedding."""

import torch
from einops import rearrange
from torch import Tensor

from pezoo.base import Context, Encoding, Shape
from pezoo.functional import at_least_float32, inverse_frequencies
from pezoo.registry import register

LAYOUTS = {"interleaved": "m two", "half": "two m"}


@register("rope")
class RoPE(Encoding):
    """Rotate pairs of q and k by angles proportional to their position.

    Formula: pair m of position p turns by p w_m, w_m = base^(-2m/K), so that q_i k_j depends on
    i - j alone.

    Example: K = 2, w_0 = 1: q = (1, 0) at position p becomes (cos p, sin p).

    Shapes: q, k (B, H, T, K) -> the same, float32 at least. Angles are float32.
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
        if layout not in LAYOUTS:
            raise ValueError(f"layout must be interleaved or half, was {layout!r}")
        self.base, self.layout = base, LAYOUTS[layout]

    def transform(self, q: Tensor, k: Tensor, ctx: Context) -> tuple[Tensor, Tensor]:
        w = inverse_frequencies(self.shape.d_head, self.base, q.device)
        angle = ctx.query_pos[:, None, :, None].float() * w  # (B|1, 1, T, K/2)
        turn = torch.polar(torch.ones_like(angle), angle)  # e^(i p w)
        return self._rotate(q, turn), self._rotate(k, turn)

    def _rotate(self, x: Tensor, turn: Tensor) -> Tensor:
        pairs = rearrange(at_least_float32(x), f"b h t ({self.layout}) -> b h t m two", two=2)
        pairs = pairs.clone(memory_format=torch.contiguous_format)  # x may lie in memory anyhow
        y = torch.view_as_complex(pairs) * turn
        return rearrange(torch.view_as_real(y), f"b h t m two -> b h t ({self.layout})")
