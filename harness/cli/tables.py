"""The closing table, from the leaderboard's own summary."""

from __future__ import annotations

from itertools import groupby
from typing import Any

import click
from rich.console import Console
from rich.table import Table

from leaderboard.schema import Record
from leaderboard.summary import summarise
from leaderboard.tables import headers, rows_as_csv, rows_as_lists, rows_as_markdown


def print_tables(records: list[dict[str, Any]], form: str) -> None:
    """One table per task: table, csv or markdown."""
    rows = summarise([Record.model_validate(record) for record in records])
    if form == "csv":
        click.echo(rows_as_csv(rows), nl=False)
        return
    for (protocol, task), group in groupby(rows, key=lambda row: (row.protocol, row.task)):
        table = list(group)
        if form == "markdown":
            click.echo(f"### {task} ({protocol})\n\n{rows_as_markdown(table)}")
            continue
        console = Console()
        width = console.width if console.is_terminal else 200
        title = f"{task} ({protocol}): exact match per length, 95 % interval over seeds"
        shown = Table(title=title, title_justify="left")
        for header in headers(table):
            shown.add_column(header)
        for row in rows_as_lists(table, intervals=width >= 160):
            shown.add_row(*row)
        console.width = max(width, 100)
        console.print(shown)
        for row in table:
            for seed, reason in row.failures:
                console.print(
                    f"{row.label}, seed {seed} failed: {reason}", markup=False, highlight=False
                )
