"""Filled tables as text for a terminal, Markdown, CSV and JSON."""

import json
from collections.abc import Iterator, Sequence
from itertools import groupby
from shutil import get_terminal_size
from textwrap import wrap
from typing import Any

from tabulate import tabulate

from leaderboard.escape import markdown_text
from leaderboard.papers.caption import caption, numbers
from leaderboard.papers.cells import NO_RUN, Cell, Filled, counted
from leaderboard.papers.paper import PaperTable
from leaderboard.text import as_csv as csv_of

MISSING = "-"
PARTS = ("ours", "paper", "diff")


def as_text(filled: Filled, width: int | None = None) -> str:
    """Return blocks of columns that fit into `width` characters; by default, the terminal's."""
    width = width or get_terminal_size((80, 24)).columns
    lines = [part for line in caption(filled) for part in wrap(line, min(width, 100))]
    for block in _blocks(filled, width):
        lines += ["", block.lstrip("\n")]
    return "\n".join(lines) + "\n"


def as_markdown(filled: Filled) -> str:
    """Return one table with cells `ours (paper, difference)`."""
    columns = [markdown_text(column.name) for column in filled.part.columns]
    rows = [
        [own[0].group, markdown_text(task), *(_markdown_cell(cell, filled.part) for cell in own)]
        for task, own in rows_of(filled)
    ]
    text = tabulate(
        rows, [filled.part.groups, "task", *columns], tablefmt="pipe", disable_numparse=True
    )
    return "\n\n".join([*map(markdown_text, caption(filled)), text]) + "\n"


def as_csv(filled: Filled) -> str:
    """Return one CSV line per cell."""
    lines = [_data(filled, cell) for cell in filled.cells]
    flat = [
        [" ".join(map(str, v)) if isinstance(v, list) else v for v in line.values()]
        for line in lines
    ]
    return csv_of([*lines[0]], flat)


def as_json(filled: Filled) -> str:
    """Return the caption and every cell with its runs as JSON."""
    data = {
        "paper": filled.paper.name,
        "part": filled.part.label,
        "protocol": filled.protocol.name,
        "caption": caption(filled),
        "cells": [_data(filled, cell) for cell in filled.cells],
    }
    return json.dumps(data, indent=1, ensure_ascii=False) + "\n"


def _data(filled: Filled, cell: Cell) -> dict[str, Any]:
    def rounded(value: float | None) -> float | None:
        return None if value is None else round(value, 4)

    ours, paper = cell.ours, cell.paper
    where = (filled.part, filled.lengths, cell.checkpoint, cell.times)
    scores = (score for run in cell.used for score in counted(run, *where))
    tested = {score.length for score in scores if score.count}
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
        "test_lengths": numbers(tested) if cell.used else "",
    }


def parts_of(cell: Cell, part: PaperTable) -> tuple[str, ...]:
    """Return our number, the paper's, and the difference if they are comparable."""
    digits, words = part.digits, MISSING if cell.words == NO_RUN else cell.words
    parts = (
        cell.ours.text(part.digits_ours or digits) if cell.ours else words,
        cell.paper.text(digits) if cell.paper else MISSING,
        MISSING if cell.difference is None else f"{cell.difference:+.{digits}f}",
    )
    return parts if cell.comparable else parts[:2]


def _markdown_cell(cell: Cell, part: PaperTable) -> str:
    ours, *others = parts_of(cell, part)
    shown = others[:1] if cell.ours is None else others
    return f"{ours} ({', '.join(shown)})" if cell.paper else ours


def rows_of(filled: Filled) -> list[tuple[str, list[Cell]]]:
    return [(task, list(own)) for task, own in groupby(filled.cells, lambda cell: cell.task)]


def _blocks(filled: Filled, width: int) -> Iterator[str]:
    """Yield tables with as many columns as fit into `width` characters, and at least one."""
    rows = rows_of(filled)
    high = 1 + max(column.name.count(":") for column in filled.part.columns)
    columns = [
        _column(column.name, high, [parts_of(own[at], filled.part) for _, own in rows])
        for at, column in enumerate(filled.part.columns)
    ]
    groups = filled.part.groups
    heads = [("", "")] * high + [("task", groups), *((task, own[0].group) for task, own in rows)]
    tasks = [(task, group) if groups else (task,) for task, group in heads]
    while columns:
        for taken in range(len(columns), 0, -1):
            lines = [sum(parts, ()) for parts in zip(tasks, *columns[:taken], strict=True)]
            align = ["left"] * len(tasks[0]) + ["right"] * (len(lines[0]) - len(tasks[0]))
            block = tabulate(lines, tablefmt="plain", disable_numparse=True, colalign=align)
            if max(map(len, block.splitlines())) <= width:
                break
        yield block
        columns = columns[taken:]


def _column(name: str, high: int, cells: Sequence[tuple[str, ...]]) -> list[tuple[str, ...]]:
    """Return the lines of a column: `high` lines of its name, the names of the parts, numbers.

    Our numbers alone if the paper has none.
    """
    parts = len(cells[0]) if any(cell[1] != MISSING for cell in cells) else 1
    heads = name.replace(":", ":\n").split("\n")
    above = [(head, "", "") for head in [""] * (high - len(heads)) + heads]
    return [line[:parts] for line in (*above, PARTS, *cells)]
