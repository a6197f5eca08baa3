"""`pezoo table`: tables and figures of a paper, filled from records."""

from __future__ import annotations

import shlex
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from harness.cli.options import form, records_folder

if TYPE_CHECKING:
    from leaderboard.papers.cells import Filled
    from leaderboard.papers.paper import Paper
    from leaderboard.record.schema import Record


@click.command()
@click.argument("paper", required=False)
@click.argument("number", required=False)
@click.option("--figure", help="Number of a figure; with --out also its pictures.")
@click.option("--out", help="Folder for the pictures of a figure.")
@form
@click.option(
    "--protocol", help="Protocol of the runs.  [default: the paper's, or its mini version]"
)
@click.option("--set", multiple=True, help="Change a setting of the protocol; repeatable.")
@click.option("--lengths", help="Test lengths that count, as 42-100.  [default: all unseen]")
@click.option(
    "--runs", default="runs", show_default=True, help="Folder of fresh runs, if it exists."
)
@click.option("--records", help="Committed records; the package's own by default.")
def command(**options: Any) -> None:
    """Print a table of a paper: our number, the paper's, and the difference.

    PAPER is chen2026, crasp, prism2025, ruoss2023 or turing2024. Without NUMBER, list its tables
    and figures, or print the only one. Where no table has NUMBER, it is a figure.

    pezoo table ruoss2023 1
    """
    from leaderboard.papers.paper import names, read

    typed = SimpleNamespace(**options)
    if typed.paper is None:
        raise click.UsageError(f"expected a paper: {', '.join(names())}")
    paper = read(typed.paper)
    if typed.figure and typed.number:
        raise click.UsageError("NUMBER and --figure exclude each other")
    if not typed.figure and not paper.figures and len(paper.tables) == 1:
        typed.number = typed.number or next(iter(paper.tables))
    if typed.number not in paper.tables and (typed.number in paper.figures or not paper.tables):
        typed.figure = typed.figure or typed.number
    if typed.out is not None and not (typed.out and typed.figure):
        raise click.UsageError("--out needs a folder and --figure")
    if typed.figure or typed.number:
        _show(typed, paper)
        return
    source = click.get_current_context().get_parameter_source
    for name in ("format", "lengths", "set", "protocol", "runs", "records"):
        if source(name) is ParameterSource.COMMANDLINE:
            raise click.UsageError(f"--{name} needs NUMBER or --figure")
    _list(paper)


def _show(options: SimpleNamespace, paper: Paper) -> None:
    from leaderboard.papers import text
    from leaderboard.papers.pictures import draw
    from leaderboard.record.refusals import refusals

    filled = _filled(options, paper)
    empty = sum(not cell.runs for cell in filled.cells)
    if empty and not filled.part.gains:
        click.echo(f"{empty} of {len(filled.cells)} cells have no run; to fill them:", err=True)
        for command in _bench(options, filled):
            click.echo(f"  {command}", err=True)
    for run in filled.runs:
        if reasons := [*refusals(run)]:
            click.echo(f"pezoo leaderboard check refuses run {run.run}: {reasons[0]}", err=True)
    render = {"markdown": text.as_markdown, "csv": text.as_csv, "json": text.as_json}
    show = render.get(options.format, text.as_text)
    click.echo(show(filled), nl=False)
    if options.figure and options.out is None:
        click.echo("with --out FOLDER, pictures of it", err=True)
    for path in draw(filled, Path(options.out)) if options.out else ():
        click.echo(f"picture {path}", err=True)


def _filled(options: SimpleNamespace, paper: Paper) -> Filled:
    """Fill the table or figure by the first protocol that has runs."""
    from harness.settings.protocol import load_protocol
    from leaderboard.papers.cells import filled_by_first

    part = paper.figure(options.figure) if options.figure else paper.table(options.number)
    if options.lengths and (part.along or part.measure in ("hours", "pairs")):
        raise click.UsageError(f"--lengths: {part.label} has no test lengths to choose from")
    lengths = _lengths(options.lengths)
    if any(one.partition("=")[0].strip() == "train.lr" for one in options.set):
        raise click.UsageError("--set train.lr is not supported: cells combine all learning rates")
    names = [options.protocol] if options.protocol else part.protocols
    protocols = [load_protocol(name, options.set) for name in names]
    records, full = _records(options), load_protocol(part.protocols[0])
    filled = filled_by_first(paper, part, records, protocols, lengths, full)
    tested = {score.length for run in filled.runs for score in run.scores.last if not score.seen}
    if lengths and tested and lengths.isdisjoint(tested):
        raise click.UsageError(
            f"--lengths {options.lengths}: no run is tested there; runs are tested at "
            f"{', '.join(map(str, sorted(tested)))}"
        )
    return filled


def _list(paper: Paper) -> None:
    click.echo(f"{paper.authors} ({paper.year}): {paper.title}. {paper.url}".rstrip())
    for number, table in paper.tables.items():
        click.echo(f"  {number}  {table.title}")
    for number, figure in paper.figures.items():
        click.echo(f"  --figure {number}  {figure.title}")


def _bench(options: SimpleNamespace, filled: Filled) -> list[str]:
    """Return commands that fill the empty cells, at each learning rate of the paper."""
    from experiment.protocol import base
    from leaderboard.papers.caption import requests

    name = options.protocol or base(filled.protocol.name)
    typed = [one for one in options.set if not one.startswith("eval.curve_lengths")]
    sets = "".join(f" --set {shlex.quote(one)}" for one in typed)
    own = name == filled.paper.protocols[0] and filled.paper.rates
    rates = [
        "" if rate == filled.protocol.train.lr else f" --set train.lr={rate}" for rate in own or ()
    ]
    return [
        f"pezoo bench --protocol {shlex.quote(name)}{sets}{rate} {one}"
        for one in requests(filled)
        for rate in rates or [""]
    ]


def _lengths(text: str | None) -> frozenset[int] | None:
    if text is None:
        return None
    from experiment.seeds import MOST, parse_seeds

    try:
        lengths = frozenset(parse_seeds(text))
    except ValueError:
        lengths = frozenset()
    if not lengths or min(lengths) < 1:
        raise click.UsageError(
            f"--lengths {text!r}: expected lengths from 1 on, at most {MOST:,}, as 42-100 or 60,80"
        )
    return lengths


def _records(options: SimpleNamespace) -> list[Record]:
    from leaderboard.record.read import load

    source = records_folder(options.records)
    fresh = [Path(options.runs)] if Path(options.runs).is_dir() else []
    found, problems = load([*fresh, source])
    for problem in problems:
        click.echo(f"left out: {problem}", err=True)
    return found
