"""The tables that `pezoo bench` prints: the results, and what a sweep chose."""

from __future__ import annotations

import json
from collections.abc import Sequence
from itertools import groupby
from typing import Any

import click
from rich.console import Console
from rich.table import Table

from harness.settings.sweep import Choice
from leaderboard.config import RunConfig
from leaderboard.escape import markdown_text
from leaderboard.ranks import verdicts
from leaderboard.rows import Row
from leaderboard.schema import Record
from leaderboard.summary import summarise
from leaderboard.text import columns, percent, rows_as_csv, rows_as_markdown
from leaderboard.tuning import values_text


def print_records(
    records: list[dict[str, Any]], form: str, configs: Sequence[RunConfig] = ()
) -> None:
    """The records as JSON, or a table per task: table, csv or markdown.

    A table says which of the runs that were asked for, `configs`, have no record.
    """
    if form == "json":
        click.echo(json.dumps(records, indent=1))
        return
    rows = summarise([Record.of(record) for record in records])
    if form == "csv":
        click.echo(rows_as_csv(rows), nl=False)
        return
    there = {record["run"] for record in records}
    missing = [config for config in configs if config.hash not in there]
    for (_, task), table in groupby(rows, key=lambda row: (row.protocol, row.task)):
        lacks = [f"{c.label}, seed {c.seed}" for c in missing if c.task == task]
        words = [f"PARTIAL: no record yet of {'; '.join(lacks)}"] if lacks else []
        (_print_markdown if form == "markdown" else _print_table)(list(table), words)
    if not records and missing:
        click.echo("no run has a record yet")


def _print_markdown(rows: Sequence[Row], words: Sequence[str]) -> None:
    test, *lines = map(markdown_text, verdicts(rows))
    lines = [*map(markdown_text, words), *lines]
    click.echo(f"### {rows[0].task} ({rows[0].protocol})\n\n{rows_as_markdown(rows)}\n\n{test}\n")
    click.echo("".join(f"- {line}\n" for line in lines), nl=False)


def _print_table(rows: Sequence[Row], lacks: Sequence[str]) -> None:
    console = Console()
    width = console.width if console.is_terminal else 200
    words = f"{rows[0].metric} per length, 95 % interval: t, or Wilson's (1 seed)"
    shown = Table(title=f"{rows[0].task} ({rows[0].protocol}): {words}", title_justify="left")
    for header in columns(rows[0]):
        shown.add_column(header)
    for row in rows:
        shown.add_row(*columns(row, intervals=width >= 160).values())
    console.width = max(width, 100)
    console.print(shown)
    failures = [(row.label, seed, reason) for row in rows for seed, reason in row.failures]
    failed = [f"{label}, seed {seed} failed: {reason}" for label, seed, reason in failures]
    for line in [*lacks, *verdicts(rows), *failed]:
        console.print(line, markup=False, highlight=False)


def print_choices(choices: Sequence[Choice], aside: bool) -> None:
    """What a sweep chose, the score of every cell, and the cost; `aside`: on stderr."""
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
