"""The state of a layer of cursors between passes, which follows the model's cache."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from pezoo.cursors.gates import Seen


class Past(NamedTuple):
    """State after some tokens, for the next one."""

    state: (
        Tensor | Callable[[], Tensor]
    )  # the controller's; in training, a function that computes it
    scan: Tensor  # that of the positions, (B, C, ...)
    seen: Seen | None

    def known(self) -> Tensor:
        """Return the controller's state."""
        return self.state if isinstance(self.state, Tensor) else self.state()

    def reorder(self, rows: Tensor) -> Past:
        """Return the state of these rows (n,)."""
        state, seen = self.state, self.seen
        state = state[rows] if isinstance(state, Tensor) else lambda: self.known()[rows]
        if seen is not None:
            seen = Seen(seen.keys[rows], None if seen.mask is None else seen.mask[rows])
        return Past(state, self.scan[rows], seen)


class Mark(NamedTuple):
    """The state after the first `length` tokens."""

    length: int
    past: Past


class Memory(NamedTuple):
    """All tokens that the cursors have read, and their state before and after the last pass.

    Recurrences cannot be undone: after `crop`, the next pass reads tokens beyond the last remaining
    mark again. Cropping a whole pass costs nothing; cropping a part of it costs that pass.
    """

    x: Tensor | None = None  # (B, S, D)
    marks: tuple[Mark, ...] = ()  # at most two
    streams: tuple[tuple[Tensor, Tensor], ...] = ()  # of the last pass: each layer's e_q and e_k

    def reorder(self, rows: Tensor) -> Memory:
        """Replace row i by row rows[i]; rows (n,) may repeat and omit rows."""
        if self.x is None:
            return self
        rows = rows.to(self.x.device)
        marks = tuple(Mark(mark.length, mark.past.reorder(rows)) for mark in self.marks)
        return Memory(self.x[rows], marks)

    def crop(self, length: int) -> Memory:
        """Keep the first `length` tokens; if negative, all but the last ones."""
        if self.x is None:
            return self
        x = self.x[:, :length]
        return Memory(x, tuple(mark for mark in self.marks if mark.length <= x.shape[1]))

    def before(self, x: Tensor, length: int, reader: str) -> Memory:
        """Return the memory of the first `length` tokens, before the new ones x (B, T, D).

        Errors: ValueError if these tokens are not in memory, or belong to other rows.
        """
        rows, known = (len(x), 0) if self.x is None else self.x.shape[:2]
        if known < length or (length and rows != len(x)):
            raise ValueError(
                f"{reader} has {known} tokens of {rows} rows in memory, but ctx has {length} of "
                f"{len(x)} rows: while decoding, pass each step the memo of the step before, "
                "reordered (memo.reorder) like the rows"
            )
        return self.crop(length) if length else Memory()

    def joined(self, x: Tensor) -> Tensor:
        """Return all tokens (B, S, D), the new ones x (B, T, D) last."""
        return x if self.x is None else torch.cat([self.x, x], 1)

    def after(self, x: Tensor, past: Past, streams: tuple[tuple[Tensor, Tensor], ...]) -> Memory:
        """Return the memory after all tokens x (B, S, D) have been read."""
        return Memory(x, (*self.marks[-1:], Mark(x.shape[1], past)), streams)
