"""What stands above a filled table, and the commands that would fill its empty cells."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from itertools import chain

from leaderboard.papers.budget import budgets
from leaderboard.papers.cells import Cell, Filled
from leaderboard.record.schema import Record
from leaderboard.stats.summary import PASS


def caption(filled: Filled) -> list[str]:
    """What the numbers are, the paper's budget and ours, and the remarks."""
    paper, part, cells = filled.paper, filled.part, filled.cells
    there = sum(cell.ours is not None for cell in cells)
    return [
        f"{paper.authors} ({paper.year}), {part.label}, {part.place}: {part.title}.",
        *budgets(filled),
        f"{there} of {len(cells)} cells have a number of ours; {_difference(cells)}.",
        *crossings(filled),
        *part.remarks,
        *(paper.remarks if part.measure != "hours" else ()),
    ]


def _difference(cells: Sequence[Cell]) -> str:
    if all(cell.paper is None for cell in cells):
        return "the paper prints none"
    if not any(cell.comparable for cell in cells):
        return "as budgets and machines differ, no difference from the paper's is taken"
    return "diff is ours - paper, in points"


def crossings(filled: Filled) -> list[str]:
    """Of a figure over training: when each run that fills a cell first reached PASS."""
    runs = [(cell.column, run) for cell in filled.cells for run in cell.used]
    measure = filled.part.measure
    return [_crossing(column, run, measure) for column, run in runs if filled.part.along]


def _crossing(column: str, run: Record, measure: str) -> str:
    when, speed = "never", run.cost.steps_per_second
    for point in run.learning:
        if (getattr(point, measure) or 0.0) >= PASS:
            when = f"after {point.seconds or 0:,.0f} s and {point.step:,} steps"
            break
    fast = f"; {speed:,.1f} steps per second" if speed else ""
    return f"{column}, seed {run.seed}: {100 * PASS:.0f} % {when}{fast}."


def requests(filled: Filled) -> Iterator[str]:
    """What `pezoo bench` takes, beside the protocol, for the cells without a run.

    Runs of other settings are apart, and so are encodings that lack other tasks; of more than two
    such parts it is one request for all of their encodings and tasks.
    """
    train, test = filled.protocol.train, filled.protocol.eval
    sets = ""
    if filled.part.along:
        sets = f" --set eval.curve_lengths={_as_typed(test.curve_lengths or ())}"
    kinds = {(column.long, column.unaligned) for column in filled.part.columns}
    for long, unaligned in sorted(kinds):
        parts: dict[tuple[str, ...], list[str]] = defaultdict(list)
        for column in filled.part.columns:
            rows = [cell.task for cell in filled.cells if cell.column == column.name and cell.empty]
            if rows and (column.long, column.unaligned) == (long, unaligned):
                parts[tuple(dict.fromkeys(map(column.task, rows)))] += column.encodings
        if len(parts) > 2:
            parts = {tuple(dict.fromkeys(chain(*parts))): [*chain(*parts.values())]}
        more = f" --set 'train.lengths=[{train.lengths[0]},{max(test.lengths)}]'" if long else ""
        for tasks, encodings in parts.items():
            named = ",".join(dict.fromkeys(filled.paper.texts(one)[0] for one in encodings))
            yield f'--pe "{named}" --task "{",".join(tasks)}"{sets}{more}'


def _as_typed(lengths: Sequence[int]) -> str:
    """
    >>> _as_typed([41, 42, 43]), _as_typed([41, 60])
    ('41-43', "'[41,60]'")
    """
    whole = list(lengths) == list(range(min(lengths), max(lengths) + 1))
    return f"{min(lengths)}-{max(lengths)}" if whole else f"'[{','.join(map(str, lengths))}]'"
