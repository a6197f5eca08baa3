"""The pages that `pezoo bench` writes: its runs, beside the committed ones of their protocols."""

from collections.abc import Sequence
from pathlib import Path

import click

from experiment.protocol import base
from harness.settings.catalog import read_catalog
from leaderboard.build import build
from leaderboard.record.read import RECORDS, load, paths_of
from leaderboard.record.schema import Record
from leaderboard.render import site

FOLDER = "leaderboard"  # in that of the runs


def claim_site(runs: Path) -> None:
    """Make the folder of the site. Errors: ValueError or OSError if it cannot be one."""
    try:
        site.claim(runs / FOLDER)
    except OSError as error:
        raise OSError(_refusal(runs, error)) from error


def write_pages(runs: Path, records: Sequence[Record], known: str | None, anew: bool) -> None:
    """Build the site and print a link to `records`; unless `anew`, keep one that has them, and only
    warn if none can be written.

    `known` is the folder of records that counted as done, if any.
    """
    out, done = runs / FOLDER, {record.run for record in records if record.status == "done"}
    if anew or not site.holds(out, done):
        click.echo("\nwriting the pages", err=True)
        try:
            report = build(runs, _sources(runs, records, known), out, None, catalog=read_catalog())
        except OSError as error:
            if not anew:  # an archive that cannot be written
                click.echo(f"warning: {_refusal(runs, error)}", err=True)
                return
            raise OSError(_refusal(runs, error)) from error
        # Of a run that is committed too the committed record counts: machines round differently.
        bad = [one for one in report.problems if ": other scores for run " not in one]
        if bad:
            others = f", and {n} more files" if (n := len(bad) - 1) else ""
            click.echo(f"left out: {bad[0]}{others}", err=True)
    click.echo(f"\nleaderboard: {site.address(out, {record.run for record in records})}")


def _sources(runs: Path, records: Sequence[Record], known: str | None) -> list[Path]:
    """Return the committed records of the protocols that ran, and those of `known` that counted."""
    ran = {base(record.protocol) for record in (*load([runs], once=False)[0], *records)}
    folders = sorted(RECORDS.iterdir()) if RECORDS.is_dir() else []
    ids = {record.run for record in records}
    counted = paths_of([known], []) if known else []
    return [path for path in folders if base(path.name) in ran] + [
        path for path in counted if ids & {path.stem, path.parent.name}
    ]


def _refusal(runs: Path, error: OSError) -> str:
    return f"cannot write the leaderboard {runs / FOLDER}: {error.strerror}"
