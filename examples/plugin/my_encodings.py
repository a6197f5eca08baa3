"""An encoding of one's own: a bias that is a function of the head and of two positions."""

from typing import Unpack

import torch
from torch import nn
from torch.nn.functional import softplus

from pezoo import Encoding, Shape, register
from pezoo.base import ScoreMod, Sizes


@register("slope")
class Slope(Encoding):
    """Add -softplus(s_lh) |i - j| to the logits, with a learned s for each layer and head."""

    summary = "a penalty linear in the distance, slopes learned"
    relative = reads_distance = True

    def __init__(
        self, shape: Shape | None = None, *, start: float = -2.0, **sizes: Unpack[Sizes]
    ) -> None:
        super().__init__(shape, **sizes)  # so that Slope(n_layers=2, n_heads=4) works too
        self.raw = nn.Parameter(torch.full((self.shape.n_layers, self.shape.n_heads), start))

    def bias_form(self, q, k, ctx, kind):
        slope = softplus(self.raw[ctx.layer].float())  # (H,)
        mod = ScoreMod(lambda h, i, j: -slope[h] * ctx.distance(i, j).abs())
        return mod if kind is ScoreMod else None
