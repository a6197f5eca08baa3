"""Conditional positional encoding: convolutions over the grid."""

from dataclasses import replace
from itertools import product
from typing import Unpack

import torch
from torch import Tensor, nn

from pezoo.base import Context, Encoding, Pass, Plan, PositionError, Shape, Sizes
from pezoo.functional import for_each_head, visible_keys
from pezoo.registry import register

NEAR = "cpe.near"


@register("cpe")
class CPE(Encoding):
    """Add to each token a depth-wise convolution over the cells around it.

    Formula: x_c + sum_o w_o x_{c+o} over the k^A offsets o to the cells around cell c, component by
    component; cells outside the grid are 0. The token embeddings have one such sum, and in each
    layer the queries and the keys have another.

    Example: k = 3 in the plane: a corner has four cells to sum over, itself included.

    Shapes: x (B, T, D) and q, k (B, H, T, K) -> the same, k with H heads; weights (D, k^A) and, per
    layer, (2, H, K, k^A), at the start uniform in +-k^(-A/2), as torch's convolutions.
    Coords are to be whole numbers that fill a rectangle, row by row. Several grids may follow each
    other: each begins where the first cell comes again. Text is a line along the diagonal.
    Options: axes; kernel, the odd width k.
    Errors: ValueError for an even kernel; PositionError for coords that are no grid.

    Paper: Chu et al. 2021, "Conditional Positional Encodings for Vision Transformers" (arXiv
    2102.10882), Section 3.3. There the sum is added to the stream after the first layers, so that
    values have it too; an encoding here changes the embeddings, q and k alone.
    """

    summary = "depth-wise convolutions over the cells around each token"
    paper = "Chu et al. 2021"
    reports = "carries over to larger images"
    reads = "neighbours on the grid"
    relative = True
    prefix_stable = False  # the cells after a token are around it, too

    def __init__(
        self, shape: Shape | None = None, *, axes: int = 2, kernel: int = 3, **sizes: Unpack[Sizes]
    ) -> None:
        super().__init__(shape, **sizes)
        shape = self.shape
        if kernel < 1 or kernel % 2 == 0:
            raise ValueError(f"kernel must be odd and at least 1, got {kernel}")
        self.axes = axes
        self.offsets = [*product(range(-(kernel // 2), kernel // 2 + 1), repeat=axes)]
        n = len(self.offsets)
        heads = shape.n_layers, 2, shape.n_heads, 1, shape.d_head, n
        self.of_embeddings, self.of_heads = (
            nn.Parameter(torch.empty(size).uniform_(-(n**-0.5), n**-0.5))
            for size in ((shape.d_model, n), heads)
        )

    def draw(self, ctx: Context, **plan: Unpack[Plan]) -> dict[str, Tensor]:
        if ctx.coords is not None:
            self._check(ctx)
        return super().draw(ctx, **plan)

    def _check(self, ctx: Context) -> None:
        """Errors: PositionError unless every grid is a rectangle with one token in each cell."""
        places, grid = ctx.places(self.axes), _grids(ctx, ctx.places(self.axes))
        rows, s = len(grid), grid.shape[1]
        real = ctx.key_mask.expand(rows, s)
        grid = grid + s * torch.arange(rows, device=grid.device)[:, None]
        number = torch.unique(grid[real], return_inverse=True)[1]
        cells = places.expand(rows, s, self.axes)[real]
        index = number[:, None].expand_as(cells)
        low, high = (
            torch.zeros_like(cells).scatter_reduce(0, index, cells, how, include_self=False)
            for how in ("amin", "amax")
        )
        once = len(torch.unique(torch.cat([number[:, None], cells], 1), dim=0)) == len(cells)
        full = (high - low + 1).prod(1)[number] == number.bincount()[number]
        apart = (cells != cells[:, :1]).any(1).long()
        apart = torch.zeros_like(apart).scatter_add(0, number, apart)
        line = apart[number] == 0  # text, which has its position on every axis
        if places.is_floating_point() or not (once and ctx.ask((full | line).all())):
            raise PositionError(
                "cpe needs tokens on a grid: coords that fill a rectangle, row by row"
            )

    def prepare(self, ctx: Context) -> Pass:
        ctx = super().prepare(ctx)
        return replace(ctx, drawn={**(ctx.drawn or {}), NEAR: self._near(ctx)})

    def _near(self, ctx: Context) -> Tensor:
        """Return the index of the token at each offset, (B|1, T, n); T where there is none."""
        places = ctx.places(self.axes).long()
        column = torch.arange(places.shape[1], device=places.device)
        radius = max(map(max, self.offsets))
        low = places.amin(1, keepdim=True) - radius
        extent = places.amax(1, keepdim=True) + radius + 1 - low  # (B|1, 1, A)
        stride = extent.flip(-1).cumprod(-1).flip(-1) // extent
        grid = _grids(ctx, places) * extent.prod(-1)
        code = grid + ((places - low) * stride).sum(-1)
        code = torch.where(ctx.key_mask, code, -1 - column)  # padding is nobody's neighbour
        ordered, order = code.sort(dim=1, stable=True)
        offsets = torch.tensor(self.offsets, device=places.device)
        wanted = code[..., None] + (offsets * stride[:, :, None]).sum(-1)  # (B|1, S, n)
        at = torch.searchsorted(ordered, wanted.flatten(1)).clamp(max=len(column) - 1)
        found = ordered.gather(1, at) == wanted.flatten(1)
        index = torch.where(found, order.gather(1, at), len(column)).view_as(wanted)
        return index[:, len(column) - ctx.new :]

    def embed(self, x: Tensor, ctx: Pass) -> Tensor:
        return self._around(x[:, None], self.of_embeddings, ctx)[:, 0].to(x.dtype)

    def transform(self, q: Tensor, k: Tensor, ctx: Pass) -> tuple[Tensor, Tensor]:
        of_q, of_k = self.of_heads[ctx.layer]
        return self._around(q, of_q, ctx), self._around(for_each_head(k, q), of_k, ctx)

    def _around(self, x: Tensor, weight: Tensor, ctx: Pass) -> Tensor:
        """Add to x (B, H, T, K) the sum over the cells around, weight (..., K, n)."""
        ctx.check_prepared()
        near = (ctx.drawn or {})[NEAR]
        padded = nn.functional.pad(x, (0, 0, 0, 1))
        for o, index in enumerate(near.unbind(-1)):
            there = padded.take_along_dim(index[:, None, :, None], 2)
            x = x + weight[..., o] * there
        return x


def _grids(ctx: Context, places: Tensor) -> Tensor:
    """Return the number of each token's grid, (B|1, S): a new one where the first cell recurs."""
    s = ctx.pos.shape[1]
    begins = visible_keys(replace(ctx, n_new=None)) == 1  # the first token of a document
    first = torch.where(begins, torch.arange(s, device=places.device), 0).cummax(1).values
    origin = places.take_along_dim(first[..., None], 1)
    again = (places == origin).all(-1) & ctx.key_mask
    return again.long().cumsum(1)
