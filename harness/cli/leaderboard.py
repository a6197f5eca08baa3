"""`pezoo leaderboard build|open|check|add|submit|rerun`."""

from __future__ import annotations

import shlex
import webbrowser
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import click

from harness.cli import options

if TYPE_CHECKING:
    from leaderboard.check import Verify
    from leaderboard.record.clashes import Alike

_out = click.option(
    "--out", default="leaderboard/site", show_default=True, help="Folder of the site."
)
OWN = "records"  # the user's folder, which no repository has
PAGE = "leaderboard/LEADERBOARD.md"
_markdown = click.option(
    "--markdown", default=PAGE, show_default=True, help="The page in Markdown."
)
_records = click.option(
    "--records", help="Folder of committed records; the package's own by default."
)
_protocols = click.option(
    "--protocol",
    multiple=True,
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="A protocol's file of your own that records name.",
)


@click.group()
def command() -> None:
    """Build, open and check the leaderboard, add runs to it, and repeat them."""


@command.command("build")
@click.option("--runs", help="Folder of runs to include.")
@_records
@_out
@click.option("--markdown", help=f"The page in Markdown.  [default: {PAGE}, if published]")
@click.option("--source", help="Web address of the repository's files, for links.")
def build_command(
    runs: str | None, records: str | None, out: str, markdown: str | None, source: str | None
) -> None:
    """Read records, write LEADERBOARD.md and the site.

    LEADERBOARD.md shows published records: with --runs or other --records it is left alone.
    """
    from harness.settings.catalog import read_catalog
    from leaderboard.build import build
    from leaderboard.processes import usable
    from leaderboard.record.read import RECORDS
    from leaderboard.render.site import Built

    if not out:
        raise click.UsageError("--out expects a folder, got an empty name")
    if Path(out).exists() and not Path(out).is_dir():
        raise click.UsageError(f"--out expects a folder, {out} is a file")
    if runs is not None and not Path(runs).is_dir():
        what = "a file" if Path(runs).exists() else "not there"
        raise click.UsageError(f"--runs expects a folder, {runs} is {what}")
    folder = options.records_folder(records)
    if markdown is None and runs is None and folder.resolve() == RECORDS.resolve():
        markdown = PAGE
    page = None if markdown is None else Path(markdown)
    if page and page.exists() and not page.is_file():
        what = "a folder" if page.is_dir() else "a device or a pipe"
        raise click.UsageError(f"--markdown expects a file, {markdown} is {what}")
    built = Built.now(_address(source))
    fresh = None if runs is None else Path(runs)
    if page:
        page.parent.mkdir(parents=True, exist_ok=True)
    where = fresh, folder, Path(out), page
    report = build(*where, built, read_catalog(), usable())
    for problem in report.problems:
        click.echo(f"left out: {problem}", err=True)
    also = f" and {page}" if page else ""
    click.echo(f"{report.records} records -> {Path(out) / 'index.html'}{also}")


@command.command("open")
@click.option(
    "--out",
    help="Folder of the site.  [default: the newest of leaderboard/site and runs/leaderboard]",
)
def open_command(out: str | None) -> None:
    """Open the site that was built last in a browser."""
    places = [Path(out)] if out else [Path("leaderboard/site"), Path("runs/leaderboard")]
    found = [index for place in places if (index := place / "index.html").is_file()]
    if not found:
        missing = " and no ".join(str(place / "index.html") for place in places)
        raise click.UsageError(f"there is no {missing} yet: run pezoo leaderboard build")
    index = max(found, key=lambda path: path.stat().st_mtime)
    click.echo(index.resolve().as_uri())
    with suppress(webbrowser.Error):  # without a browser the address is enough
        webbrowser.get().open(index.resolve().as_uri())


