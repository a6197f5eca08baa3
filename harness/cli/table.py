"""`pezoo table`: the tables of a paper, made again from records."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path
from shutil import get_terminal_size
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from leaderboard.config import Protocol
    from leaderboard.papers.cells import Filled
    from leaderboard.papers.paper import Paper
    from leaderboard.schema import Record

FORMATS = ("table", "markdown", "csv", "json")


@click.command()
@click.argument("paper")
@click.argument("number", required=False)
@click.option("--format", "form", type=click.Choice(FORMATS), default="table", show_default=True)
@click.option("--protocol", help="Whose runs fill it.  [default: the paper's, or else its mini]")
@click.option("--set", "sets", multiple=True, help="With this setting changed; repeatable.")
@click.option("--lengths", help="Count these test lengths, as 42-100.  [default: all unseen]")
@click.option("--runs", default="runs", show_default=True, help="Fresh runs; no such folder: none.")
@click.option("--records", help="Committed records; the package's own by default.")
def command(
    paper: str,
    number: str | None,
    form: str,
    protocol: str | None,
    sets: tuple[str, ...],
    lengths: str | None,
    runs: str,
    records: str | None,
) -> None:
    """Print a table of a paper: our number, the paper's beside it, and the difference.

    Without NUMBER: the tables that there are.

    pezoo table ruoss2023 1
    """
    from leaderboard.papers import text
    from leaderboard.papers.paper import read

    source = read(paper)
    if number is None:
        _list(source)
        return
    source.table(number)
    counted = _lengths(lengths)
    found = _records(runs, records)
    filled = _filled(source, number, found, _protocols(source, protocol, sets), counted)
    if not filled.runs:
        name = protocol or source.protocols[-1]
        options = "".join(f" --set {shlex.quote(one)}" for one in sets)
        command = f"pezoo bench --protocol {shlex.quote(name)}{options} {text.request(filled)}"
        click.echo(f"no run fills it yet: {command}", err=True)
    if form == "table":
        click.echo(text.as_text(filled, get_terminal_size((80, 24)).columns), nl=False)
    else:
        render = {"markdown": text.as_markdown, "csv": text.as_csv, "json": text.as_json}[form]
        click.echo(render(filled), nl=False)


def _list(paper: Paper) -> None:
    click.echo(f"{paper.authors} ({paper.year}): {paper.title}. {paper.url}")
    for number, table in paper.tables.items():
        click.echo(f"  {number}  {table.title}")


def _protocols(paper: Paper, name: str | None, sets: tuple[str, ...]) -> list[Protocol]:
    """Those that may fill the table."""
    from harness.settings.protocol import load_protocol

    return [load_protocol(one, sets) for one in ([name] if name else paper.protocols)]


def _filled(
    paper: Paper,
    number: str,
    records: Sequence[Record],
    protocols: Sequence[Protocol],
    lengths: frozenset[int] | None,
) -> Filled:
    """The table filled by the first protocol that has runs; where none has, the last one's."""
    from leaderboard.papers.cells import fill

    tables = [fill(paper, number, records, protocol, lengths) for protocol in protocols]
    return next((table for table in tables if table.runs), tables[-1])


def _lengths(text: str | None) -> frozenset[int] | None:
    if text is None:
        return None
    from leaderboard.seeds import parse_seeds

    try:
        return frozenset(parse_seeds(text))
    except ValueError:
        raise click.UsageError(f"--lengths {text!r}: expected as in 42-100 or 60,80") from None


def _records(runs: str, records: str | None) -> list[Record]:
    from leaderboard.records import RECORDS, load

    source = Path(records) if records else RECORDS
    if not source.is_dir():
        raise click.UsageError(f"no folder {source}")
    fresh = [Path(runs)] if Path(runs).is_dir() else []
    found, problems = load([*fresh, source])
    for problem in problems:
        click.echo(f"left out: {problem}", err=True)
    return found
