"""A filled table as text: for a terminal, for Markdown, for a spreadsheet and as data."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from textwrap import wrap
from typing import Any

from tabulate import tabulate

from leaderboard.escape import csv_text, markdown_text
from leaderboard.papers.cells import NO_RUN, Cell, Filled
from leaderboard.schema import Record
from leaderboard.summary import PASS

MISSING = "-"
PARTS = ("ours", "paper", "diff")


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
    """Of a figure over training time: when each run that fills a cell first reached PASS."""
    runs = [(cell.column, run) for cell in filled.cells for run in cell.used]
    return [_crossing(column, run) for column, run in runs if filled.part.measure == "test_token"]


def _crossing(column: str, run: Record) -> str:
    first = next((point for point in run.learning if (point.test_token or 0.0) >= PASS), None)
    when = (
        "never" if first is None else f"after {first.seconds or 0:,.0f} s and {first.step:,} steps"
    )
    speed = run.cost.steps_per_second
    return f"{column}, seed {run.seed}: {100 * PASS:.0f} % {when}" + (
        f"; {speed:,.1f} steps per second." if speed else "."
    )


def compared(cells: Iterable[Cell]) -> bool:
    """Whether the paper has a number for any of them."""
    return any(cell.paper is not None for cell in cells)


def budget(filled: Filled) -> str:
    """How the runs that fill a table were trained and tested; each part as the records have it."""
    name, runs = filled.protocol.name, filled.runs
    if not runs:
        return f"no record of protocol {name} fills a cell"
    tested = [
        score
        for score in (score for run in runs for score in run.scores.last if score.count)
        if (not score.seen if filled.lengths is None else score.length in filled.lengths)
    ]
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


def _machines(runs: Iterable[Record]) -> str:
    envs = [run.env for run in runs]
    return " and ".join(sorted({e.cpu or "cpu" if e.device == "cpu" else e.device for e in envs}))


def requests(filled: Filled) -> Iterator[str]:
    """What `pezoo bench` takes for a table beside the protocol; runs that are long apart."""
    train, test = filled.protocol.train, filled.protocol.eval
    sets = ""
    if filled.part.measure == "test_token":
        sets = f" --set eval.curve_lengths={_as_typed(test.curve_lengths or ())}"
    tasks = ",".join(dict.fromkeys(cell.task for cell in filled.cells))
    for long in (False, True):
        columns = [column for column in filled.part.columns if column.long == long]
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


def as_text(filled: Filled, width: int) -> str:
    """Blocks of columns that fit into `width` characters, at least one column each."""
    lines = [part for line in caption(filled) for part in wrap(line, min(width, 100))]
    for block in _blocks(filled, width):
        lines += ["", *block]
    return "\n".join(lines) + "\n"


def as_markdown(filled: Filled) -> str:
    """One table whose cells are `ours (paper, difference)`."""
    columns = [markdown_text(column.name) for column in filled.part.columns]
    rows = [
        [
            own[0].group,
            markdown_text(task),
            *(_markdown_cell(cell, filled.part.digits) for cell in own),
        ]
        for task, own in _rows(filled)
    ]
    text = tabulate(rows, ["", "task", *columns], tablefmt="pipe", disable_numparse=True)
    return "\n\n".join([*map(markdown_text, caption(filled)), text]) + "\n"


def as_csv(filled: Filled) -> str:
    """One line per cell."""
    out, lines = io.StringIO(), [_data(cell) for cell in filled.cells]
    writer = csv.DictWriter(out, list(lines[0]), lineterminator="\n")
    writer.writeheader()
    for line in lines:
        parts = {key: " ".join(map(str, v)) for key, v in line.items() if isinstance(v, list)}
        flat = line | parts
        writer.writerow({k: csv_text(v) if isinstance(v, str) else v for k, v in flat.items()})
    return out.getvalue()


def as_json(filled: Filled) -> str:
    """The caption's facts and every cell with the runs that it comes from."""
    data = {
        "paper": filled.paper.name,
        "part": filled.part.label,
        "protocol": filled.protocol.name,
        "caption": caption(filled),
        "cells": [_data(cell) for cell in filled.cells],
    }
    return json.dumps(data, indent=1, ensure_ascii=False) + "\n"


def _data(cell: Cell) -> dict[str, Any]:
    def rounded(value: float | None) -> float | None:
        return None if value is None else round(value, 4)

    ours, paper = cell.ours, cell.paper
    return {
        "group": cell.group,
        "task": cell.task,
        "column": cell.column,
        "ours": rounded(ours.value if ours else None),
        "ours_sd": rounded(ours.sd if ours else None),
        "paper": paper.value if paper else None,
        "paper_sd": paper.sd if paper else None,
        "difference": rounded(cell.difference),
        "words": "" if ours else cell.words,
        "encoding": cell.encoding,
        "rates": sorted({run.config.train.lr for run in cell.used}),
        "seeds": sorted({run.seed for run in cell.used}),
        "used": [run.run for run in cell.used],
        "runs": len(cell.runs),
    }


def _parts(cell: Cell, digits: int) -> tuple[str, str, str]:
    words = MISSING if cell.words == NO_RUN else cell.words
    return (
        cell.ours.text(digits) if cell.ours else words,
        cell.paper.text(digits) if cell.paper else MISSING,
        MISSING if cell.difference is None else f"{cell.difference:+.{digits}f}",
    )


def _markdown_cell(cell: Cell, digits: int) -> str:
    ours, paper, difference = _parts(cell, digits)
    if cell.paper is None:
        return ours
    return f"{ours} ({paper})" if cell.ours is None else f"{ours} ({paper}, {difference})"


def _rows(filled: Filled) -> list[tuple[str, list[Cell]]]:
    return [(task, list(own)) for task, own in groupby(filled.cells, lambda cell: cell.task)]


def _blocks(filled: Filled, width: int) -> Iterable[list[str]]:
    """Each block has a heading of several lines, a rule, and a line per task."""
    rows = _rows(filled)
    names = ["task", *(task for task, _ in rows)]
    wide = max(map(len, names))
    columns = [
        _column(column.name, [_parts(own[at], filled.part.digits) for _, own in rows])
        for at, column in enumerate(filled.part.columns)
    ]
    while columns:
        taken, room = 0, width - wide
        while taken < len(columns) and (room := room - 1 - len(columns[taken][-1])) >= 0:
            taken += 1
        block, columns = columns[: max(taken, 1)], columns[max(taken, 1) :]
        high = max(map(len, block))
        left = [""] * (high - len(rows) - 2) + ["task", ""] + names[1:]
        padded = [[" " * len(c[-1])] * (high - len(c)) + c for c in block]
        lines = zip([name.ljust(wide) for name in left], *padded, strict=True)
        yield [" ".join(line).rstrip() for line in lines]


def _column(name: str, cells: Sequence[tuple[str, str, str]]) -> list[str]:
    """The lines of one column: its name, broken at the colon; the parts' names; a rule; numbers."""
    parts = len(PARTS) if any(paper != MISSING for _, paper, _ in cells) else 1
    table = [line[:parts] for line in (PARTS, *cells)]
    sizes = [max(len(line[at]) for line in table) for at in range(parts)]
    *outer, inner = name.split(":")
    head = [*(f"{part}:" for part in outer), inner]
    sizes[0] += max(0, max(map(len, head)) - sum(sizes) - parts + 1)
    lines = [" ".join(t.rjust(s) for t, s in zip(line, sizes, strict=True)) for line in table]
    wide = len(lines[0])
    return [*(part.ljust(wide) for part in head), lines[0], "-" * wide, *lines[1:]]


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
