"""`pezoo leaderboard build|open`."""

from __future__ import annotations

from pathlib import Path

import click


@click.group()
def command() -> None:
    """Build and open the leaderboard."""


@command.command("build")
@click.option("--runs", default="runs", show_default=True, help="Fresh runs to include, if any.")
@click.option("--records", help="Committed records; the package's own by default.")
@click.option("--out", default="leaderboard/site", show_default=True, help="Folder of the site.")
@click.option(
    "--markdown",
    default="leaderboard/LEADERBOARD.md",
    show_default=True,
    help="The page in Markdown.",
)
def build_command(runs: str, records: str | None, out: str, markdown: str) -> None:
    """Read records, write LEADERBOARD.md and the site."""
    from leaderboard.build import RECORDS, build

    fresh = Path(runs) if Path(runs).is_dir() else None
    source = Path(records) if records else RECORDS
    if not source.is_dir():
        raise click.UsageError(f"no folder {source}")
    page = Path(markdown)
    page.parent.mkdir(parents=True, exist_ok=True)
    report = build(fresh, source, Path(out), page)
    for problem in report.problems:
        click.echo(f"left out: {problem}", err=True)
    click.echo(f"{report.records} records -> {Path(out) / 'index.html'} and {page}")


@command.command("open")
@click.option("--out", default="leaderboard/site", show_default=True, help="Folder of the site.")
def open_command(out: str) -> None:
    """Open the site in a browser."""
    index = Path(out) / "index.html"
    if not index.is_file():
        raise click.UsageError(f"{index} is not there yet: run pezoo leaderboard build")
    click.echo(index.resolve().as_uri())
    click.launch(str(index.resolve()))
