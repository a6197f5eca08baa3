"""A learned vector per position that the task gives to a token."""

from typing import Unpack

import torch
from torch import Tensor, nn

from pezoo.base import Context, Encoding, Pass, Plan, PositionError, Shape, Sizes
from pezoo.registry import register


@register("coupled")
class Coupled(Encoding):
    """Add a learned vector per slot, which tokens of equal significance share.

    Formula: x + table[s + k] where the slot s is above 0, x + table[0] where it is 0. In training k
    is uniform over 0..max_pos - max s, for each row of the batch; at evaluation it is 0.

    Example: in $356+940=2070 all digits of 10^0 (3, 9, 2) have slot 2, those of 10^1 slot 3, "+"
    and "=" slot 1 and "$" slot 0. With k = 40 in training, these are rows 42, 43, 41 and 0.

    Shapes: ctx.slots (B|1, S), from the task; x (B, T, D) -> the same; table (max_pos + 1, D), at
    the start N(0, std^2).
    Options: max_pos, the largest s + k, by default 127, our choice: it has to hold the slots of the
    longest test. std, by default 1 as in the authors' code, where token embeddings have the same.
    Errors: ValueError without slots and for a max_pos below 1; PositionError for a slot above
    max_pos.

    Paper: Cho et al. 2024, "Position Coupling", Section 3, and the authors' code.
    """

    summary = "a learned vector per position that the task gives"
    paper = "Cho et al. 2024"
    reports = "adds numbers 6.7 times as long as in training"
    reads = "slots of the task"
    needs_slots = True

    def __init__(
        self,
        shape: Shape | None = None,
        *,
        max_pos: int = 127,
        std: float = 1.0,
        **sizes: Unpack[Sizes],
    ) -> None:
        super().__init__(shape, **sizes)
        if max_pos < 1 or std < 0:
            raise ValueError(f"max_pos must be at least 1 and std 0, got {max_pos} and {std}")
        self.max_pos = max_pos
        self.table = nn.Parameter(std * torch.randn(max_pos + 1, self.shape.d_model))

    def slots(self, ctx: Context) -> Tensor:
        """Return the slots (B|1, S) before k is added, 0 at padding."""
        return ctx.slots_for(self.name).clamp(min=0) * ctx.key_mask

    def starts(self, top: Tensor, ctx: Context, generator: torch.Generator | None) -> Tensor:
        """Draw k, (B, T), for the largest slot of each row, (B|1,)."""
        size = (self.max_pos - top + 1)[:, None]
        share = torch.rand(ctx.batch, 1, generator=generator, device="cpu", dtype=torch.float64)
        return (share * size.cpu()).long().expand(-1, ctx.new)

    def draw(self, ctx: Context, **plan: Unpack[Plan]) -> dict[str, Tensor]:
        drawn = super().draw(ctx, **plan)
        top = self.slots(ctx).amax(1)
        if (last := ctx.ask(top.max())) > self.max_pos:
            raise PositionError(
                f"{self.name}(max_pos={self.max_pos}) represents slots 0..{self.max_pos}, was "
                f"given {last}: set max_pos"
            )
        if self.training:
            drawn[f"{self.name}.start"] = self.starts(top, ctx, plan.get("generator"))
        return drawn

    def embed(self, x: Tensor, ctx: Pass) -> Tensor:
        ctx.check_prepared()
        row = self.slots(ctx)[:, ctx.pos.shape[1] - ctx.new :]
        start = (ctx.drawn or {}).get(f"{self.name}.start")
        if start is not None:
            row = torch.where(row > 0, row + start, 0)
        return x + nn.functional.embedding(row, self.table).to(x.dtype)
