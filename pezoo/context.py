"""What an encoding may know about the tokens in front of it, and where it draws from.

Shape letters are those of `pezoo.base`, which has this as part of the interface.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import pad

from pezoo.vmap import for_each


@dataclass(frozen=True)
class Context:
    """Everything an encoding may know about the tokens in front of it.

    pos        (B|1, S) int64. The last T belong to the queries. -1 marks padding: no token.
    ids        (B, S) token ids, for encodings that read the text (or None).
    x          (B, T, D) input of the layer about to run; in `prepare` the token embeddings.
    layer      index of that layer, from 0.
    n_new      T; None means that all S tokens are new.
    scale      (B|1,) the instance scale n, for encodings with a scale hint (or None).
    memo       what the encoding carries through a forward pass and through decoding.
    total      the length planned for the whole sequence while decoding; None means S.
    generator  where random encodings draw from; None means torch's default generator.
    distances  (L,) a table that replaces the distance d by sign(d) distances[|d|] (or None).
    progress   the share of training that is done, 0 to 1, for what changes with it (or None).
    mode       one of the encoding's own `modes`, another way to run trained weights (or None).
    part       (first, of): these B rows are those from `first` on of a batch of `of` rows, which
               is computed in parts. None: this is the whole batch.
    padding    so many columns on the right are padding: they repeat their row's last position,
               and nobody reads what is computed for them.
    asked      so many of the last columns are all that the last layer was asked for (or None).
    dropout    where the model's dropout draws from; None means torch's default generator.
    members    the contexts of several models that run as one under torch.func.vmap (or None).

    What is drawn at random has to be that of the whole batch without such padding, and that of each
    member alone; see `drawn`, and `each` for a draw that depends on the number of tokens.
    Errors: ValueError for positions that are not two-dimensional or not whole numbers.
    """

    pos: Tensor
    ids: Tensor | None = None
    x: Tensor | None = None
    layer: int = 0
    n_new: int | None = None
    scale: Tensor | None = None
    memo: dict[str, Any] = field(default_factory=dict)
    total: int | None = None
    generator: torch.Generator | None = None
    distances: Tensor | None = None
    progress: float | None = None
    mode: str | None = None
    part: tuple[int, int] | None = None
    padding: int = 0
    asked: int | None = None
    dropout: torch.Generator | None = None
    members: Members | None = None

    def __post_init__(self) -> None:
        if self.pos.dim() != 2 or self.pos.is_floating_point():
            raise ValueError(
                "pos must hold whole numbers, (1, S) or (B, S), such as torch.arange(10)[None]; "
                f"was given {tuple(self.pos.shape)} of {self.pos.dtype}"
            )

    def drawn(
        self,
        draw: Callable[[tuple[int, ...], Context], Tensor],
        shape: tuple[int, ...],
        final: bool = False,
    ) -> Tensor:
        """Random numbers for x of `shape` (B, T, ...), by draw(size, ctx) for the whole batch.

        The size has all rows and no padding on the right; `final` says that these are columns of
        the last layer, and leaves out those not asked for. Where nothing is drawn, numbers are 0.

        >>> ctx = Context(torch.arange(4)[None], part=(1, 2), padding=1, asked=3)
        >>> ctx.drawn(lambda size, ctx: torch.ones(size), (1, 4), final=True)
        tensor([[0., 1., 1., 0.]])
        """

        def numbers(one: Context) -> Tensor:
            first, of = one.part or (0, shape[0])
            skip = shape[1] - one.asked if final and one.asked is not None else 0
            columns = shape[1] - skip - one.padding
            found = draw((of, columns, *shape[2:]), one)[first : first + shape[0]]
            if not (skip or one.padding):
                return found
            return pad(found, (0, 0) * (len(shape) - 2) + (skip, one.padding))

        return self.each(numbers)

    def each(self, draw: Callable[[Context], Tensor]) -> Tensor:
        """draw(ctx); of several models each has its own draw, and its own ctx."""
        return draw(self) if self.members is None else self.members.each(draw)

    def scale_for(self, reader: str) -> Tensor:
        """The scale (B|1,), which an encoding reads. Errors: ValueError when there is none."""
        if self.scale is None:
            raise ValueError(
                f"{reader} reads the scale of the instance: set ctx.scale, (B,) or (1,)"
            )
        return self.scale

    @property
    def models(self) -> Sequence[Context]:
        """This context, or those of the members: to ask for values, as int() and bool() do."""
        return (self,) if self.members is None else self.members.contexts

    @property
    def length(self) -> int:
        """How many tokens there are so far, S, without padding on the right."""
        if self.members is not None:
            raise ValueError("lengths differ between the members of a stack: ask within ctx.each")
        return self.pos.shape[1] - self.padding

    @property
    def new(self) -> int:
        """T, the number of new tokens."""
        return self.pos.shape[1] if self.n_new is None else self.n_new

    @property
    def query_pos(self) -> Tensor:
        """(B|1, T) positions of the queries."""
        return self.pos[:, self.pos.shape[1] - self.new :]

    @property
    def key_mask(self) -> Tensor:
        """(B|1, S) bool, True where a token is."""
        return self.pos >= 0

    def distance(self) -> Tensor:
        """(B|1, T, S) int64: i - j for query position i and key position j."""
        d = self.query_pos[:, :, None] - self.pos[:, None, :]
        if self.distances is None:
            return d
        # Padding lies outside the table; what it reads there is masked by attention.
        index = d.abs().clamp(max=self.distances.shape[0] - 1)
        return d.sign() * self.distances[index]

    def at(self, layer: int, x: Tensor) -> Context:
        """The same context before layer `layer`, whose input is x (B, T, D)."""
        return replace(self, layer=layer, x=x)


class Members(NamedTuple):
    """Several models that run as one: what is each one's own."""

    contexts: Sequence[Context]  # pos, padding, asked, and the generators
    number: Tensor  # which member this is, (): one number for each under vmap

    def each(self, draw: Callable[[Context], Tensor]) -> Tensor:
        """draw(ctx) of every member, outside of vmap."""
        return for_each(lambda number: draw(self.contexts[int(number)]), self.number)
