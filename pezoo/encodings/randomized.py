"""Randomized positions around another encoding."""

from collections.abc import Callable
from functools import partial
from typing import Unpack

import torch
from torch import Tensor

from pezoo.base import Context, Encoding, Pass, Plan, PositionError, Shape, Sizes
from pezoo.registry import make, register
from pezoo.spec import choice
from pezoo.wrapper import Wrapper

TABLE = "randomized.table"


@register("randomized")
class Randomized(Wrapper):
    """Replace the positions of another encoding by a random, ordered choice from a larger range.

    Formula: position p becomes the p-th smallest of n positions drawn from 0..L-1 without
    replacement. With sample="distances", distance d becomes sign(d) times the |d|-th smallest of
    n-1 distances drawn from 1..L-1, so that equal distances stay equal.

    Example: L = 10, positions 0, 1, 2 become 2, 3, 8: the inner encoding sees the order and no
    more. At L = n nothing is left to draw: the inner encoding, unchanged.

    Shapes: those of the inner encoding, which is built for train_len = L. One draw for the whole
    batch, one per forward pass, at evaluation as in training, on the CPU. n is the largest of
    the planned length, the highest position + 1 and, unless documents are packed, the number of
    columns that hold a token: decoding keeps the first draw, in ctx.memo. -1, no token, stays
    -1. Around nope and bipe, which do not read these positions, it changes nothing.
    Options: max_len, which is L; sample, "positions" or "distances", by default what the paper
    draws: distances around ALiBi, positions around everything else (its code draws distances around
    the relative form too: sample=distances); sorted=false leaves what is drawn in random order, the
    ablation of its Table 3.
    Errors: PositionError for n > L, and when decoding runs beyond the length it was planned for;
    ValueError for an unknown sample, distances around an encoding that reads positions, or one that
    represents fewer than L.

    Around learned it is the label-based encoding of Li and McClelland 2022, `label_based`.

    Paper: Ruoss et al. 2023, Section 3, L = 2048. The paper draws from 1..L; here from 0..L-1, as
    positions count from 0. For ALiBi it samples "bias values from the set of extended positions";
    its code draws distances of 1..L-1 and leaves 0 alone, as here, but anew in each layer; here one
    draw serves all layers. The code's relative table has half of the rows it should
    have, so that all distances on one side read the same row: not reproduced.
    """

    summary = "another encoding at random ordered positions"
    paper = "Ruoss et al. 2023"
    reports = "12 points of accuracy more on 15 tasks beyond the training length"
    wraps = "relative"
    also = (("label_based", "randomized:learned"),)
    stochastic = True
    version = 2

    def __init__(
        self,
        shape: Shape | None = None,
        make_inner: Callable[[Shape], Encoding] | None = None,
        *,
        max_len: int = 2048,
        sample: str | None = None,
        sorted: bool = True,
        **sizes: Unpack[Sizes],
    ) -> None:
        build = partial(make, self.wraps) if make_inner is None else make_inner
        super().__init__(shape, lambda own: build(own.replaced(train_len=max_len)), **sizes)
        if sample is not None:
            choice("sample", sample, ("positions", "distances"))
        usual = "distances" if self.inner.random_distances else "positions"
        sample = usual if sample is None else sample
        self.refuse_itself("one draw is enough")
        if sample == "distances" and not self.inner.reads_distance:
            raise ValueError(
                f"sample=distances needs an encoding that reads distances, as relative or alibi "
                f"do; {type(self.inner).__name__} does not: take sample=positions"
            )
        if self.inner.max_len is not None and self.inner.max_len < max_len:
            raise ValueError(
                f"randomized draws from {max_len} positions, of which {type(self.inner).__name__} "
                f"represents {self.inner.max_len}: give both the same max_len"
            )
        self.max_len, self.sample, self.sorted = max_len, sample, sorted
        self.relative = self.reads_distance = self.random_distances = False

    def draw(self, ctx: Context, **plan: Unpack[Plan]) -> dict[str, Tensor]:
        Encoding.draw(self, ctx)
        last = ctx.ask(ctx.pos.max()) + 1
        table = ctx.memo.get(TABLE)
        if table is None:
            columns = 0 if ctx.packed else ctx.ask(ctx.key_mask.any(0).sum())
            size = max(plan.get("length") or 1, last, columns)  # 1: all is padding
            table = ctx.memo[TABLE] = self.table(size, plan.get("generator"))
        if last > len(table):
            raise PositionError(
                f"randomized drew {len(table)} positions for this sequence, which now has {last}: "
                f"plan the final length before the first step: pezoo.Cache(length=N), "
                f"use(model, encoding, length=N) in transformers, or draw(ctx, length=N)"
            )
        inner = self._at(table.to(ctx.pos.device), ctx)
        return {TABLE: table, **self.inner.draw(inner, **plan)}

    def table(self, n: int, generator: torch.Generator | None = None) -> Tensor:
        """Draw n of 0..L-1, or 0 and n-1 of 1..L-1: (n,) int64, ascending if sorted."""
        size = self.max_len or 0
        if n > size:
            raise PositionError(
                f"randomized(max_len={size}) represents {size} positions, needs {n}"
            )
        least = int(self.sample == "distances")  # distance 0 stays
        drawn = least + torch.randperm(size - least, generator=generator, device="cpu")[: n - least]
        drawn = drawn.sort().values if self.sorted else drawn
        return torch.cat([drawn.new_zeros(least), drawn])

    def inner_ctx(self, ctx: Pass) -> Pass:
        return self._at((ctx.drawn or {})[TABLE], ctx)

    def _at(self, table: Tensor, ctx: Context) -> Pass:
        """Return the context of the inner encoding, with the table's positions or distances."""
        if self.sample == "distances":
            return Pass.of(ctx, prepared=False, distances=table)
        pos = torch.where(ctx.key_mask, table[ctx.pos.clamp(min=0)], ctx.pos)
        return Pass.of(ctx, prepared=False, true_pos=ctx._true_pos, pos=pos)

    def extra_repr(self) -> str:
        return f"max_len={self.max_len}, sample={self.sample}"