@command.command("check")
@click.argument("paths", nargs=-1, type=click.Path(exists=True))
@_records
@_markdown
@_protocols
def check_command(
    paths: tuple[str, ...], records: str | None, markdown: str, protocol: tuple[Path, ...]
) -> None:
    """Validate all records in PATHS; by default the committed ones and their LEADERBOARD.md.

    Exits with 1 if something is refused.
    """
    from harness.cli.progress import watched
    from harness.settings.catalog import read_catalog
    from leaderboard.check import check
    from leaderboard.record.read import load
    from leaderboard.render.markdown import stale
    from leaderboard.stats.tables import tables

    folder = options.records_folder(records)
    known = read_catalog()
    places = [Path(path) for path in paths] or [folder]
    report = check(places, known, not paths, *_recompute(protocol), watched)
    refused = [*report.refused]
    if not paths:
        refused += stale(tables(load([folder])[0], known), Path(markdown), known)
    notes = dict[str, list[str]]()
    for path, note in (line.split(": ", 1) for line in report.warnings):
        notes.setdefault(note, []).append(path)
    for note, own in notes.items():
        click.echo(f"note: {len(own)} records, such as {own[0]}: {note}")
    for line in refused:
        click.echo(f"refused: {line}", err=True)
    click.echo(f"{report.records} records checked, {len(refused)} refused")
    if refused:
        raise SystemExit(1)


@command.command("add")
@click.argument("run", nargs=-1, required=True)
@options.runs
@click.option(
    "--records", default=OWN, show_default=True, help="leaderboard/records publishes them."
)
@_protocols
def add_command(run: tuple[str, ...], runs: str, records: str, protocol: tuple[Path, ...]) -> None:
    """Add records of finished runs to your own: each RUN is an id or a folder."""
    from harness.settings.catalog import read_catalog
    from leaderboard.check import add

    how = _recompute(protocol)
    known = read_catalog()
    for one in run:
        click.echo(f"added {add(one, Path(runs), Path(records or OWN), known, *how)}")
    click.echo(f"now: pezoo leaderboard build --records {shlex.quote(records)}")


@command.command("submit")
@click.argument("run", nargs=-1, required=True)
@options.runs
@click.option("--clone", default=".", show_default=True, help="A clone of pezoo.")
@click.option("--branch", help="Name of the new branch.  [default: records-1, records-2, ...]")
@_protocols
def submit_command(
    run: tuple[str, ...], runs: str, clone: str, branch: str | None, protocol: tuple[Path, ...]
) -> None:
    """Commit records of finished runs to a branch, and print a pull request's text.

    Each RUN is an id or a folder. Nothing is pushed.
    """
    from harness.cli.submit import submit
    from harness.settings.catalog import read_catalog

    how = _recompute(protocol)
    click.echo(submit(run, Path(runs), Path(clone), branch, read_catalog(), how))


@command.command("rerun")
@click.argument("record", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--runs", type=click.Path(path_type=Path), help="Folder to train in; kept.")
@_protocols
def rerun_command(record: Path, runs: Path | None, protocol: tuple[Path, ...]) -> None:
    """Train the run of RECORD, a file of a record, again and say what agrees.

    Exits with 1 if the results differ.
    """
    from harness.cli.rerun import compare, rerun
    from leaderboard.record.read import read

    given = read(record)
    if isinstance(given, str):
        raise click.UsageError(f"{record}: {given}")
    if reasons := [*_recompute(protocol)[0](given)]:
        raise click.UsageError(f"{record}: {'; '.join(reasons)}")
    lines, agrees = compare(given, rerun(given, runs))
    click.echo("\n".join(lines))
    if not agrees:
        raise SystemExit(1)


def _recompute(protocols: tuple[Path, ...]) -> tuple[Verify, Alike]:
    """Return what recomputes records; without torch they are checked for agreement alone."""
    from importlib.util import find_spec

    if find_spec("torch") is None:
        click.echo("note: without torch, nothing is recomputed from settings", err=True)
        return lambda record: (), lambda one, other: True
    from harness.cli.verify import alike, refusals

    return lambda record: refusals(record, protocols), alike


def _address(source: str | None) -> str | None:
    if source and not source.startswith(("https://", "http://")):
        raise click.UsageError(f"--source expects an https address, got {source!r}")
    return source.rstrip("/") if source else None
