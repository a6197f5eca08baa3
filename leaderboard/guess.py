"""What a guess that ignores the prompt gets right: the score that a model has to beat."""

from __future__ import annotations

from statistics import fmean
from typing import NamedTuple

from leaderboard.tables import Table


class Guess(NamedTuple):
    """Shares of tokens: by length, and over unseen lengths; `ends`: it knows the length."""

    by_length: list[float] | None
    unseen: float | None
    ends: bool


def guess(table: Table) -> Guess:
    """Where records say how many tokens end an answer, the guess is given these."""
    chance, cells = table.first.chance, table.rows[0].cells
    if chance is None:
        return Guess(None, None, False)
    ends = [
        next((row.cells[at].ends for row in table.rows if row.cells[at].ends is not None), None)
        for at in range(len(cells))
    ]
    known = all(end is not None for end in ends) and any(ends)
    by_length = [chance + (1 - chance) * (end or 0.0) if known else chance for end in ends]
    unseen = [share for share, cell in zip(by_length, cells, strict=True) if not cell.seen]
    return Guess(by_length, fmean(unseen) if unseen else chance, known)
