"""The closing table, from the leaderboard's own summary; and the table of a sweep."""

from __future__ import annotations

import json
from collections.abc import Sequence
from itertools import groupby
from typing import Any

import click
from rich.console import Console
from rich.table import Table

from harness.settings.sweep import Choice
from leaderboard.files import markdown_text
from leaderboard.ranks import verdicts
from leaderboard.schema import Record
from leaderboard.summary import summarise
from leaderboard.text import columns, percent, rows_as_csv, rows_as_markdown
from leaderboard.tuning import values_text


def print_records(records: list[dict[str, Any]], form: str) -> None:
    """The records as JSON, or a table per task: table, csv or markdown."""
    if form == "json":
        click.echo(json.dumps(records, indent=1))
        return
    rows = summarise([Record.model_validate(record) for record in records])
    if form == "csv":
        click.echo(rows_as_csv(rows), nl=False)
        return
    for (protocol, task), group in groupby(rows, key=lambda row: (row.protocol, row.task)):
        table = list(group)
        if form == "markdown":
            first, *rest = verdicts(table)
            click.echo(f"### {task} ({protocol})\n\n{rows_as_markdown(table)}\n\n{first}\n")
            click.echo("".join(f"- {markdown_text(line)}\n" for line in rest), nl=False)
            continue
        console = Console()
        width = console.width if console.is_terminal else 200
        title = (
            f"{task} ({protocol}): exact match per length, 95 % interval: t, or Wilson's (1 seed)"
        )
        shown = Table(title=title, title_justify="left")
        for header in columns(table[0]):
            shown.add_column(header)
        for row in table:
            shown.add_row(*columns(row, intervals=width >= 160).values())
        console.width = max(width, 100)
        console.print(shown)
        for line in verdicts(table):
            console.print(line, markup=False, highlight=False)
        for row in table:
            for seed, reason in row.failures:
                console.print(
                    f"{row.label}, seed {seed} failed: {reason}", markup=False, highlight=False
                )


def print_choices(choices: Sequence[Choice], aside: bool) -> None:
    """What a sweep chose, every cell's score and what it took; `aside`: on stderr."""
    console = Console(stderr=aside)
    console.width = max(console.width, 200) if not console.is_terminal else console.width
    title = "tuning: mean exact match over all test lengths, on the tuning seeds, in percent"
    shown = Table(title=title, title_justify="left")
    cells = [values_text(trial.values) for trial in choices[0].trials]
    for header in ("encoding", "task", "chosen", *cells, "runs", "CPU-seconds"):
        shown.add_column(header)
    for choice in choices:
        tuning = choice.tuning
        runs = sum(len(trial.runs) for trial in choice.trials)
        failed = [trial.exact is None and bool(trial.runs) for trial in choice.trials]
        scores = [
            "failed" if bad else percent(trial.exact)
            for bad, trial in zip(failed, choice.trials, strict=True)
        ]
        nothing = "every cell failed" if choice.complete else "not all runs are done"
        chosen = values_text(tuning["chosen"]) if tuning else f"nothing: {nothing}"
        spent = f"{tuning['cpu_seconds']:.0f}" if tuning else "-"
        shown.add_row(choice.encoding, choice.task, chosen, *scores, str(runs), spent)
    console.print(shown)
