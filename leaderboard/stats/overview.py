"""All tasks of a protocol in one table: a line per encoding, ranked by the mean over the tasks.

A task counts in the mean if at least half of the encodings that can be ranked have run it, and half
of these have learned it; an encoding is ranked if it has a number on each such task, so that ranks
compare encodings that have learned the same tasks. A task that less than a tenth have run has no
column. The baseline of a table is the token accuracy of a predictor that ignores the prompt.
"""

from bisect import bisect
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from math import log
from statistics import fmean
from typing import NamedTuple

from leaderboard.catalog import Catalog
from leaderboard.stats.intervals import Stat, over_seeds
from leaderboard.stats.ranks import ranked
from leaderboard.stats.rows import Line, Row, top
from leaderboard.stats.tables import Table, leading
from pezoo.spec import bare


def overview(tables: Sequence[Table]) -> list[Line]:
    """Return the lines, best first; those without a rank follow, by the tasks they have learned.

    Other modes and separate seeds follow the line of their encoding.
    """
    by, counts = [{row.label: row for row in table.rows} for table in tables], counting(tables)
    labels = dict.fromkeys(label for rows in by for label in rows)
    return ranked([_line(label, [rows.get(label) for rows in by], counts) for label in labels])


def counting(tables: Sequence[Table]) -> tuple[bool, ...]:
    """Return which of these tasks count in the mean."""
    return tuple(not why for why in _why_not(tables))


def heads(tables: Sequence[Table]) -> list[str]:
    """Return the tasks' names, with the reason in brackets why one does not count."""
    return [table.first.task + why for table, why in zip(tables, _why_not(tables), strict=True)]


def _why_not(tables: Sequence[Table]) -> Iterator[str]:
    """Yield why each task does not count, ` (run by 2 of 9)` or ` (2 of 9 learned)`; "" if it does.

    The numbers are those of encodings that can be ranked.
    """
    ran = [[row for row in table.rows if row.seeds and not row.set_apart] for table in tables]
    every = len({row.label for own in ran for row in own})
    for own in ran:
        n, k = len(own), sum(row.learned for row in own)
        few = f" (run by {n} of {every})" if 2 * n < every else ""
        yield few or f" ({k} of {n} learned)" * (2 * k < n)


def protocols(tables: Sequence[Table]) -> list[str]:
    """Return the protocols that have runs: decoders first, then by number of runs."""
    runs = Counter(table.base for table in tables for _ in table.records)
    encoders = {table.base for table in tables if table.of_encoders}
    return sorted(runs, key=lambda base: (base in encoders, -runs[base], base))


def ordered(tables: Sequence[Table]) -> list[Table]:
    """Return the leading tables in the order of `protocols`."""
    order = protocols(tables)
    return sorted(leading(tables), key=lambda table: order.index(table.base))


def main_tables(tables: Sequence[Table]) -> list[Table]:
    """Return the tables of the first protocol's overview, by task."""
    first = protocols(tables)[:1]
    return with_column([table for table in leading(tables) if [table.base] == first])


def with_column(tables: Sequence[Table]) -> list[Table]:
    """Return the tables whose task at least a tenth of their protocol's encodings have run."""
    ran = [{row.plain for row in table.rows} for table in tables]
    every: dict[str, set[str]] = {}
    for table, own in zip(tables, ran, strict=True):
        every[table.base] = every.get(table.base, set()) | own
    pairs = zip(tables, ran, strict=True)
    found = [table for table, own in pairs if 10 * len(own) >= len(every[table.base])]
    kept = {table.base for table in found}  # where each task has few, all stay
    return [table for table in tables if table in found or table.base not in kept]


def bare_lines(lines: Sequence[Line]) -> list[Line]:
    """Return the lines that compete for ranks; see `Row.competes`."""
    return [line for line in lines if line.competes]


def chosen(tables: Sequence[Table], catalog: Catalog) -> set[str]:
    """Return the labels of rows whose options were chosen on a task of these tables."""
    found = set()
    for table in tables:
        if known := catalog.protocols.get(table.base):
            own = known.chosen({bare(row.encoding) for row in table.rows}, table.first)
            found |= {row.label for row in table.rows if bare(row.encoding) in own}
    return found


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
        stat = over_seeds([*by_seed.values()], step=step, top=top(line.own[0].track))
    return replace(line, unseen=stat, by_seed=tuple(by_seed.items()), step=step)


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
        return constant(table, chance, task.best_constant)
    ends = [
        next((row.cells[at].ends for row in table.rows if row.cells[at].ends is not None), None)
        for at in range(len(cells))
    ]
    known = all(end is not None for end in ends) and any(ends)
    by_length = [chance + (1 - chance) * (end or 0.0) if known else chance for end in ends]
    return Baseline(by_length, _unseen(by_length, table, chance), known)


def constant(table: Table, chance: float, best: Sequence[tuple[int, float]]) -> Baseline:
    """Return the baseline of the best constant answer, by length; of chance if `best` is empty."""
    cells = table.rows[0].cells
    by_length = [between(dict(best), cell.length) if best else chance for cell in cells]
    return Baseline(by_length, _unseen(by_length, table, chance), bool(best))


def mean_baseline(baselines: Sequence[Baseline], counts: Sequence[bool]) -> float | None:
    """The mean over the tasks that count in an overview; None where one is unknown."""
    known = [one.unseen for one, counted in zip(baselines, counts, strict=True) if counted]
    numbers = [share for share in known if share is not None]
    return fmean(numbers) if numbers and len(numbers) == len(known) else None


def _unseen(by_length: list[float], table: Table, chance: float) -> float:
    cells = table.rows[0].cells
    unseen = [share for share, cell in zip(by_length, cells, strict=True) if not cell.seen]
    return fmean(unseen) if unseen else chance


def between(known: Mapping[int, float], length: int) -> float:
    """Interpolate linearly in the logarithm of the length; constant beyond the ends."""
    lengths = sorted(known)
    at = bisect(lengths, length)
    low, high = lengths[max(at - 1, 0)], lengths[min(at, len(lengths) - 1)]
    if low == high:
        return known[low]
    share = log(length / low) / log(high / low)
    return known[low] + share * (known[high] - known[low])
