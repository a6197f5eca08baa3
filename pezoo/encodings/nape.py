"""NAPE: half of the heads with ALiBi, half without positions."""

from typing import Unpack

import torch
from torch import Tensor

from pezoo.base import BiasForm, Context, Encoding, FormKind, ScoreMod, Shape, Sizes
from pezoo.encodings import alibi
from pezoo.registry import register
from pezoo.spec import choice

SLOPES = ("linear", "exponential", "alibi")


@register("nape")
class NAPE(Encoding):
    """Give the first heads ALiBi's penalty on distance and leave the others without positions.

    Formula: b_ij = -m_h |i - j|, m_h = 1/h for the heads h = 1..A, 0 for the heads A+1..H.

    Example: H = 4, A = 2: the token three back gets -3, -1.5, 0 and 0.

    Shapes: -> (B|1, H, T, S), no parameters. Distances are integers, products float32.
    Options: heads, the number A; None means half of the heads, rounded down (of one head, none).
    slopes, "linear" as above, "exponential", 1, 1/2, 1/4 and so on, or "alibi", those that
    ALiBi gives A heads: with heads=H this is `alibi`.
    Errors: ValueError for an A outside 0..H and for unknown slopes.

    Paper: Vasylenko et al. 2026, "Long-Context Generalization with Sparse Attention", whose models
    have NAPE inside `asentmax`, and the authors' code, which has half of the heads and the slopes
    "linear" and "exponential". |i - j| in place of i - j serves encoders too.
    """

    summary = "ALiBi with slopes 1/h in half of the heads, nothing in the others"
    paper = "Vasylenko et al. 2026"
    reports = "recalls at 1,000 times the training length, inside asentmax"
    reads = "distance"
    prf_text = "|i - j|"
    relative = True
    reads_distance = True

    def __init__(
        self,
        shape: Shape | None = None,
        *,
        heads: int | None = None,
        slopes: str = "linear",
        **sizes: Unpack[Sizes],
    ) -> None:
        super().__init__(shape, **sizes)
        shape = self.shape
        self.heads = shape.n_heads // 2 if heads is None else heads
        if not 0 <= self.heads <= shape.n_heads:
            raise ValueError(
                f"heads must be within 0..{shape.n_heads}, the number of heads, got {heads}"
            )
        choice("slopes", slopes, SLOPES)
        self.slopes = slopes
        self.heads_with_positions, self.order_blind = self.heads, self.heads == 0

    def prf(self, ctx: Context) -> Tensor:
        distance = ctx.distance()[0].abs()
        return distance if self.heads else torch.zeros_like(distance)

    def bias_form(self, q: Tensor, k: Tensor, ctx: Context, kind: FormKind) -> BiasForm | None:
        device = ctx.pos.device
        m = torch.arange(self.heads, device=device).float()
        own = 0.5**m if self.slopes == "exponential" else 1 / (m + 1)
        if self.slopes == "alibi" and self.heads:
            own = alibi.slopes(self.heads, device)
        slope = torch.cat([own, own.new_zeros(self.shape.n_heads - self.heads)])

        def value(h: Tensor, i: Tensor, j: Tensor) -> Tensor:
            return -slope[h] * ctx.distance(i, j).abs()

        return ScoreMod(value) if kind is ScoreMod else None
