"""All tasks of a protocol in one table: a line per encoding, places by the mean over the tasks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from statistics import fmean

from leaderboard.intervals import Stat, over_seeds
from leaderboard.ranks import ranked
from leaderboard.rows import Line, Row
from leaderboard.tables import Table, leading


def overview(tables: Sequence[Table]) -> list[Line]:
    """Best first; what has no number on some task follows, by the mean of those that it has.

    A mode follows the line of the weights that it evaluates.
    """
    by = [{row.label: row for row in table.rows} for table in tables]
    labels = dict.fromkeys(label for rows in by for label in rows)
    lines = ranked([_line(label, [rows.get(label) for rows in by]) for label in labels])
    order = {line.plain: _order(line) for line in lines if not line.mode}
    last = (True, 1.0, 0)
    return sorted(lines, key=lambda line: (order.get(line.plain, last), bool(line.mode)))


def protocols(tables: Sequence[Table]) -> list[str]:
    """Those that have runs, in the order that pages show them: decoders, then by number of runs."""
    runs = Counter(table.base for table in tables for _ in table.records)
    encoders = {table.base for table in tables if table.of_encoders}
    return sorted(runs, key=lambda base: (base in encoders, -runs[base], base))


def main_tables(tables: Sequence[Table]) -> list[Table]:
    """The leading tables of the first protocol, by task."""
    first = protocols(tables)[:1]
    return [table for table in leading(tables) if [table.base] == first]


def bare_lines(lines: Sequence[Line]) -> list[Line]:
    """Those without options of their own, in the mode that they were trained in."""
    return [line for line in lines if not line.custom and not line.mode]


def _order(line: Line) -> tuple[bool, float, int]:
    """Stable: equal means keep the order that `ranked` gave."""
    means = -1.0 if line.partial is None else line.partial
    return line.unseen is None, -means, -line.counted


def _line(label: str, rows: Sequence[Row | None]) -> Line:
    own = [row for row in rows if row is not None]
    counted = [row for row in own if row.unseen is not None]
    every = [set(dict(row.by_seed)) for row in counted]
    seeds = set.intersection(*every) if counted else set()
    by_seed = {seed: fmean(dict(row.by_seed)[seed] for row in counted) for seed in sorted(seeds)}
    means = [row.unseen.mean for row in counted if row.unseen]
    whole = len(counted) == len(rows)
    return Line(
        label=label,
        rows=tuple(rows),
        unseen=_stat(fmean(means), list(by_seed.values()), every) if whole and means else None,
        partial=fmean(means) if means else None,
        by_seed=tuple(by_seed.items()) if whole else (),
        step=max(row.step for row in own) / len(rows),
    )


def _stat(mean: float, values: Sequence[float], seeds: Sequence[set[int]]) -> Stat:
    """The mean of the tasks' means; an interval only where all tasks have the same seeds."""
    if len(values) < 2 or any(own != seeds[0] for own in seeds):
        return Stat(mean, None, None, len(values), "none")
    return over_seeds(values)
