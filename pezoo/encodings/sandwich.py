"""Sandwich: the product of two sinusoidal embeddings as a bias."""

from typing import Unpack

import torch
from torch import Tensor

from pezoo.base import BiasForm, Context, Encoding, FormKind, Pass, ScoreMod, Shape, Sizes
from pezoo.functional import distinct
from pezoo.registry import register


@register("sandwich")
class Sandwich(Encoding):
    """Add the product of the sinusoidal embeddings of two positions, which falls with distance.

    Formula: b_ij = c_h sum_m (cos((i - j) base^(-2m/width)) - 1), m = 0..width/2-1, c_h = H / (8h)
    for the heads h = 1..H.

    Example: H = 8, width = 2: the first head gets cos(i - j) - 1, the second half of it.

    Shapes: -> (B|1, H, T, S), no parameters. Angles are float32.
    Options: width, of the sinusoids, whatever the model's; base, of the wavelengths.
    Errors: ValueError for a width that is odd or below 2 and a base that is not above 0.

    Paper: Chi et al. 2023, "Dissecting Transformer Length Extrapolation via the Lens of Receptive
    Field Analysis", with the scale and the width of Appendix E. It is added to q_i k_j / sqrt(K).
    There the bias of the token itself is width H / (16h), here 0: softmax is the same, and half
    precision does not round that number.
    """

    summary = "a sum of cosines of the distance, in each head on another scale"
    paper = "Chi et al. 2023"
    reports = "uses tokens beyond the training length, without parameters"
    reads = "distance"
    prf_text = "|i - j|"
    relative = True
    reads_distance = True

    def __init__(
        self,
        shape: Shape | None = None,
        *,
        width: int = 128,
        base: float = 10_000.0,
        **sizes: Unpack[Sizes],
    ) -> None:
        super().__init__(shape, **sizes)
        if width < 2 or width % 2 or base <= 0:
            raise ValueError(
                f"width must be even and base above 0, got width={width} and base={base}"
            )
        self.frequencies = [base ** (-2 * m / width) for m in range(width // 2)]

    def prf(self, ctx: Context) -> Tensor:
        return ctx.distance()[0].abs()

    def bias(self, q: Tensor, k: Tensor, ctx: Pass) -> Tensor:
        distances, index = distinct(ctx.distance().abs())
        return self._scale(ctx)[:, None, None] * self._waves(distances)[index][:, None]

    def bias_form(self, q: Tensor, k: Tensor, ctx: Pass, kind: FormKind) -> BiasForm | None:
        scale = self._scale(ctx)

        def value(h: Tensor, i: Tensor, j: Tensor) -> Tensor:
            return scale[h] * self._waves(ctx.distance(i, j).abs())

        return ScoreMod(value) if kind is ScoreMod else None

    def _scale(self, ctx: Context) -> Tensor:
        heads = self.shape.n_heads
        return heads / (8 * torch.arange(1, heads + 1, device=ctx.pos.device).float())

    def _waves(self, distance: Tensor) -> Tensor:
        """Sum one cosine after the other, so that FlexAttention needs no axis for them."""
        d = distance.float()
        total = torch.zeros_like(d)
        for w in self.frequencies:
            total = total - 2 * torch.sin(d * (w / 2)).square()  # cos(d w) - 1
        return total
