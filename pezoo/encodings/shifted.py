"""Positions that start at a random offset in training, around another encoding."""

from collections.abc import Callable
from functools import partial
from typing import Unpack

import torch
from torch import Tensor

from pezoo.base import Context, Encoding, Pass, Plan, Shape, Sizes
from pezoo.registry import make, register
from pezoo.wrapper import Wrapper

OFFSET = "shifted.offset"


@register("shifted")
class Shifted(Wrapper):
    """Train another encoding at positions that start at a random offset.

    Formula: position p becomes p + o; o is one integer for the whole batch, uniform over
    0..max(0, span - S) while training, 0 in evaluation.

    Example: span = 304 and S = 101: a batch sees positions o..o+100, o drawn from 0..203, so that a
    learned table has trained rows for all of 304 tokens.

    Shapes: those of the inner encoding, which is built for train_len = span. -1, no token, stays
    -1. A new offset is drawn for every pass: decoding token by token is for evaluation.
    Options: span, one more than the largest position seen in training.
    Errors: ValueError for a span below 1.

    Paper: Huang et al. 2024, "A Formal Framework for Understanding Length Generalization in
    Transformers" (arXiv 2410.02140), around learned, with an offset for every sample.
    """

    summary = "another encoding at positions with a random offset in training"
    paper = "Huang et al. 2024"
    wraps = "learned"

    def __init__(
        self,
        shape: Shape | None = None,
        make_inner: Callable[[Shape], Encoding] | None = None,
        *,
        span: int = 2048,
        **sizes: Unpack[Sizes],
    ) -> None:
        if span < 1:
            raise ValueError(f"span must be at least 1, got {span}")
        build = partial(make, self.wraps) if make_inner is None else make_inner
        super().__init__(shape, lambda own: build(own.replaced(train_len=span)), **sizes)
        self.span = span

    def draw(self, ctx: Context, **plan: Unpack[Plan]) -> dict[str, Tensor]:
        Encoding.draw(self, ctx)
        drawn = drawn_offset(self.span, ctx, plan) if self.training else {}
        return {**drawn, **self.inner.draw(moved(ctx, drawn), **plan)}

    def inner_ctx(self, ctx: Pass) -> Pass:
        return moved(ctx, ctx.drawn)


def drawn_offset(span: int, ctx: Context, plan: Plan) -> dict[str, Tensor]:
    """Draw an offset () at which all tokens of the context are below `span`."""
    most = max(0, span - ctx.pos.shape[1])
    generator = plan.get("generator")
    return {OFFSET: torch.randint(most + 1, (), generator=generator, device="cpu")}


def moved(ctx: Context, drawn: dict[str, Tensor] | None) -> Pass:
    """Return the context at the positions with this offset, not prepared."""
    offset = (drawn or {}).get(OFFSET)
    if offset is None:
        return Pass.of(ctx, prepared=False)
    return Pass.of(ctx, prepared=False, pos=torch.where(ctx.key_mask, ctx.pos + offset, ctx.pos))
