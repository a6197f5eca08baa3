"""RoPE-Mixed: every pair turns along a learned direction of the plane."""

from typing import Unpack

import torch
from torch import Tensor, nn

from pezoo.base import Context, Encoding, Pass, Shape, Sizes
from pezoo.encodings.axial_rope import coordinates, sections_of
from pezoo.encodings.rope import RoPE
from pezoo.functional import at_least_float32, for_each_head, full_precision, inverse_frequencies
from pezoo.registry import register


@register("mixed_rope")
class MixedRoPE(RoPE):
    """Turn each pair of q and k by a learned combination of the coordinates.

    Formula: pair m of head h turns by sum_a w_hma x_a.

    Example: w_m = (1, 1): the pair turns along the diagonal, and not along the other one.

    Shapes: q, k (B, H, T, K) -> the same, float32 at least, k with H heads; w (layers, H, K/2, A).
    At the start the directions of a head are orthogonal and random, each with as many pairs, whose
    lengths are base^(-m/n), as in the authors' code for two axes.
    Options: axes; base of the lengths at the start; layout as in rope.
    Errors: ValueError for an odd K, and for fewer pairs than axes.

    Paper: Heo et al. 2024, "Rotary Position Embedding for Vision Transformer", Section 3.2.
    """

    summary = "each pair of q and k turns along a learned direction"
    paper = "Heo et al. 2024"
    reports = "gains accuracy at resolutions beyond training"
    prf_text = "i - j"
    rope_within = None

    def __init__(
        self,
        shape: Shape | None = None,
        *,
        axes: int = 2,
        base: float = 10.0,
        layout: str = "half",
        **sizes: Unpack[Sizes],
    ) -> None:
        super().__init__(shape, base=base, layout=layout, **sizes)
        self.axes = axes
        self.w = nn.Parameter(directions(self.shape, axes, base))

    def prepare(self, ctx: Context) -> Pass:
        return Encoding.prepare(self, ctx)

    def transform(self, q: Tensor, k: Tensor, ctx: Pass) -> tuple[Tensor, Tensor]:
        w = at_least_float32(self.w[ctx.layer])
        with full_precision(q.device.type):
            angle = coordinates(ctx, self.axes).to(w.dtype) @ w.mT  # (B|1, H, T, K/2)
        turn = torch.polar(torch.ones_like(angle), angle)
        return self.rotated(q, turn), self.rotated(for_each_head(k, q), turn)


def directions(shape: Shape, axes: int, base: float) -> Tensor:
    """Return w at the start, (layers, H, K/2, A): orthogonal directions of falling lengths."""
    pairs = shape.d_head // 2
    if not 0 < axes <= pairs:
        raise ValueError(f"axes must be within 1..{pairs}, the pairs of d_head; got {axes}")
    size = shape.n_layers, shape.n_heads, axes, axes
    turned = torch.linalg.qr(torch.randn(size, dtype=torch.float32))[0]
    parts = [
        inverse_frequencies(2 * n, base)[:, None] * turned[..., axis, None, :]
        for axis, n in enumerate(sections_of("", pairs, axes))
    ]
    return torch.cat(parts, -2)
