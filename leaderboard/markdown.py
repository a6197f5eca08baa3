"""LEADERBOARD.md: what won where, a table and a picture per protocol and task, how to repeat."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import groupby
from pathlib import Path

from tabulate import tabulate

from leaderboard.curves import curves
from leaderboard.files import markdown_text, write
from leaderboard.pages import how_to_read
from leaderboard.ranks import verdicts
from leaderboard.rows import Row
from leaderboard.styles import styles
from leaderboard.tables import PROTOCOL, Table
from leaderboard.text import rank_text, rows_as_markdown, unseen_text

PICTURES = "pictures"  # the folder beside the page

EMPTY = """No records yet. Make one and build the pages again:

```
pezoo bench --pe nope,rope --task copy
pezoo leaderboard build
```
"""

OTHERS = """Tuned and changed settings; each table has ranks of its own. In "tuned" every encoding
has its best cell of one grid, chosen on seeds and examples set apart. The letters after "+" are a
hash of the changed settings, which every table names.
"""


def write_markdown(tables: Sequence[Table], path: Path) -> list[Path]:
    """Write the page and its pictures, remove pictures that the page no longer shows, and return
    the paths written, the page first."""
    paths = [write(path.parent / name, text) for name, text in files(tables, path.name).items()]
    for old in (path.parent / PICTURES).glob("*.svg"):
        if old not in paths:
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


def page(tables: Sequence[Table]) -> str:
    """The text of LEADERBOARD.md."""
    parts = [
        "# Leaderboard\n",
        "Made by `pezoo leaderboard build` from run records; do not edit.\n",
    ]
    if not tables:
        return "\n".join([*parts, EMPTY])
    main = [table for table in tables if table.policy == PROTOCOL]
    others = [table for table in tables if table.policy != PROTOCOL]
    parts += [overview(base, list(own)) for base, own in groupby(main, key=lambda t: t.base)]
    parts += ["## How to read this\n", *(f"- {line}" for line in how_to_read()), ""]
    parts += map(section, main)
    if others:
        parts += ["## Other settings\n", OTHERS, *map(section, others)]
    return "\n".join(parts)


def overview(base: str, tables: Sequence[Table]) -> str:
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
    table = tabulate(lines, heads, tablefmt="pipe", disable_numparse=True, colalign=align)
    words = "Mean exact match over the unseen lengths, in percent, and rank. The tables follow."
    return f"## {markdown_text(base)}\n\n{words}\n\n{table}\n"


def section(table: Table) -> str:
    """One table with its facts, picture, warnings and commands."""
    first, own = table.first, table.policy == PROTOCOL
    chance = "unknown" if first.chance is None else f"{100 * first.chance:.1f} %"
    count = len(table.records)
    lines = [
        f"{'##' if own else '###'} {markdown_text(table.title)}\n",
        f"Trained on lengths {min(first.settings.train.lengths)} to {first.train_length}; "
        f"task version {first.settings.task_version}; {count} run{'s' * (count > 1)}; "
        f"settings {first.shared_hash}. A guess that ignores the prompt has token accuracy "
        f"{chance}.\n",
    ]
    if own:
        lines.append(f"![Exact match against length]({PICTURES}/{table.slug}.svg)\n")
    if tuning := first.provenance.tuning:
        seeds = ", ".join(map(str, tuning.seeds))
        lines.append(
            f"Tuned: every encoding with its best of {len(tuning.cells)} cells, "
            f"{markdown_text(tuning.grid_words())}; chosen on seed {seeds}.\n"
        )
    if table.changes:
        changes = "; ".join(f"{key} = {value} (there {own})" for key, value, own in table.changes)
        lines.append(f"Differs from the protocol in: {markdown_text(changes[:600])}.\n")
    test, *rest = verdicts(table.rows)
    lines += [rows_as_markdown(table.rows) + "\n", f"{markdown_text(test)}\n"]
    lines += [_bullets(part) for part in (rest, _notes(table)) if part]
    lines += ["Repeat it with:\n", fenced("\n".join(table.commands()))]
    return "\n".join(lines)


def _bullets(texts: Sequence[str]) -> str:
    return "".join(f"- {markdown_text(text)}\n" for text in texts)


def _notes(table: Table) -> list[str]:
    notes = [f"Warning: {text}" for text in table.warnings]
    for row in table.rows:
        notes += [f"{row.label}: {note}" for note in row.notes]
        notes += [f"{row.label}, seed {seed} failed: {why[:200]}" for seed, why in row.failures]
        if row.mode:
            notes.append(f"{row.label}: the same trained weights, evaluated in another way")
        if row.chosen:
            spent = row.tuning_seconds
            cost = "" if spent is None else f"; the sweep took {spent:.0f} CPU-seconds"
            notes.append(f"{row.label}: {row.chosen}, of {len(row.tried)} tried{cost}")
    return notes


def fenced(text: str) -> str:
    """A code block whose fence is longer than any run of backticks inside.

    >>> fenced("a")
    '```\\na\\n```\\n'
    """
    longest = max((len(run) for run in re.findall("`+", text)), default=0)
    fence = "`" * max(3, longest + 1)
    return f"{fence}\n{text}\n{fence}\n"
