"""LEADERBOARD.md: what won where, a table and a picture per protocol and task, how to repeat."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import groupby
from pathlib import Path

from tabulate import tabulate

from leaderboard.curves import curves
from leaderboard.data import all_looks
from leaderboard.files import markdown_text, write
from leaderboard.groups import CHANGED, EARLIER, PROTOCOL, TUNED, Group
from leaderboard.pages import how_to_read
from leaderboard.ranks import verdicts
from leaderboard.summary import Row
from leaderboard.tables import rank_text, rows_as_markdown, unseen_text

PICTURES = "pictures"  # the folder beside the page

EMPTY = """No records yet. Make one and build the pages again:

```
pezoo bench --pe nope,rope --task copy
pezoo leaderboard build
```
"""


def write_markdown(groups: Sequence[Group], path: Path) -> list[Path]:
    """Write the page and its pictures, remove pictures that the page shows no longer, and return
    the paths written, the page first."""
    paths = [write(path.parent / name, text) for name, text in files(groups, path.name).items()]
    for old in (path.parent / PICTURES).glob("*.svg"):
        if old not in paths:
            old.unlink()
    return paths


def files(groups: Sequence[Group], name: str = "LEADERBOARD.md") -> dict[str, str]:
    """What belongs into the folder of LEADERBOARD.md, by path from there; the page first."""
    looks = all_looks(groups)
    return {name: page(groups)} | {
        f"{PICTURES}/{group.slug}.svg": curves(group.title, group.rows, looks)
        for group in groups
        if group.policy == PROTOCOL
    }


def page(groups: Sequence[Group]) -> str:
    """The text of LEADERBOARD.md."""
    parts = [
        "# Leaderboard\n",
        "Made by `pezoo leaderboard build` from run records; do not edit.\n",
    ]
    if not groups:
        return "\n".join([*parts, EMPTY])
    main = [group for group in groups if group.policy == PROTOCOL]
    others = [group for group in groups if group.policy != PROTOCOL]
    for base, own in groupby(main, key=lambda group: group.base):
        parts.append(overview(base, list(own)))
    parts += ["## How to read this\n", *(f"- {line}" for line in how_to_read()), ""]
    parts += map(section, main)
    if others:
        parts += ["## Other settings\n", OTHERS, *map(section, others)]
    return "\n".join(parts)


OTHERS = """Tuned and changed settings, each table with ranks of its own. In "tuned" every encoding
has its best cell of one grid, chosen on seeds and examples set apart. The letters behind "+" stand
for the settings changed, which every table names.
"""


def overview(base: str, groups: Sequence[Group]) -> str:
    """Encodings x tasks: unseen mean and rank."""
    labels = sorted({row.label for group in groups for row in group.rows})
    by = [{row.label: row for row in group.rows} for group in groups]

    def cell(row: Row | None) -> str:
        if row is None:
            return "not run"
        return unseen_text(row, False) + ("" if row.rank is None else f", rank {rank_text(row)}")

    lines = [[markdown_text(label), *(cell(rows.get(label)) for rows in by)] for label in labels]
    heads = ["encoding", *(markdown_text(group.first.task) for group in groups)]
    align = ["left", *["right"] * len(groups)]
    table = tabulate(lines, heads, tablefmt="pipe", disable_numparse=True, colalign=align)
    words = "Mean exact match over the unseen lengths, in percent, and rank. Tables follow."
    return f"## {markdown_text(base)}\n\n{words}\n\n{table}\n"


def section(group: Group) -> str:
    """One table with its facts, picture, warnings and commands."""
    first = group.first
    chance = "unknown" if first.chance is None else f"{100 * first.chance:.1f} %"
    count = len(group.records)
    runs = f"{count} run{'s' * (count > 1)}"
    level = "##" if group.policy == PROTOCOL else "###"
    lines = [
        f"{level} {markdown_text(group.title)}\n",
        f"Trained on lengths {min(first.plain.train_lengths)} to {first.train_length}; "
        f"task version {markdown_text(str(first.plain.task_version))}; {runs}; "
        f"settings {group.rows[0].settings}. A guess that ignores the prompt has token accuracy "
        f"{chance}.\n",
    ]
    if group.policy == PROTOCOL:
        lines.append(f"![Exact match against length]({PICTURES}/{group.slug}.svg)\n")
    if tuning := first.provenance.tuning:
        seeds = ", ".join(map(str, tuning.seeds))
        lines.append(
            f"Tuned: every encoding with its best of {len(tuning.cells)} cells, "
            f"{markdown_text(tuning.grid_words())}; chosen on seed {seeds}.\n"
        )
    if group.policy in (CHANGED, EARLIER, TUNED) and group.changes:
        changes = "; ".join(f"{key} = {value} (there {own})" for key, value, own in group.changes)
        lines.append(f"Differs from the protocol in: {markdown_text(changes[:600])}.\n")
    lines.append(rows_as_markdown(group.rows) + "\n")
    lines.append("\n".join(_verdicts(group)) + "\n")
    if notes := list(_notes(group)):
        lines.append("\n".join(notes) + "\n")
    lines += ["Repeat it with:\n", fenced("\n".join(group.commands()))]
    return "\n".join(lines)


def _verdicts(group: Group) -> list[str]:
    first, *rest = verdicts(group.rows)
    return [first, "", *(f"- {markdown_text(line)}" for line in rest)] if rest else [first]


def _notes(group: Group) -> list[str]:
    notes = [f"- Warning: {markdown_text(text)}" for text in group.warnings]
    for row in group.rows:
        texts = [f"{row.label}: {note}" for note in row.notes]
        texts += [f"{row.label}, seed {seed} failed: {why[:200]}" for seed, why in row.failures]
        if row.mode:
            texts.append(f"{row.label}: the same trained weights, evaluated in another way")
        if row.chosen:
            spent = row.tuning_seconds
            cost = "" if spent is None else f"; the sweep took {spent:.0f} CPU-seconds"
            texts.append(f"{row.label}: {row.chosen}, of {len(row.tried)} tried{cost}")
        notes += [f"- {markdown_text(text)}" for text in texts]
    return notes


def fenced(text: str) -> str:
    """A code block whose fence is longer than any run of backticks inside.

    >>> fenced("a")
    '```\\na\\n```\\n'
    """
    longest = max((len(run) for run in re.findall("`+", text)), default=0)
    fence = "`" * max(3, longest + 1)
    return f"{fence}\n{text}\n{fence}\n"
