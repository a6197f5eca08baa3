"""ALiBi on several axes."""

from typing import Unpack

import torch
from torch import Tensor

from pezoo.base import BiasForm, Context, Encoding, FormKind, ScoreMod, Shape, Sizes
from pezoo.encodings.alibi import slopes
from pezoo.registry import register
from pezoo.spec import choice


@register("alibi_2d")
class ALiBi2D(Encoding):
    """Subtract from each logit the distance on the plane times the head's slope.

    Formula: b_ij = -m_h d(x_i - x_j), d Euclidean, the root of sum_a x_a^2, or Manhattan, sum_a
    |x_a|; m_h as in alibi.

    Example: H = 8, first head: m = 1/2; the cell 3 below and 4 right gets -2.5, Manhattan -3.5.

    Shapes: -> (B|1, H, T, S), float32, no parameters. Text at distance d has d on every axis.
    Options: axes; metric, "euclidean" or "manhattan".
    Errors: ValueError for an unknown metric.

    Paper: Fuller et al. 2023, "CROMA" (arXiv 2311.00566), Section 3, whose X-ALiBi and 2D-ALiBi
    have the Euclidean distance; slopes of Press et al. 2022.
    """

    summary = "a penalty linear in the distance on the plane, one slope per head"
    paper = "Fuller et al. 2023"
    reports = "keeps its accuracy on larger images"
    reads = "distance"
    prf_text = "|i - j|"
    relative = True

    def __init__(
        self,
        shape: Shape | None = None,
        *,
        axes: int = 2,
        metric: str = "euclidean",
        **sizes: Unpack[Sizes],
    ) -> None:
        super().__init__(shape, **sizes)
        choice("metric", metric, ("euclidean", "manhattan"))
        self.axes, self.metric = axes, metric

    def prf(self, ctx: Context) -> Tensor:
        return ctx.distance()[0].abs()

    def bias_form(self, q: Tensor, k: Tensor, ctx: Context, kind: FormKind) -> BiasForm | None:
        slope, manhattan = slopes(self.shape.n_heads, ctx.pos.device), self.metric == "manhattan"

        def value(h: Tensor, i: tuple[Tensor, ...], j: tuple[Tensor, ...]) -> Tensor:
            apart = [(x - y).abs().float() for x, y in zip(i, j, strict=True)]
            far = sum(d if manhattan else d * d for d in apart[1:])
            first = apart[0] if manhattan else apart[0] * apart[0]
            return -slope[h] * (first + far if manhattan else torch.sqrt(first + far))

        return ScoreMod(value, self.axes) if kind is ScoreMod else None
