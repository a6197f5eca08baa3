"""Filled tables as text for a terminal, Markdown, CSV and JSON."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterable, Sequence
from itertools import groupby
from textwrap import wrap
from typing import Any

from tabulate import tabulate

from leaderboard.escape import csv_text, markdown_text
from leaderboard.papers.caption import caption, numbers
from leaderboard.papers.cells import NO_RUN, Cell, Filled, counted
from leaderboard.papers.paper import Table

MISSING = "-"
PARTS = ("ours", "paper", "diff")


def as_text(filled: Filled, width: int) -> str:
    """Return blocks of columns that fit into `width` characters, at least one column each."""
    lines = [part for line in caption(filled) for part in wrap(line, min(width, 100))]
    for block in _blocks(filled, width):
        lines += ["", *block]
    return "\n".join(lines) + "\n"


def as_markdown(filled: Filled) -> str:
    """Return one table with cells `ours (paper, difference)`."""
    columns = [markdown_text(column.name) for column in filled.part.columns]
    rows = [
        [
            own[0].group,
            markdown_text(task),
            *(_markdown_cell(cell, filled.part) for cell in own),
        ]
        for task, own in _rows(filled)
    ]
    text = tabulate(rows, ["", "task", *columns], tablefmt="pipe", disable_numparse=True)
    return "\n\n".join([*map(markdown_text, caption(filled)), text]) + "\n"


def as_csv(filled: Filled) -> str:
    """Return one CSV line per cell."""
    out, lines = io.StringIO(), [_data(filled, cell) for cell in filled.cells]
    writer = csv.DictWriter(out, list(lines[0]), lineterminator="\n")
    writer.writeheader()
    for line in lines:
        parts = {key: " ".join(map(str, v)) for key, v in line.items() if isinstance(v, list)}
        flat = line | parts
        writer.writerow({k: csv_text(v) if isinstance(v, str) else v for k, v in flat.items()})
    return out.getvalue()


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
    scores = (score for run in cell.used for score in counted(run, filled.part, filled.lengths))
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


def _parts(cell: Cell, part: Table) -> tuple[str, ...]:
    """Return our number, the paper's, and the difference if they are comparable."""
    digits, words = part.digits, MISSING if cell.words == NO_RUN else cell.words
    parts = (
        cell.ours.text(part.digits_ours or digits) if cell.ours else words,
        cell.paper.text(digits) if cell.paper else MISSING,
        MISSING if cell.difference is None else f"{cell.difference:+.{digits}f}",
    )
    return parts if cell.comparable else parts[:2]


def _markdown_cell(cell: Cell, part: Table) -> str:
    ours, *others = _parts(cell, part)
    shown = others[:1] if cell.ours is None else others
    return f"{ours} ({', '.join(shown)})" if cell.paper else ours


def _rows(filled: Filled) -> list[tuple[str, list[Cell]]]:
    return [(task, list(own)) for task, own in groupby(filled.cells, lambda cell: cell.task)]


def _blocks(filled: Filled, width: int) -> Iterable[list[str]]:
    """Yield blocks: a heading of several lines, a rule, and a line per task."""
    rows = _rows(filled)
    names = ["task", *(task for task, _ in rows)]
    wide = max(map(len, names))
    columns = [
        _column(column.name, [_parts(own[at], filled.part) for _, own in rows])
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


def _column(name: str, cells: Sequence[tuple[str, ...]]) -> list[str]:
    """Return the lines of a column: its name, the names of the parts, a rule, and numbers."""
    parts = len(cells[0]) if any(cell[1] != MISSING for cell in cells) else 1
    table = [line[:parts] for line in (PARTS, *cells)]
    sizes = [max(len(line[at]) for line in table) for at in range(parts)]
    *outer, inner = name.split(":")
    head = [*(f"{part}:" for part in outer), inner]
    sizes[0] += max(0, max(map(len, head)) - sum(sizes) - parts + 1)
    lines = [" ".join(t.rjust(s) for t, s in zip(line, sizes, strict=True)) for line in table]
    wide = len(lines[0])
    return [*(part.ljust(wide) for part in head), lines[0], "-" * wide, *lines[1:]]
