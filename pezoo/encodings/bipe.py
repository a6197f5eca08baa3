"""BiPE: one position inside a segment, such as a sentence, and one for the segment."""

from collections.abc import Callable
from typing import Unpack

import torch
from torch import Tensor, nn
from torch.nn.functional import embedding

from pezoo.base import Context, Encoding, Pass, Plan, PositionError, Shape, Sizes
from pezoo.functional import run_index
from pezoo.registry import register
from pezoo.wrapper import Wrapper

PLACE = "bipe.place"


@register("bipe")
class BiPE(Wrapper):
    """Add a learned vector per place in a segment; another encoding gets the segments' numbers.

    Formula: x + table[n] for the n-th token of its segment, from 0. For the inner
    encoding a token's position is the number of separators before it in its document. A separator
    ends its segment.

    Example: with "." as separator, ab.c.de has places 0 1 2 0 1 0 1 and segments 0 0 0 1 1 2 2.

    Shapes: ctx.ids (B, S); x (B, T, D) -> the same, and those of the inner encoding; table
    (max_pos, D), at the start N(0, std^2).

    Options
        separators  their ids; by default 10, which follows the ids 0..9 of digits
        max_pos     longest segment: 1024 in the authors' code
        std         of the table, that of the tokens: 1 in `harness`; .02 in the authors' code and
                    in most models of transformers

    Errors: ValueError without token ids, without separators and for a max_pos below 1;
    PositionError for a segment of more than max_pos tokens; those of the inner encoding.

    Paper: He et al. 2024, "Two Stones Hit One Bird: Bilevel Positional Encoding for Better Length
    Extrapolation", and the authors' code, around rope and alibi. There alibi's slopes are times 96,
    and all places beyond the table share its last vector.
    """

    summary = "places in a segment, and another encoding of the segments"
    paper = "He et al. 2024"
    reports = "lower perplexity beyond the training length than its inner encoding"
    reads = "segments"
    wraps = "rope"
    relative = True
    version = 2

    def __init__(
        self,
        shape: Shape | None = None,
        make_inner: Callable[[Shape], Encoding] | None = None,
        *,
        separators: tuple[int, ...] = (10,),
        max_pos: int = 1024,
        std: float = 1.0,
        **sizes: Unpack[Sizes],
    ) -> None:
        super().__init__(shape, make_inner, **sizes)
        self.refuse_itself("give one all separators")
        if not separators or min(separators) < 0 or max_pos < 1 or std < 0:
            raise ValueError(
                f"separators needs an id, of at least 0, max_pos must be at least 1 and std 0; got "
                f"{separators}, {max_pos} and {std}"
            )
        self.separators = separators
        self.table = nn.Parameter(std * torch.randn(max_pos, self.shape.d_model))

    def claim(self) -> None:
        super().claim()
        self.reads_distance = self.order_blind = self.random_distances = False
        self.max_len = self.heads_with_positions = None

    def draw(self, ctx: Context, **plan: Unpack[Plan]) -> dict[str, Tensor]:
        here = self.inner_ctx(Pass.of(ctx, drawn={}))
        last = ctx.ask((here.drawn or {})[PLACE].max())
        if last >= len(self.table):
            raise PositionError(
                f"bipe has {len(self.table)} places in a segment, was given place {last}: set "
                "max_pos, or other separators"
            )
        return self.inner.draw(here, **plan)

    def inner_ctx(self, ctx: Pass) -> Pass:
        if ctx.ids is None:
            raise ValueError(f"{self.name} needs token ids, to see where segments end: pass ids")
        real, document = ctx.key_mask, ctx.document
        ends = torch.stack([ctx.ids == one for one in self.separators]).any(0) & real
        before = ends.long().cumsum(1) - ends.long()
        begins = document.diff(dim=1, prepend=document[:, :1]) > 0
        segment = before - torch.where(begins, before, 0).cummax(1).values
        new = begins | (before.diff(dim=1, prepend=before[:, :1]) > 0)
        place = run_index(real.expand_as(new), new) - 1
        place = place.clamp(min=0)[:, ctx.pos.shape[1] - ctx.new :]
        true_pos = ctx._true_pos.expand_as(segment)
        drawn = None if ctx.drawn is None else {**ctx.drawn, PLACE: place}
        pos = torch.where(real, segment, -1)
        return Pass.of(ctx, prepared=False, pos=pos, true_pos=true_pos, drawn=drawn)

    def embed(self, x: Tensor, ctx: Pass) -> Tensor:
        ctx.check_prepared()
        return super().embed(x + embedding((ctx.drawn or {})[PLACE], self.table).to(x.dtype), ctx)
