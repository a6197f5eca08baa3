"""A learned vector per absolute position."""

import math
from typing import Unpack

import torch
from torch import Tensor, nn

from pezoo.base import Context, Encoding, Shape, Sizes
from pezoo.functional import own_pairs
from pezoo.registry import register


@register("learned")
class Learned(Encoding):
    """Add a learned vector per position to the token embeddings.

    Formula: x_p + table[p].

    Example: with max_len = 40, position 39 is the last one; position 40 raises
    PositionError, since no vector for it was ever trained.

    Shapes: x (B, T, D) -> the same; table (max_len, D), at the start N(0, 0.02^2) as in GPT-2.
    Options: max_len, the rows of the table; by default shape.train_len, a choice of ours; std, at
    the start N(0, std^2) truncated at two standard deviations, as in Haiku's Embed with std=1;
    None is N(0, 0.02^2), not truncated.
    Errors: PositionError at positions from max_len on; ValueError for a max_len below 1 or a std
    that is not above 0.

    Paper: Gehring et al. 2017, "Convolutional Sequence to Sequence Learning", Section 3.1.
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
        **sizes: Unpack[Sizes],
    ) -> None:
        super().__init__(shape, **sizes)
        shape = self.shape
        self.max_len = shape.train_len if max_len is None else max_len
        if self.max_len < 1:
            raise ValueError(f"max_len must be at least 1, got {max_len}")
        if std is not None and not 0 < std < math.inf:
            raise ValueError(f"std must be a number above 0, got {std}")
        self.table = nn.Parameter(0.02 * torch.randn(self.max_len, shape.d_model))
        if std is not None:
            nn.init.trunc_normal_(self.table, std=std, a=-2 * std, b=2 * std)

    def prf(self, ctx: Context) -> Tensor:
        self.draw(ctx)  # raises for positions beyond the table
        return own_pairs(ctx.pos)

    def embed(self, x: Tensor, ctx: Context) -> Tensor:
        ctx.check_prepared()  # `draw` raises for positions beyond the table
        row = ctx.query_pos.clamp(min=0)  # padding reads row 0, which attention masks
        return x + nn.functional.embedding(row, self.table).to(x.dtype)
