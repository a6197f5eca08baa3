"""What a guess that ignores the prompt gets right: the score that a model has to beat."""

from __future__ import annotations

from bisect import bisect
from collections.abc import Mapping, Sequence
from math import log
from statistics import fmean
from typing import NamedTuple

from leaderboard.catalog import Catalog
from leaderboard.stats.tables import Table


class Guess(NamedTuple):
    """Shares of tokens: by length, and over unseen lengths; `knows`: it knows the length."""

    by_length: list[float] | None
    unseen: float | None
    knows: bool


def guess(table: Table, catalog: Catalog) -> Guess:
    """The best constant at every place where the task tells it, else any token of the answer.

    Where records say how many tokens end an answer, the guess is given these.
    """
    chance, cells = table.first.chance, table.rows[0].cells
    if chance is None:
        return Guess(None, None, False)
    task = catalog.tasks.get(table.first.task)
    if task and task.best_constant and table.of_encoders:
        by_length = [_between(dict(task.best_constant), cell.length) for cell in cells]
        return Guess(by_length, _unseen(by_length, table, chance), True)
    ends = [
        next((row.cells[at].ends for row in table.rows if row.cells[at].ends is not None), None)
        for at in range(len(cells))
    ]
    known = all(end is not None for end in ends) and any(ends)
    by_length = [chance + (1 - chance) * (end or 0.0) if known else chance for end in ends]
    return Guess(by_length, _unseen(by_length, table, chance), known)


def mean_guess(guesses: Sequence[Guess], counts: Sequence[bool]) -> float | None:
    """Over the tasks that count in the mean of an overview; None where one is unknown."""
    known = [told.unseen for told, counted in zip(guesses, counts, strict=True) if counted]
    numbers = [share for share in known if share is not None]
    return fmean(numbers) if numbers and len(numbers) == len(known) else None


def _unseen(by_length: list[float], table: Table, chance: float) -> float:
    cells = table.rows[0].cells
    unseen = [share for share, cell in zip(by_length, cells, strict=True) if not cell.seen]
    return fmean(unseen) if unseen else chance


def _between(known: Mapping[int, float], length: int) -> float:
    """Along straight lines over the logarithm of the length; beyond the ends, the nearest."""
    lengths = sorted(known)
    at = bisect(lengths, length)
    low, high = lengths[max(at - 1, 0)], lengths[min(at, len(lengths) - 1)]
    if low == high:
        return known[low]
    share = log(length / low) / log(high / low)
    return known[low] + share * (known[high] - known[low])
