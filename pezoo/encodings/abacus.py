"""A learned vector per place of a digit in its number."""

from typing import Unpack

import torch
from torch import Tensor

from pezoo.base import Context, Shape, Sizes
from pezoo.encodings.coupled import Coupled
from pezoo.functional import run_index
from pezoo.registry import register


@register("abacus")
class Abacus(Coupled):
    """Add a learned vector per place of a digit in its number, counted from 1.

    Formula: x + table[s + k] for the s-th digit of a number, x + table[0] for other tokens. In
    training k is uniform over 0..max_k, one for the whole batch; at evaluation it is 0.

    Example: 907+81= has s = 1 2 3 0 1 2 0. Digits of equal significance share s where numbers are
    written with the least significant digit first.

    Shapes: ctx.ids (B, S); x (B, T, D) -> the same; table (max_pos + 1, D), at the start
    N(0, std^2). A number ends at a token that is not a digit, and where a document ends.
    Options: digits, the ids of the digits, by default 0..9, as in the tasks of this project; max_k;
    max_pos, the largest s + k, to which k is limited; std.
    Errors: ValueError without token ids, and for digits that are empty; PositionError for numbers
    of more than max_pos digits.

    Paper: McLeish et al. 2024, "Transformers Can Do Arithmetic with the Right Embeddings". The
    authors' code has max_k = 99 and 1024 rows; its table starts as its other embeddings do.
    """

    summary = "a learned vector per place of a digit in its number"
    paper = "McLeish et al. 2024"
    reports = "adds numbers six times as long as in training"
    reads = "text"
    needs_slots = False
    relative = True

    def __init__(
        self,
        shape: Shape | None = None,
        *,
        digits: tuple[int, ...] = tuple(range(10)),
        max_k: int = 99,
        max_pos: int = 1023,
        std: float = 1.0,
        **sizes: Unpack[Sizes],
    ) -> None:
        super().__init__(shape, max_pos=max_pos, std=std, **sizes)
        if not digits or max_k < 0:
            raise ValueError(
                f"digits needs an id, and max_k at least 0; got {digits} and max_k={max_k}"
            )
        self.digits, self.max_k = digits, max_k

    def slots(self, ctx: Context) -> Tensor:
        if ctx.ids is None:
            raise ValueError(f"{self.name} needs token ids, to see which are digits: pass ids")
        digit = torch.stack([ctx.ids == digit for digit in self.digits]).any(0) & ctx.key_mask
        document = ctx.document
        begins = document[:, 1:] > document[:, :-1]
        begins = torch.cat([torch.ones_like(document[:, :1], dtype=torch.bool), begins], 1)
        return run_index(digit, (~digit & ctx.key_mask) | begins)

    def starts(self, top: Tensor, ctx: Context, generator: torch.Generator | None) -> Tensor:
        size = min(self.max_k, self.max_pos - ctx.ask(top.max())) + 1
        return torch.randint(size, (), generator=generator, device="cpu")
