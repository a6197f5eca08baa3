"""PoSE: tuning for long texts on short ones, at positions with a gap."""

from collections.abc import Callable
from typing import Unpack

import torch
from torch import Tensor

from pezoo.base import Context, Encoding, Pass, Plan, Shape, Sizes
from pezoo.registry import register
from pezoo.wrapper import Wrapper

GAP = "pose.gap"


@register("pose")
class PoSE(Wrapper):
    """Train another encoding at positions with a gap, as if texts were `factor` times as long.

    Formula: for a text of n tokens, position p becomes p + u where p >= c, c uniform in 1..ceil(n /
    2) and u in 0..max(0, s train_len - n), s the factor. At evaluation positions stay as they are.

    Example: train_len = 4, s = 2: with c = 1 and u = 3 positions 0, 1, 2, 3 become 0, 4, 5, 6.

    Shapes: those of the inner encoding. n is the highest position + 1. One draw of c and u for the
    whole batch, on the CPU; packed documents have the same.
    Options: factor, s, of the texts to be read after training, at least 1.
    Errors: ValueError for a factor below 1, and around an encoding that represents fewer than s
    train_len positions.

    Paper: Zhu et al. 2023, "PoSE", for tuning trained models, together with a scaling:
    `pose:rope(rope_parameters=yarn(factor=8))`. Two chunks as in the released code, which draws c
    and u for each text and may also skip text between the chunks; the text here is contiguous.
    """

    summary = "another encoding, trained at positions with a gap"
    paper = "Zhu et al. 2023"
    reports = "tuned on 2k tokens, a model reads up to 128k"
    wraps = "rope"

    def __init__(
        self,
        shape: Shape | None = None,
        make_inner: Callable[[Shape], Encoding] | None = None,
        *,
        factor: int = 8,
        **sizes: Unpack[Sizes],
    ) -> None:
        super().__init__(shape, make_inner, **sizes)
        if factor < 1:
            raise ValueError(f"factor must be at least 1, got {factor}")
        self.refuse_itself("one gap is enough")
        self.most = factor * self.shape.train_len
        if self.inner.max_len is not None and self.inner.max_len < self.most:
            raise ValueError(
                f"pose(factor={factor}) needs {self.most} positions, of which {self.inner.name} "
                f"represents {self.inner.max_len}: give it max_len={self.most}"
            )
        self.rope_within = self.inner.rope_within

    def draw(self, ctx: Context, **plan: Unpack[Plan]) -> dict[str, Tensor]:
        if not self.training:
            return self.inner.draw(ctx, **plan)
        n = max(1, ctx.ask(ctx.pos.max()) + 1)

        def uniform(least: int, most: int) -> Tensor:
            size, random = (1,), plan.get("generator")
            return torch.randint(least, most + 1, size, generator=random, device="cpu")

        gap = torch.cat([uniform(1, (n + 1) // 2), uniform(0, max(0, self.most - n))])
        return {GAP: gap, **self.inner.draw(self._at(gap.to(ctx.pos.device), ctx), **plan)}

    def inner_ctx(self, ctx: Pass) -> Pass:
        gap = (ctx.drawn or {}).get(GAP)
        return super().inner_ctx(ctx) if gap is None else self._at(gap, ctx)

    def _at(self, gap: Tensor, ctx: Context) -> Pass:
        pos = ctx.pos + gap[1] * (ctx.pos >= gap[0])
        return Pass.of(ctx, prepared=False, true_pos=ctx._true_pos, pos=pos)
