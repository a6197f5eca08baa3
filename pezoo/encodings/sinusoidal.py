"""Sinusoidal absolute positions, plain and shifted at random in training."""

from dataclasses import replace
from typing import Unpack

import torch
from torch import Tensor

from pezoo.base import Context, Encoding, Pass, Plan, Shape, Sizes
from pezoo.encodings.axial_rope import sections_of
from pezoo.encodings.shifted import drawn_offset, moved
from pezoo.functional import inverse_frequencies, own_pairs, sinusoid
from pezoo.registry import register


@register("sinusoidal")
class Sinusoidal(Encoding):
    """Add sines and cosines of the position to the token embeddings.

    Formula: x_p + [sin(p w_0), ..., sin(p w_n), cos(p w_0), ..., cos(p w_n)], w_m = base^(-2m/D).

    Example: D = 2, w_0 = 1: the embedding (0, 0) at position p becomes (sin p, cos p).

    Shapes: x (B, T, D) -> the same. Angles are float32 whatever the dtype of x.
    Options: base, of the wavelengths; axes, each of which has its own share of D, with the sinusoid
    of its coordinate, as in Chen et al. 2021 (MoCo v3): as many pairs, the first ones more.
    Errors: ValueError for an odd D.

    Paper: Vaswani et al. 2017, Section 3.5, where sine and cosine alternate along D; here the sines
    come first, then the cosines: a permutation of D, which no linear layer after it can tell.
    The model says whether it multiplies the token embeddings by sqrt(D) first.
    """

    summary = "sines and cosines of the position, added to the embedding"
    paper = "Vaswani et al. 2017"
    reports = "may extrapolate to longer texts (not tested there)"
    reads = "positions"
    prf_text = "the pair: i n + j"

    def __init__(
        self,
        shape: Shape | None = None,
        *,
        base: float = 10_000.0,
        axes: int = 1,
        **sizes: Unpack[Sizes],
    ) -> None:
        super().__init__(shape, **sizes)
        shape = self.shape
        if shape.d_model % 2:
            raise ValueError(f"{self.name} needs an even d_model, got {shape.d_model}")
        inverse_frequencies(shape.d_model, base)  # raises for a base that has none
        self.pairs = sections_of("", shape.d_model // 2, axes)
        self.base, self.axes = base, axes

    def prf(self, ctx: Context) -> Tensor:
        return own_pairs(ctx.pos)

    def embed(self, x: Tensor, ctx: Context) -> Tensor:
        if self.axes == 1:
            return x + sinusoid(ctx.query_pos, self.shape.d_model, self.base).to(x.dtype)
        places = ctx.places(self.axes)[:, ctx.pos.shape[1] - ctx.new :].unbind(-1)
        waves = [sinusoid(one, 2 * n, self.base) for one, n in zip(places, self.pairs, strict=True)]
        return x + torch.cat(waves, -1).to(x.dtype)


@register("shifted_sinusoidal")
class ShiftedSinusoidal(Sinusoidal):
    """Add sinusoids of positions that start at a random offset in training.

    Formula: as sinusoidal at position p + o; o is one integer for the whole batch, uniform over
    0..max(0, span - S) while training, 0 in evaluation.

    Example: span = 2048 and S = 40: a batch sees positions o..o+39, o drawn from 0..2008.

    Shapes: x (B, T, D) -> the same. -1, no token, stays -1. A new offset is drawn for every pass:
    decoding token by token is for evaluation.
    Options: span, one more than the largest position seen in training; base.
    Errors: ValueError for an odd D or a span below 1.

    Paper: the baseline of Lee 2025 ("Position as Probability"), after McLeish et al. 2024, whose
    Abacus embeddings shift digit positions in the same way. Lee gives neither the range nor the
    distribution of the offset: span and the uniform are ours.
    """

    summary = "sinusoidal, one random offset per training batch"
    paper = "Lee 2025, after McLeish et al. 2024"
    reports = ""
    reads = "positions"

    def __init__(
        self,
        shape: Shape | None = None,
        *,
        base: float = 10_000.0,
        span: int = 2048,
        **sizes: Unpack[Sizes],
    ) -> None:
        super().__init__(shape, base=base, **sizes)
        if span < 1:
            raise ValueError(f"span must be at least 1, got {span}")
        self.span = span

    def draw(self, ctx: Context, **plan: Unpack[Plan]) -> dict[str, Tensor]:
        drawn = super().draw(ctx)
        return {**drawn, **drawn_offset(self.span, ctx, plan)} if self.training else drawn

    def prepare(self, ctx: Context) -> Pass:
        found = super().prepare(ctx)
        return replace(moved(found, found.drawn), prepared=True)

    def embed(self, x: Tensor, ctx: Context) -> Tensor:
        ctx.check_prepared()
        return super().embed(x, ctx)
