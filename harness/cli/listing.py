"""`pezoo list`: what there is."""

from __future__ import annotations

import click


@click.command()
@click.argument("what", type=click.Choice(["encodings", "tasks", "protocols"]))
def command(what: str) -> None:
    """List encodings, tasks or protocols. A broken plug-in is named with its error."""
    from tabulate import tabulate

    click.echo(
        tabulate({"encodings": _encodings, "tasks": _tasks, "protocols": _protocols}[what]())
    )


def _encodings() -> list[list[str]]:
    from pezoo.registry import entries

    rows = []
    for name, entry in sorted(entries().items()):
        try:
            cls = entry.load()
            rows.append([name, cls.summary, cls.paper, ", ".join(entry.options or ())])
        except ValueError as error:
            rows.append([name, str(error), "", ""])
    return rows


def _tasks() -> list[list[str]]:
    from harness import tasks

    rows = []
    for name in tasks.names():
        try:
            task = tasks.make(name)
            chance = f"chance {task.chance:.2g}" if hasattr(task, "chance") else ""
            example = getattr(task, "example", "")[:60]
            rows.append([name, getattr(task, "summary", ""), chance, example])
        except ValueError as error:
            rows.append([name, str(error), "", ""])
    return rows


def _protocols() -> list[list[str]]:
    from harness.settings.protocol import load_protocol, protocol_names

    return [[name, load_protocol(name).description] for name in protocol_names()]
