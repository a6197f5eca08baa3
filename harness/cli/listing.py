"""`pezoo list`: what there is."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from shutil import get_terminal_size
from textwrap import wrap
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from harness.cli.facts import Facts


@click.command()
@click.argument("what", type=click.Choice(["encodings", "tasks", "protocols"]))
@click.argument("name", required=False)
@click.option("--format", "form", type=click.Choice(["table", "json"]), default="table")
def command(what: str, name: str | None, form: str) -> None:
    """List encodings, tasks or protocols; or all that is known of one by its NAME.

    NAME is typed as for bench: "randomized:rope", "odds_first(symbols=2)", a protocol's file. A
    broken plug-in is named with its error.
    """
    from harness.cli import facts

    if name is None:
        found = {"encodings": facts.encodings, "tasks": facts.tasks, "protocols": facts.protocols}
        everything = found[what]()
        if form == "json":
            click.echo(_json(everything))
        else:
            _all(everything)
        return
    one = {"encodings": facts.encoding, "tasks": facts.task, "protocols": facts.protocol}
    parts = one[what](name)
    if form == "json":
        click.echo(_json(parts if len(parts) > 1 else parts[0]))
    else:
        click.echo("\n\n".join("\n".join(_one(part)) for part in parts))


def _json(found: Facts | Sequence[Facts]) -> str:
    return json.dumps(found, indent=1, ensure_ascii=False)


def _all(found: Sequence[Facts]) -> None:
    """A line each, that the terminal holds; long ones are continued below."""
    width = get_terminal_size((80, 24)).columns
    first = max(len(facts["name"]) for facts in found) + 2
    for facts in found:
        lines = wrap(facts["summary"], max(width - first, 30), break_on_hyphens=False)
        click.echo((facts["name"].ljust(first) + "".join(lines[:1])).rstrip())
        for line in lines[1:]:
            click.echo(" " * first + line)


def _one(facts: Facts) -> Iterator[str]:
    """What is known, a line or more for each kind of fact."""
    width = max(get_terminal_size((80, 24)).columns - 12, 30)
    for key, value in facts.items():
        label = f"{key}  "
        for line in _reflowed(value, width):
            yield (label.rjust(12) + line).rstrip()
            label = ""


def _reflowed(text: str, width: int) -> Iterator[str]:
    """A docstring's lines at another width: paragraphs, and rows of a name, spaces and words.

    >>> list(_reflowed("Two\\nlines\\n  top   the\\n        end", 40))
    ['Two lines', 'top         the end']
    """
    parts: list[list[str]] = []
    for line in text.splitlines():
        row = re.split(r"(?<=\S) {2,}", line.strip(), maxsplit=1)
        if len(row) == 1 and parts and (line.startswith(" ") or len(parts[-1]) == 1):
            parts[-1][-1] += f" {row[0]}"
        else:
            parts.append(row)
    for *name, words in parts:
        indent, line = " " * 12 * len(name), " ".join(words.split())
        head = f"{name[0]:<11} " if name else ""
        yield from wrap(head + line, width, subsequent_indent=indent, break_on_hyphens=False)
