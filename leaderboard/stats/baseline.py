"""The baseline of a table: token accuracy of a predictor that ignores the prompt."""

from __future__ import annotations

from bisect import bisect
from collections.abc import Mapping, Sequence
from math import log
from statistics import fmean
from typing import NamedTuple

from leaderboard.catalog import Catalog
from leaderboard.stats.tables import Table


class Baseline(NamedTuple):
    """Token accuracy by length and over unseen lengths; `knows`: the length is known to it."""

    by_length: list[float] | None
    unseen: float | None
    knows: bool


def baseline(table: Table, catalog: Catalog) -> Baseline:
    """The best constant answer where the task declares it, else a random token of the answer.

    Where records say how many tokens end an answer, the baseline gets these right.
    """
    chance, cells = table.first.chance, table.rows[0].cells
    if chance is None:
        return Baseline(None, None, False)
    task = catalog.tasks.get(table.first.task)
    if task and task.best_constant and table.of_encoders:
        by_length = [_between(dict(task.best_constant), cell.length) for cell in cells]
        return Baseline(by_length, _unseen(by_length, table, chance), True)
    ends = [
        next((row.cells[at].ends for row in table.rows if row.cells[at].ends is not None), None)
        for at in range(len(cells))
    ]
    known = all(end is not None for end in ends) and any(ends)
    by_length = [chance + (1 - chance) * (end or 0.0) if known else chance for end in ends]
    return Baseline(by_length, _unseen(by_length, table, chance), known)


def mean_baseline(baselines: Sequence[Baseline], counts: Sequence[bool]) -> float | None:
    """The mean over the tasks that count in an overview; None where one is unknown."""
    known = [one.unseen for one, counted in zip(baselines, counts, strict=True) if counted]
    numbers = [share for share in known if share is not None]
    return fmean(numbers) if numbers and len(numbers) == len(known) else None


def _unseen(by_length: list[float], table: Table, chance: float) -> float:
    cells = table.rows[0].cells
    unseen = [share for share, cell in zip(by_length, cells, strict=True) if not cell.seen]
    return fmean(unseen) if unseen else chance


def _between(known: Mapping[int, float], length: int) -> float:
    """Interpolate linearly in the logarithm of the length; constant beyond the ends."""
    lengths = sorted(known)
    at = bisect(lengths, length)
    low, high = lengths[max(at - 1, 0)], lengths[min(at, len(lengths) - 1)]
    if low == high:
        return known[low]
    share = log(length / low) / log(high / low)
    return known[low] + share * (known[high] - known[low])
