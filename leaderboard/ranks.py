"""Places within one table, and how sure they are."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from leaderboard.intervals import Stat, paired

if TYPE_CHECKING:
    from leaderboard.summary import Row


def ranked(rows: Sequence[Row]) -> list[Row]:
    """The rows, best first, with their places.

    A place counts the rows with a higher mean. The range of places counts only those whose paired
    difference has an interval beyond 0; without a second shared seed nothing is beyond 0. The
    intervals are not widened for the number of pairs.
    """

    def placed(row: Row) -> Row:
        if row.unseen is None:
            return row
        rivals = [r for r in rows if r.unseen is not None and r is not row and not r.typed]
        mean = round(row.unseen.mean, 9)
        rank = 1 + sum(round(r.unseen.mean, 9) > mean for r in rivals if r.unseen)
        signs = [sign(difference(row, rival)) for rival in rivals]
        worst = 1 + len(rivals) - signs.count(1)
        return replace(row, rank=rank, ranks=(1 + signs.count(-1), worst))

    return sorted(map(placed, rows), key=_order)


def difference(first: Row, second: Row) -> Stat | None:
    """first - second in unseen mean, paired by seed; None without two shared seeds."""
    return paired(dict(first.by_seed), dict(second.by_seed))


def sign(stat: Stat | None) -> int:
    """1 or -1 where the interval lies on one side of 0, else 0: not distinguishable."""
    if stat is None or stat.low is None or stat.high is None:
        return 0
    return 1 if stat.low > 0 else -1 if stat.high < 0 else 0


def _order(row: Row) -> tuple[object, ...]:
    mean = round(row.unseen.mean, 9) if row.unseen else -1.0
    return -mean, -(row.reach or 0), row.label
