"""All tasks of a protocol in one table: a line per encoding, ranked by the mean over the tasks.

A task counts in the mean if at least half of the encodings without typed options have run it; an
encoding is ranked if it has a number on each such task.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from statistics import fmean

from leaderboard.stats.intervals import Stat, over_seeds
from leaderboard.stats.ranks import ranked
from leaderboard.stats.rows import Line, Row
from leaderboard.stats.tables import Table, leading


def overview(tables: Sequence[Table]) -> list[Line]:
    """Return the lines, best first; those without a rank follow, by their number of tasks.

    Other modes and separate seeds follow the line of their encoding.
    """
    by, counts = [{row.label: row for row in table.rows} for table in tables], counting(tables)
    labels = dict.fromkeys(label for rows in by for label in rows)
    lines = ranked([_line(label, [rows.get(label) for rows in by], counts) for label in labels])
    plain = sorted((line for line in lines if not line.aside), key=_order)
    place = {line.plain: at for at, line in enumerate(plain)}
    return sorted(lines, key=lambda line: (place.get(line.plain, len(plain)), bool(line.aside)))


def counting(tables: Sequence[Table]) -> tuple[bool, ...]:
    """Return which of these tasks count in the mean."""
    ran = _ran(tables)
    every = set().union(*ran)
    return tuple(2 * len(own) >= len(every) for own in ran)


def heads(tables: Sequence[Table]) -> list[str]:
    """Return the tasks' names, with `(2 of 9 ran)` for one that does not count."""
    ran = _ran(tables)
    every = len(set().union(*ran))
    return [
        table.first.task + ("" if counts else f" ({len(own)} of {every} ran)")
        for table, own, counts in zip(tables, ran, counting(tables), strict=True)
    ]


def _ran(tables: Sequence[Table]) -> list[set[str]]:
    """Return, by task, the encodings without typed options that have a finished run."""
    return [{row.label for row in table.rows if row.seeds and row.competes} for table in tables]


def protocols(tables: Sequence[Table]) -> list[str]:
    """Return the protocols that have runs: decoders first, then by number of runs."""
    runs = Counter(table.base for table in tables for _ in table.records)
    encoders = {table.base for table in tables if table.of_encoders}
    return sorted(runs, key=lambda base: (base in encoders, -runs[base], base))


def main_tables(tables: Sequence[Table]) -> list[Table]:
    """Return the leading tables of the first protocol, by task."""
    first = protocols(tables)[:1]
    return [table for table in leading(tables) if [table.base] == first]


def bare_lines(lines: Sequence[Line]) -> list[Line]:
    """Return the lines that compete for ranks; see `Row.competes`."""
    return [line for line in lines if line.competes]


def _order(line: Line) -> tuple[bool, int, str]:
    """Stable: lines with a place keep the order that `ranked` gave."""
    return (False, 0, "") if line.unseen else (True, -line.counted, line.label)


def _line(label: str, rows: Sequence[Row | None], counts: tuple[bool, ...]) -> Line:
    """Make a line; `unseen` is over the seeds that all tasks share if there are several.

    Otherwise it is the mean of the tasks' means, without an interval.
    """
    line = Line(label=label, rows=tuple(rows), counts=counts, unseen=None, by_seed=(), step=0.0)
    if not any(counts) or line.counted < sum(counts):
        return line
    means = [row.unseen.mean for row in line.main if row.unseen]
    own = [dict(row.by_seed) for row in line.main]
    shared = set(own[0]).intersection(*own)
    by_seed = {seed: fmean(one[seed] for one in own) for seed in sorted(shared)}
    step = max(row.step for row in line.main) / len(own)
    stat = Stat(fmean(means), None, None, len(by_seed), "none")
    if len(by_seed) > 1:
        stat = over_seeds(list(by_seed.values()), step=step)
    return replace(line, unseen=stat, by_seed=tuple(by_seed.items()), step=step)
