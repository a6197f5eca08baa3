"""A learned vector per absolute position."""

import math
from typing import Unpack

import torch
from torch import Tensor, nn

from pezoo.base import Context, Encoding, Shape, Sizes
from pezoo.functional import at_least_float32, own_pairs
from pezoo.registry import register


@register("learned")
class Learned(Encoding):
    """Add a learned vector per position to the token embeddings.

    Formula: x_p + table[p].

    Example: with max_len = 40, position 39 is the last one; position 40 raises
    PositionError, since no vector for it was ever trained.

    Shapes: x (B, T, D) -> the same; table (max_len, D), at the start N(0, 0.02^2) as in GPT-2.

    Options
        max_len  the rows of the table; by default shape.train_len, a choice of ours
        std      at the start N(0, std^2) truncated at two standard deviations, as in Haiku's Embed
                 with std=1; None is N(0, 0.02^2), not truncated
        axes     with several, the sum of a row from each axis's own table of max_len
        side     of two axes: instead one table (side^2, D), a grid that is interpolated to the size
                 of the text's own (bicubic), as a ViT reads another resolution
    Errors: PositionError at positions from max_len on; ValueError for a max_len below 1, a std that
    is not above 0, and a side without two axes.

    Paper: Gehring et al. 2017, "Convolutional Sequence to Sequence Learning", Section 3.1;
    side, Dosovitskiy et al. 2021 (ViT), Section 3.2, as in transformers, without antialiasing.
    """

    summary = "a learned vector per position, added to the embedding"
    paper = "Gehring et al. 2017"
    reads = "positions"
    prf_text = "the pair: i n + j"

    def __init__(
        self,
        shape: Shape | None = None,
        *,
        max_len: int | None = None,
        std: float | None = None,
        axes: int = 1,
        side: int = 0,
        **sizes: Unpack[Sizes],
    ) -> None:
        super().__init__(shape, **sizes)
        shape = self.shape
        rows = side * side if side else shape.train_len if max_len is None else max_len
        if rows < 1 or axes < 1:
            raise ValueError(f"max_len and axes must be at least 1, got {max_len} and {axes}")
        if side and (side < 1 or axes != 2 or max_len is not None):
            raise ValueError(f"side={side} needs axes=2, and no max_len")
        self.max_len, self.axes, self.side = None if side else rows, axes, side
        self.prefix_stable = not side  # later tokens make the grid larger
        if std is not None and not 0 < std < math.inf:
            raise ValueError(f"std must be a number above 0, got {std}")
        rows = rows if side else axes * rows
        self.table = nn.Parameter(0.02 * torch.randn(rows, shape.d_model))
        if std is not None:
            nn.init.trunc_normal_(self.table, std=std, a=-2 * std, b=2 * std)

    def prf(self, ctx: Context) -> Tensor:
        self.draw(ctx)  # raises for positions beyond the table
        return own_pairs(ctx.pos)

    def embed(self, x: Tensor, ctx: Context) -> Tensor:
        ctx.check_prepared()  # `draw` raises for positions beyond the table
        if self.side:
            return x + self._resized(ctx).to(x.dtype)
        if self.axes == 1:
            row = ctx.query_pos.clamp(min=0)  # padding reads row 0, which attention masks
            return x + nn.functional.embedding(row, self.table).to(x.dtype)
        places = ctx.places(self.axes)[:, ctx.pos.shape[1] - ctx.new :]
        row = (places.round() if places.is_floating_point() else places).long().clamp(min=0)
        tables = self.table.chunk(self.axes)
        rows = [nn.functional.embedding(row[..., a], own) for a, own in enumerate(tables)]
        return x + torch.stack(rows).sum(0).to(x.dtype)

    def _resized(self, ctx: Context) -> Tensor:
        """Return the table at each new token, interpolated to the size of its grid, (B|1, T, D)."""
        side, number = self.side, ctx.document[..., None].expand(-1, -1, 2)
        places = ctx.places(2).float().expand_as(number)
        most = torch.zeros_like(places).scatter_reduce(1, number, places, "amax")
        size = 1 + most.gather(1, number)  # of the token's document, (B|1, S, 2)
        at = ((2 * places + 1) / size - 1)[:, ctx.pos.shape[1] - ctx.new :]  # centres of cells
        table = at_least_float32(self.table).T.view(1, -1, side, side).expand(len(at), -1, -1, -1)
        found = nn.functional.grid_sample(
            table,
            at.flip(-1)[:, None].to(table.dtype),  # column, then row
            mode="bicubic",
            padding_mode="border",
            align_corners=False,
        )
        return found[:, :, 0].mT
