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
        if torch.compiler.is_compiling():
            return self._traced(q, angle), self._traced(k, angle)
        turn = torch.polar(torch.ones_like(angle), angle)  # e^(i angle)
        return self._rotate(q, turn), self._rotate(k, turn)

    def _rotate(self, x: Tensor, turn: Tensor) -> Tensor:
        exact = at_least_float32(x)
        if self.layout == "half":
            y = torch.complex(*exact.chunk(2, -1)) * turn
            return torch.cat([y.real, y.imag], -1).to(x.dtype)
        y = _neighbours(exact) * turn
        return torch.view_as_real(y).flatten(-2).to(x.dtype)

    def _traced(self, x: Tensor, angle: Tensor) -> Tensor:
        """The same in real numbers: a compiler fuses them, and does not know complex ones."""
        exact = at_least_float32(x)
        half = self.layout == "half"
        a, b = exact.chunk(2, -1) if half else (exact[..., ::2], exact[..., 1::2])
        sine, cosine = angle.sin(), angle.cos()
        y = a * cosine - b * sine, a * sine + b * cosine
        return (torch.cat(y, -1) if half else torch.stack(y, -1).flatten(-2)).to(x.dtype)


def _neighbours(x: Tensor) -> Tensor:
    """(..., K) -> (..., K/2) complex, without a copy where the layout in memory allows it."""
    pairs = x.reshape(*x.shape[:-1], -1, 2)
    *steps, last = x.stride()
    if last != 1 or any(n % 2 for n in (x.storage_offset(), *steps)):
        pairs = pairs.clone(memory_format=torch.contiguous_format)
    return torch.view_as_complex(pairs)
