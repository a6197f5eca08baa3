"""`pezoo list`: what there is."""

from __future__ import annotations

import json
from shutil import get_terminal_size
from textwrap import fill, wrap
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from pezoo.registry import Entry

Facts = dict[str, str]  # a name, a summary, and what else there is to say


@click.command()
@click.argument("what", type=click.Choice(["encodings", "tasks", "protocols"]))
@click.argument("name", required=False)
@click.option("--format", "form", type=click.Choice(["table", "json"]), default="table")
def command(what: str, name: str | None, form: str) -> None:
    """List encodings, tasks or protocols; or all that is known of one by its NAME.

    A broken plug-in is named with its error.
    """
    found = {"encodings": _encodings, "tasks": _tasks, "protocols": _protocols}[what]()
    if name is not None:
        from pezoo.spec import unknown

        names = [facts["name"] for facts in found]
        found = [facts for facts in found if facts["name"] == name]
        if not found:
            raise click.UsageError(unknown(what.removesuffix("s"), name, names))
    if form == "json":
        click.echo(json.dumps(found if name is None else found[0], indent=1, ensure_ascii=False))
    elif name is not None:
        _one(found[0])
    else:
        _all(found)


def _all(found: list[Facts]) -> None:
    """A line each, that the terminal holds; long ones are continued below."""
    width = get_terminal_size((80, 24)).columns
    first = max(len(facts["name"]) for facts in found) + 2
    for facts in found:
        lines = wrap(facts["summary"], max(width - first, 30), break_on_hyphens=False)
        click.echo((facts["name"].ljust(first) + "".join(lines[:1])).rstrip())
        for line in lines[1:]:
            click.echo(" " * first + line)


def _one(facts: Facts) -> None:
    width = get_terminal_size((80, 24)).columns
    for key, value in facts.items():
        if value:
            label = f"{key}  ".rjust(12)
            click.echo(fill(value, width, initial_indent=label, subsequent_indent=" " * 12))


def _encodings() -> list[Facts]:
    from pezoo.registry import entries

    return [_encoding(name, entry) for name, entry in sorted(entries().items())]


def _encoding(name: str, entry: Entry) -> Facts:
    from inspect import Parameter, signature

    try:
        cls = entry.load()
    except ValueError as error:
        return {"name": name, "summary": str(error)}
    usual = {key: p.default for key, p in signature(cls).parameters.items()}
    options = ", ".join(
        key if usual.get(key, Parameter.empty) is Parameter.empty else f"{key}={usual[key]}"
        for key in entry.options or ()
    )
    return {"name": name, "summary": cls.summary, "paper": cls.paper, "options": options}


def _tasks() -> list[Facts]:
    from harness import tasks

    found = []
    for name in tasks.names():
        try:
            task = tasks.make(name)
            own = {key: str(getattr(task, key, "")) for key in ("summary", "family", "paper")}
            chance = f"{task.chance:.2g}" if hasattr(task, "chance") else ""
            found.append({"name": name, **own, "example": getattr(task, "example", "")})
            found[-1]["chance"] = chance
        except ValueError as error:
            found.append({"name": name, "summary": str(error)})
    return found


def _protocols() -> list[Facts]:
    from harness.settings.protocol import load_protocol, protocol_names

    found = [load_protocol(name) for name in protocol_names()]
    return [{"name": p.name, "summary": p.description, "seeds": p.seeds} for p in found]
