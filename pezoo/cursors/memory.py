"""What a layer of cursors keeps between passes. It follows the model's cache."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from pezoo.cursors.copying import Seen


class Past(NamedTuple):
    """What the next token needs of those before it."""

    state: Tensor | Callable[[], Tensor]  # the controller's; in training, how to get it
    scans: tuple[Tensor, ...]
    seen: Seen | None

    def known(self) -> Tensor:
        """The controller's state."""
        return self.state if isinstance(self.state, Tensor) else self.state()

    def reorder(self, rows: Tensor) -> Past:
        """Of these rows (n,)."""
        state, seen = self.state, self.seen
        state = state[rows] if isinstance(state, Tensor) else lambda: self.known()[rows]
        if seen is not None:
            seen = Seen(seen.keys[rows], None if seen.mask is None else seen.mask[rows])
        return Past(state, tuple(x[rows] for x in self.scans), seen)


class Mark(NamedTuple):
    """What is known after the first `length` tokens."""

    length: int
    past: Past


class Memory(NamedTuple):
    """Every token that the cursors have read, and what they knew before and after the last pass.

    Recurrences cannot be undone: after `crop`, tokens beyond the last mark that is left are read
    again, in the next pass. A pass that is taken back costs nothing; one token less of it costs
    that pass.
    """

    x: Tensor | None = None  # (B, S, D)
    marks: tuple[Mark, ...] = ()  # at most two
    streams: tuple[tuple[Tensor, Tensor], ...] = ()  # of the last pass: each layer's e_q and e_k

    def reorder(self, rows: Tensor) -> Memory:
        """Row i is what row rows[i] was; rows (n,) may repeat rows and leave some out."""
        if self.x is None:
            return self
        rows = rows.to(self.x.device)
        marks = tuple(Mark(mark.length, mark.past.reorder(rows)) for mark in self.marks)
        return Memory(self.x[rows], marks)

    def crop(self, length: int) -> Memory:
        """The first `length` tokens; a negative length leaves out so many at the end."""
        if self.x is None:
            return self
        x = self.x[:, :length]
        return Memory(x, tuple(mark for mark in self.marks if mark.length <= x.shape[1]))

    def before(self, x: Tensor, length: int, reader: str) -> Memory:
        """What is known when the new tokens x (B, T, D) come after the first `length`.

        Errors: ValueError where these are not in memory, or are those of other rows.
        """
        rows, known = (len(x), 0) if self.x is None else self.x.shape[:2]
        if known < length or (length and rows != len(x)):
            raise ValueError(
                f"{reader} has {known} tokens of {rows} rows in memory, and was given {length} "
                f"tokens before the new ones of {len(x)} rows: while decoding, give every step "
                "the memo of the step before, reordered (memo.reorder) as the rows are"
            )
        return self.crop(length) if length else Memory()

    def joined(self, x: Tensor) -> Tensor:
        """(B, S, D) all tokens up to the new ones x (B, T, D)."""
        return x if self.x is None else torch.cat([self.x, x], 1)

    def after(self, x: Tensor, past: Past, streams: tuple[tuple[Tensor, Tensor], ...]) -> Memory:
        """Once all tokens x (B, S, D) have been read."""
        return Memory(x, (*self.marks[-1:], Mark(x.shape[1], past)), streams)
