"""LEADERBOARD.md: a table and a picture per protocol and task, how to read them, how to repeat."""

from __future__ import annotations

import re
from collections.abc import Sequence
from importlib.resources import files
from pathlib import Path

from leaderboard.curves import curves
from leaderboard.files import markdown_text, write
from leaderboard.groups import Group
from leaderboard.looks import looks
from leaderboard.tables import rows_as_markdown

PICTURES = "pictures"  # the folder beside the page

EMPTY = """No records yet. Make one and build the pages again:

```
pezoo bench --pe nope,rope --task copy
pezoo leaderboard build
```
"""


def how_to_read() -> list[str]:
    """What every column means, one sentence or a few per line."""
    source = files("leaderboard") / "templates" / "how_to_read.txt"
    return source.read_text(encoding="utf-8").splitlines()


def write_markdown(groups: Sequence[Group], path: Path) -> list[Path]:
    """Write the page and its pictures, and return their paths, the page first."""
    marks = looks(row.label for group in groups for row in group.rows)
    pictures = [
        write(path.parent / PICTURES / f"{group.slug}.svg", curves(group.title, group.rows, marks))
        for group in groups
    ]
    return [write(path, page(groups)), *pictures]


def page(groups: Sequence[Group]) -> str:
    """The text of LEADERBOARD.md."""
    parts = [
        "# Leaderboard\n",
        "Made by `pezoo leaderboard build` from run records; do not edit.\n",
    ]
    if not groups:
        return "\n".join([*parts, EMPTY])
    parts += ["## How to read this\n", *(f"- {line}" for line in how_to_read()), ""]
    return "\n".join(parts + [section(group) for group in groups])


def section(group: Group) -> str:
    """One table with its facts, picture, warnings and commands."""
    first = group.first
    chance = "unknown" if first.chance is None else f"{100 * first.chance:.1f} %"
    lines = [
        f"## {markdown_text(group.title)}\n",
        f"Trained on lengths {min(first.plain.train_lengths)} to {first.train_length}; "
        f"task version {markdown_text(str(first.plain.task_version))}; {len(group.records)} runs; "
        f"settings {group.rows[0].settings}. A guess that ignores the prompt has token accuracy "
        f"{chance}.\n",
        f"![Exact match against length]({PICTURES}/{group.slug}.svg)\n",
        rows_as_markdown(group.rows) + "\n",
    ]
    notes = [f"- Warning: {markdown_text(text)}" for text in group.warnings]
    for row in group.rows:
        notes += [f"- {markdown_text(f'{row.label}: {note}')}" for note in row.notes]
        notes += [
            f"- {markdown_text(f'{row.label}, seed {seed} failed: {reason[:200]}')}"
            for seed, reason in row.failures
        ]
    if notes:
        lines.append("\n".join(notes) + "\n")
    return "\n".join([*lines, "Repeat it with:\n", fenced("\n".join(group.commands()))])


def fenced(text: str) -> str:
    """A code block whose fence is longer than any run of backticks inside.

    >>> fenced("a")
    '```\\na\\n```\\n'
    """
    longest = max((len(run) for run in re.findall("`+", text)), default=0)
    fence = "`" * max(3, longest + 1)
    return f"{fence}\n{text}\n{fence}\n"
