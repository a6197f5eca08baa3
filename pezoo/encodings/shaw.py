"""Shaw's relative position representations, on the keys."""

import math
from typing import Unpack

import torch
from torch import Tensor, nn

from pezoo.base import Context, Encoding, Shape, Sizes
from pezoo.registry import register


@register("shaw")
class Shaw(Encoding):
    """Add a learned vector per clipped distance to the keys.

    Formula: a_ij = q_i (k_j + a_{clip(i-j, -c, c)}) / sqrt(K). The bias returned is the second
    term.

    Example: c = 1: one vector for all later keys, one for the token itself, one for all earlier
    keys.

    Shapes: q (B, H, T, K) -> (B, H, T, S); table (n_layers, 2c+1, H, K), row c + clip(i-j), at the
    start Glorot uniform over (2c+1, K), a choice of ours.
    Options: clip, the largest distance c told apart (16 as in Shaw's base model).
    Errors: ValueError for a clip below 1.

    Paper: Shaw et al. 2018, Equation 4, without the vectors on the values (Equation 3): key-only,
    the form that Chen et al. 2026 study. Deviations: the sign (Shaw counts j-i: the same table read
    backwards); each head has its own vectors, where Shaw's heads share them and Chen adds a_{i-j}
    to the key embedding before W_K. Both are special cases of this one: W_K a is a vector per
    distance, head and layer.
    """

    summary = "a learned vector per clipped distance, added to the keys"
    paper = "Shaw et al. 2018"
    reports = "translates better than with sinusoidal positions"
    reads = "distance"
    prf_text = "clip(i - j, -c, c)"
    relative = True
    reads_distance = True

    def __init__(
        self, shape: Shape | None = None, *, clip: int = 16, **sizes: Unpack[Sizes]
    ) -> None:
        super().__init__(shape, **sizes)
        shape = self.shape
        if clip < 1:
            raise ValueError(f"clip must be at least 1, got {clip}")
        self.clip = clip
        rows, heads, size = 2 * clip + 1, shape.n_heads, shape.d_head
        limit = math.sqrt(6 / (rows + size))
        table = torch.empty(shape.n_layers, rows, heads, size).uniform_(-limit, limit)
        self.table = nn.Parameter(table)

    def prf(self, ctx: Context) -> Tensor:
        return ctx.distance()[0].clamp(-self.clip, self.clip)

    def bias(self, q: Tensor, k: Tensor, ctx: Context) -> Tensor:
        row = ctx.distance().clamp(-self.clip, self.clip) + self.clip  # (B|1, T, S)
        table = self.table[ctx.layer].to(q.dtype) / math.sqrt(self.shape.d_head)  # (n, H, K)
        scores = torch.einsum("bhtk,nhk->bhtn", q, table)  # n = 2c+1
        return scores.gather(-1, row[:, None].expand(*q.shape[:2], -1, -1))
