"""What stands above a filled table: budgets, remarks, and the commands that would fill it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from leaderboard.papers.cells import Cell, Filled, alone, pairs_of
from leaderboard.schema import Record
from leaderboard.scores import Score
from leaderboard.summary import PASS


def caption(filled: Filled) -> list[str]:
    """What the numbers are, the paper's budget and ours, and the remarks."""
    paper, part, cells = filled.paper, filled.part, filled.cells
    unit = "hours" if part.measure == "hours" else "points"
    there = sum(cell.ours is not None for cell in cells)
    return [
        f"{paper.authors} ({paper.year}), {part.label}, {part.place}: {part.title}.",
        f"Paper: {paper.budget}.",
        f"Ours: {budget(filled)}.",
        f"{there} of {len(cells)} cells have a number of ours; "
        + (f"diff is ours - paper, in {unit}." if compared(cells) else "the paper prints none."),
        *crossings(filled),
        *part.remarks,
        *(paper.remarks if part.measure != "hours" else ()),
    ]


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


def compared(cells: Iterable[Cell]) -> bool:
    """Whether the paper has a number for any of them."""
    return any(cell.paper is not None for cell in cells)


def budget(filled: Filled) -> str:
    """How the runs that fill a table were trained and tested; each part as the records have it."""
    name, runs = filled.protocol.name, filled.runs
    if not runs:
        none = f"no record of protocol {name} fills a cell"
        other = "of an earlier version, changed, or other options"
        count = filled.others
        return (
            f"{none}; {count} of it on these tasks have other settings ({other})" if count else none
        )
    tested = [score for run in runs for score in _tested(filled, run) if score.count]
    trained = {run.config.train.lengths for run in runs}
    first = ", short ones first" if any(run.config.train.curriculum for run in runs) else ""
    machines = f", on {_machines(runs)}" if filled.part.measure == "hours" else ""
    return (
        f"protocol {name}, {_numbers({run.config.train.steps for run in runs})} steps, "
        f"batch {_numbers({run.config.train.batch for run in runs})}, "
        f"lengths {' or '.join(f'{low} to {high}' for low, high in sorted(trained))}{first}; "
        f"seeds {_numbers({run.seed for run in runs})} "
        f"at the rates {_numbers({run.config.train.lr for run in runs})}; "
        f"tested on {_span(score.count or 0 for score in tested)} samples of every length of "
        f"{_numbers({score.length for score in tested})}; "
        f"{_span(len(cell.runs) for cell in filled.cells if cell.runs)} runs per cell{machines}"
    )


def _tested(filled: Filled, run: Record) -> list[Score]:
    """The scores of a run that count."""
    if filled.part.measure == "pairs":
        return [score for pair, score in pairs_of(run).items() if max(pair) > run.train_length]
    lengths = filled.lengths or alone(filled.part, run)
    return [
        score
        for score in run.scores.last
        if (not score.seen if lengths is None else score.length in lengths)
    ]


def _machines(runs: Iterable[Record]) -> str:
    envs = [run.env for run in runs]
    return " and ".join(sorted({e.cpu or "cpu" if e.device == "cpu" else e.device for e in envs}))


def requests(filled: Filled) -> Iterator[str]:
    """What `pezoo bench` takes for a table beside the protocol; runs of other settings apart."""
    train, test = filled.protocol.train, filled.protocol.eval
    sets = ""
    if filled.part.along:
        sets = f" --set eval.curve_lengths={_as_typed(test.curve_lengths or ())}"
    kinds = dict.fromkeys((column.long, column.unaligned) for column in filled.part.columns)
    for long, unaligned in sorted(kinds):
        columns = [c for c in filled.part.columns if (c.long, c.unaligned) == (long, unaligned)]
        tasks = ",".join(dict.fromkeys(columns[0].task(cell.task) for cell in filled.cells))
        named = dict.fromkeys(one for column in columns for one in column.encodings)
        encodings = ",".join(filled.paper.texts(one)[0] for one in named)
        more = f" --set 'train.lengths=[{train.lengths[0]},{max(test.lengths)}]'" if long else ""
        if named:
            yield f'--pe "{encodings}" --task "{tasks}"{sets}{more}'


def _as_typed(lengths: Sequence[int]) -> str:
    """
    >>> _as_typed([41, 42, 43]), _as_typed([41, 60])
    ('41-43', "'[41,60]'")
    """
    whole = list(lengths) == list(range(min(lengths), max(lengths) + 1))
    return f"{min(lengths)}-{max(lengths)}" if whole else f"'[{','.join(map(str, lengths))}]'"


def _numbers(values: Iterable[float]) -> str:
    """
    >>> _numbers([0.001, 2000, 3])
    '0.001, 3, 2,000'
    >>> _numbers(range(41, 501))
    '41-500'
    """
    ordered = sorted(values)
    if len(ordered) > 2 and ordered == list(range(int(ordered[0]), int(ordered[-1]) + 1)):
        return f"{ordered[0]}-{ordered[-1]}"
    return ", ".join(f"{value:,}" for value in ordered) or "none"


def _span(values: Iterable[int]) -> str:
    ordered = sorted(values) or [0]
    low, high = ordered[0], ordered[-1]
    return str(low) if low == high else f"{low} to {high}"
