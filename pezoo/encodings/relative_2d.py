"""Swin's table of offsets on a plane."""

from typing import Unpack

import torch
from torch import Tensor, nn

from pezoo.base import BiasForm, Context, Encoding, FormKind, ScoreMod, Shape, Sizes
from pezoo.registry import register


@register("relative_2d")
class Relative2D(Encoding):
    """Add a learned number per head and clipped offset.

    Formula: b_ij = table[clip(x_i - x_j, -c, c), h], a row for each combination of the axes.

    Example: c = 1 and two axes: 9 numbers a head, for the cell itself and its eight directions.

    Shapes: -> (B|1, H, T, S); table (layers, (2c+1)^A, H), at the start N(0, 0.02^2), truncated at
    two standard deviations, as in the released code. Real coordinates are rounded.
    Options: axes; clip, the largest offset c told apart on an axis (6, of Swin's windows of 7).
    Errors: ValueError for a clip below 1.

    Paper: Liu et al. 2021, "Swin Transformer", Equation 4. There a window bounds the offsets; the
    clipping is that of Shaw et al. 2018.
    """

    summary = "a learned number per head and clipped offset on the plane"
    paper = "Liu et al. 2021"
    reports = "better on images than absolute positions"
    reads = "distance"
    prf_text = "clip(i - j, -c, c)"
    relative = True

    def __init__(
        self, shape: Shape | None = None, *, axes: int = 2, clip: int = 6, **sizes: Unpack[Sizes]
    ) -> None:
        super().__init__(shape, **sizes)
        if clip < 1:
            raise ValueError(f"clip must be at least 1, got {clip}")
        self.axes, self.clip = axes, clip
        rows = (2 * clip + 1) ** axes
        table = torch.empty(self.shape.n_layers, rows, self.shape.n_heads)
        self.table = nn.Parameter(nn.init.trunc_normal_(table, std=0.02, a=-0.04, b=0.04))

    def prf(self, ctx: Context) -> Tensor:
        return ctx.distance()[0].clamp(-self.clip, self.clip)

    def bias_form(self, q: Tensor, k: Tensor, ctx: Context, kind: FormKind) -> BiasForm | None:
        table = self.table[ctx.layer]

        def value(h: Tensor, i: tuple[Tensor, ...], j: tuple[Tensor, ...]) -> Tensor:
            row = torch.zeros_like(i[0], dtype=torch.int64)
            for x, y in zip(i, j, strict=True):
                step = (x - y).float().round().long() if x.is_floating_point() else (x - y).long()
                row = row * (2 * self.clip + 1) + step.clamp(-self.clip, self.clip) + self.clip
            return table[row, h]

        return ScoreMod(value, self.axes) if kind is ScoreMod else None
