"""LEADERBOARD.md: what won where, a table and a picture per protocol and task, how to repeat."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from pathlib import Path

from tabulate import tabulate

from leaderboard.curves import curves
from leaderboard.escape import markdown_text
from leaderboard.files import write
from leaderboard.render import render
from leaderboard.rows import Row
from leaderboard.styles import styles
from leaderboard.tables import PROTOCOL, Table
from leaderboard.text import rank_text, unseen_text

PICTURES = "pictures"  # the folder beside the page


def write_markdown(tables: Sequence[Table], path: Path) -> list[Path]:
    """Write the page and its pictures, remove pictures that the page no longer shows, and return
    the paths written, the page first."""
    before = path.read_text("utf-8", errors="replace") if path.is_file() else ""
    paths = [write(path.parent / name, text) for name, text in files(tables, path.name).items()]
    for old in (path.parent / PICTURES).glob("*.svg"):
        if old not in paths and f"({PICTURES}/{old.name})" in before:
            old.unlink()
    return paths


def files(tables: Sequence[Table], name: str = "LEADERBOARD.md") -> dict[str, str]:
    """The page and its pictures, {path from the page's folder: content}; the page first."""
    look = styles(row for table in tables for row in table.rows)
    return {name: page(tables)} | {
        f"{PICTURES}/{table.slug}.svg": curves(table.title, table.rows, look)
        for table in tables
        if table.policy == PROTOCOL
    }


def stale(tables: Sequence[Table], path: Path) -> list[str]:
    """What of the page and its pictures is not what the records give, one line each."""
    expected = files(tables, path.name)
    there = sorted((path.parent / PICTURES).glob("*.svg"))
    needless = [one for one in there if f"{PICTURES}/{one.name}" not in expected]
    changed = [
        path.parent / name
        for name, text in expected.items()
        if not (path.parent / name).is_file() or (path.parent / name).read_text("utf-8") != text
    ]
    hint = "run pezoo leaderboard build --runs none"
    return [f"{one} is not up to date: {hint}" for one in changed] + [
        f"{one} belongs to no table: {hint}" for one in needless
    ]


def page(tables: Sequence[Table]) -> str:
    """The text of LEADERBOARD.md."""
    main = [table for table in tables if table.policy == PROTOCOL]
    text = render(
        "leaderboard.md",
        folder=PICTURES,
        overviews=[
            (base, own[0].rows[0].metric, _overview(own))
            for base, own in ((base, list(own)) for base, own in groupby(main, lambda t: t.base))
        ],
        main=main,
        others=[table for table in tables if table.policy != PROTOCOL],
    )
    return text.rstrip() + "\n"


def _overview(tables: Sequence[Table]) -> str:
    """Encodings x tasks: unseen mean and rank."""

    def cell(row: Row | None) -> str:
        if row is None:
            return "not run"
        return unseen_text(row, False) + ("" if row.rank is None else f", rank {rank_text(row)}")

    labels = sorted({row.label for table in tables for row in table.rows})
    by = [{row.label: row for row in table.rows} for table in tables]
    lines = [[markdown_text(label), *(cell(rows.get(label)) for rows in by)] for label in labels]
    heads = ["encoding", *(markdown_text(table.first.task) for table in tables)]
    align = ["left", *["right"] * len(tables)]
    return tabulate(lines, heads, tablefmt="pipe", disable_numparse=True, colalign=align)
