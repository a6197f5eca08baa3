"""T5's bucketed bias."""

import math
from typing import Unpack

import torch
from einops import rearrange
from torch import Tensor, nn

from pezoo.base import BiasForm, Context, Encoding, FormKind, ScoreMod, Shape, Sizes
from pezoo.registry import register


@register("t5")
class T5(Encoding):
    """Add a learned number per head and bucket of distances, the buckets widening with distance.

    Formula: b_ij = table[bucket(i - j), h]. Half of the buckets hold one distance d each, the other
    half split [buckets/2, max_distance) evenly in log d, and the last one holds all beyond:
    bucket(d) = e + floor(log(d/e) / log(max_distance/e) * (buckets - e)), e = buckets/2, d >= e.
    Later keys share bucket 0 with the token itself. When bidirectional, this formula has half of
    the buckets: the lower half serves earlier keys, the upper half later keys.

    Example: buckets = 32, max_distance = 128: distances 0..15 have buckets 0..15, 16..18 share 16,
    113 and everything beyond share 31.

    Shapes: q (B, H, T, K) -> (B|1, H, T, S); table (buckets, H), one for all layers, at the start
    N(0, 1/D), as in transformers.
    Options: buckets, how many; max_distance, from which on all share the last; bidirectional, for
    encoders.
    Errors: ValueError when there are no two buckets a side, or max_distance is not beyond the
    distances that have a bucket of their own.

    Paper: Raffel et al. 2020, Section 2.1 and the released code, whose float32 logarithm is kept.
    T5 leaves out 1/sqrt(K) from the logits and scales W_Q at the start instead; here the bias is
    added to logits that were divided by sqrt(K), as everywhere in this project.
    """

    summary = "a learned number per head and bucket of distances"
    paper = "Raffel et al. 2020"
    reads = "distance"
    prf_text = "the bucket of i - j"
    relative = True
    reads_distance = True

    def __init__(
        self,
        shape: Shape | None = None,
        *,
        buckets: int = 32,
        max_distance: int = 128,
        bidirectional: bool = False,
        **sizes: Unpack[Sizes],
    ) -> None:
        super().__init__(shape, **sizes)
        shape = self.shape
        side = buckets // 2 if bidirectional else buckets
        if side < 2 or (bidirectional and buckets % 2):
            raise ValueError(f"buckets must be at least 2 a side, as many on both, got {buckets}")
        if max_distance <= side // 2:
            raise ValueError(f"max_distance must be beyond {side // 2}, got {max_distance}")
        self.side, self.max_distance, self.bidirectional = side, max_distance, bidirectional
        std = 1 / math.sqrt(shape.d_model)
        self.table = nn.Parameter(std * torch.randn(buckets, shape.n_heads))

    def bucket(self, distance: Tensor) -> Tensor:
        """Return the row of the table for each distance i - j, both int64."""
        upper = (distance < 0) * self.side if self.bidirectional else 0
        d = distance.abs() if self.bidirectional else distance.clamp(min=0)
        exact = self.side // 2
        ratio = (d.clamp(min=exact).float() / exact).log() / math.log(self.max_distance / exact)
        wide = (exact + (ratio * (self.side - exact)).long()).clamp(max=self.side - 1)
        return upper + torch.where(d < exact, d, wide)

    def prf(self, ctx: Context) -> Tensor:
        return self.bucket(ctx.distance()[0])

    def bias(self, q: Tensor, k: Tensor, ctx: Context) -> Tensor:
        values = nn.functional.embedding(self.bucket(ctx.distance()), self.table)  # (B|1, T, S, H)
        return rearrange(values, "b t s h -> b h t s")

    def bias_form(self, q: Tensor, k: Tensor, ctx: Context, kind: FormKind) -> BiasForm | None:
        def value(h: Tensor, i: Tensor, j: Tensor) -> Tensor:
            return self.table[self.bucket(ctx.distance(i, j)), h]

        return ScoreMod(value) if kind is ScoreMod else None
