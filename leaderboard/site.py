"""The offline page: one index.html that opens from the disk, without a server or a network."""

from __future__ import annotations

import json
from collections.abc import Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined

from leaderboard import tables
from leaderboard.curves import curves
from leaderboard.files import command_text, write
from leaderboard.groups import Group
from leaderboard.looks import Look, last_words, looks, wide
from leaderboard.markdown import how_to_read
from leaderboard.summary import Row

STATIC = ("app.js", "style.css")


def build(groups: Sequence[Group], out: Path, refused: int = 0) -> list[Path]:
    """Write the page into `out` and return the paths written, index.html first.

    `refused` is how many files were no valid record; the page says so.
    """
    from plotly.offline import get_plotlyjs

    marks = looks(row.label for group in groups for row in group.rows)
    rows = [row for group in groups for row in group.rows]
    html = _environment().get_template("index.html").render(
        groups=[_section(group) for group in groups],
        how_to_read=how_to_read(),
        records=sum(len(group.records) for group in groups),
        refused=refused,
        command=command_text,
    )  # fmt: skip
    data = [_chart(group, marks) for group in groups]
    contents: dict[str, str | bytes] = {
        "index.html": html,
        "data.js": f"window.DATA = {script_json(data)};\n",
        "leaderboard.csv": tables.rows_as_csv(rows),
        "plotly.min.js": get_plotlyjs(),
    }
    for name in STATIC:
        contents[name] = (files("leaderboard") / "static" / name).read_bytes()
    for group in groups:
        contents[f"pictures/{group.slug}.svg"] = curves(group.title, group.rows, marks)
    return [write(out / name, content) for name, content in contents.items()]


def script_json(value: Any) -> str:
    """JSON that ends no script element and no line of JavaScript, whatever texts it holds.

    >>> script_json("</script>")
    '"\\\\u003c/script\\\\u003e"'
    """
    text = json.dumps(value, ensure_ascii=True, allow_nan=False, sort_keys=True)
    return "".join(f"\\u{ord(char):04x}" if char in "<>&" else char for char in text)


def _environment() -> Environment:
    return Environment(
        loader=PackageLoader("leaderboard"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )


def _section(group: Group) -> dict[str, Any]:
    by_run = {record.run: record for record in group.records}
    heads = tables.headers(group.rows)
    return {
        "group": group,
        "first": group.first,
        "heads": heads,
        "rows": [
            {
                "row": row,
                "id": f"{group.slug}.{at}",
                "cells": [_cell(cell) for cell in row.cells],
                "unseen": tables.unseen_text(row, False),
                "unseen_interval": _brackets(tables.unseen_text(row)),
                "tokens": tables.token_text(row),
                "reach": tables.reach_text(row),
                "seeds": tables.seeds_text(row).split(", "),
                "runs": [by_run[run] for run in row.runs],
            }
            for at, row in enumerate(group.rows)
        ],
    }


def _cell(cell: Any) -> dict[str, Any]:
    return {
        "text": tables.cell_text(cell, False),
        "interval": _brackets(tables.cell_text(cell)),
        "share": cell.exact.mean if cell.exact else None,
        "seen": cell.seen,
        "title": _title(cell),
    }


def _brackets(text: str) -> str:
    return text[text.index("[") :] if "[" in text else ""


def _title(cell: Any) -> str:
    """What a pointer over the cell shows: where the number comes from."""
    if cell.exact is None:
        return str(cell.status)
    seeds = ", ".join(f"seed {seed}: {tables.percent(value)}" for seed, value in cell.seeds)
    token = f"; token accuracy {tables.percent(cell.token)}"
    median = f"; median {tables.percent(cell.median)}"
    return f"{cell.correct} of {cell.count} right ({seeds}){median}{token}"


def _chart(group: Group, marks: dict[str, Look]) -> dict[str, Any]:
    lengths = [cell.length for row in group.rows[:1] for cell in row.cells]
    return {
        "id": group.slug,
        "train": group.first.train_length,
        "log": wide(lengths),
        "lengths": lengths,
        "rows": [_curve(row, marks[row.label]) for row in group.rows],
    }


def _curve(row: Row, look: Look) -> dict[str, Any]:
    cells = [cell for cell in row.cells if cell.status != "no instance"]
    return {
        "label": row.label,
        "words": last_words((cell.length, cell.status) for cell in row.cells),
        "colour": look.colour,
        "dash": look.dash,
        "marker": look.marker,
        "length": [cell.length for cell in cells],
        "mean": [cell.exact.mean if cell.exact else None for cell in cells],
        "low": [cell.exact.low if cell.exact else None for cell in cells],
        "high": [cell.exact.high if cell.exact else None for cell in cells],
        "token": [cell.token for cell in cells],
        "seeds": [[cell.length, value, seed] for cell in cells for seed, value in cell.seeds],
    }
