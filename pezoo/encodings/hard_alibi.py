"""Hard-ALiBi: heads that see the nearest tokens only, beside heads that see all."""

from typing import Unpack

import torch
from torch import Tensor

from pezoo.base import BiasForm, Context, Encoding, FormKind, ScoreMod, Shape, Sizes
from pezoo.registry import register


@register("hard_alibi")
class HardALiBi(Encoding):
    """Restrict heads 1..M to windows of the last 1..M tokens; the other heads are NoPE.

    Formula: b_ij = -inf for j <= i - m, 0 for j > i - m, with m = h for the heads h = 1..M and
    m = inf for the heads M+1..H.

    Example: M = 2 of 3 heads: head 1 sees the token itself, head 2 also the one before, head 3 all.

    Shapes: -> (B|1, H, T, S), 0 or -inf, no parameters. No row is -inf throughout: every query
    sees itself.
    Options: masked, the number M; None means half of the heads, rounded down (of one head, none):
    8 of 16, as Jelassi et al. mask to copy and Hou et al. for Turing machines. Hou et al. mask 7 of
    16 for multiplication and SGD, 6 for addition.
    Errors: ValueError for an M outside 0..H.

    Paper: Jelassi et al. 2024, "Repeat After Me", with the windows of Hou et al. 2024, "Universal
    Length Generalization with Turing Programs", Sections 2 and 3.1. Both use decoders. Without a
    causal mask the formula, kept as it stands, leaves all later keys visible.
    """

    summary = "heads that see the last 1..M tokens, the others see all"
    paper = "Jelassi et al. 2024; Hou et al. 2024"
    reports = "98 % of additions at twice the training length, with a scratchpad"
    reads = "distance"
    prf_text = "i - j within the widest window, clip(i - j, 0, M)"
    relative = True
    reads_distance = True
    version = 2

    def __init__(
        self, shape: Shape | None = None, *, masked: int | None = None, **sizes: Unpack[Sizes]
    ) -> None:
        super().__init__(shape, **sizes)
        shape = self.shape
        self.masked = shape.n_heads // 2 if masked is None else masked
        self.heads_with_positions = self.masked
        self.order_blind = self.masked == 0
        if not 0 <= self.masked <= shape.n_heads:
            raise ValueError(
                f"masked must be within 0..{shape.n_heads}, the number of heads, got {masked}"
            )

    def prf(self, ctx: Context) -> Tensor:
        return ctx.distance()[0].clamp(0, self.masked)

    def bias_form(self, q: Tensor, k: Tensor, ctx: Context, kind: FormKind) -> BiasForm | None:
        def value(h: Tensor, i: Tensor, j: Tensor) -> Tensor:
            hidden = (ctx.distance(i, j) > h) & (h < self.masked)  # the first head has h = 0
            return torch.where(hidden, -torch.inf, 0.0)

        return ScoreMod(value) if kind is ScoreMod else None
