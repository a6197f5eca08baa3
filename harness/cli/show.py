"""`pezoo show RUN`: one run in words."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click


@click.command()
@click.argument("run")
@click.option("--runs", default="runs", show_default=True, help="Folder of the runs.")
def command(run: str, runs: str) -> None:
    """Print one run's scores, cost and settings. RUN is its hash, or the start of it."""
    from tabulate import tabulate

    record = find(run, runs)
    click.echo(
        f"{record['encoding']} on {record['task']}, seed {record['seed']}, {record['protocol']}"
    )
    if record["status"] == "failed":
        click.echo(f"failed: {record['reason']}")
        return
    for name, scores in record["scores"].items():
        click.echo(f"\n{name} checkpoint")
        rows = [[s["length"], _exact(s), s["token"], s["method"], s["note"]] for s in scores]
        click.echo(
            tabulate(rows, headers=["length", "exact", "token", "method", "note"], floatfmt=".3f")
        )
    for part in ("cost", "env"):
        click.echo(f"\n{part}\n{tabulate(record[part].items())}")


def find(run: str, runs: str) -> dict[str, Any]:
    """The finished record whose hash starts with `run`. Errors: UsageError."""
    from harness.runs import finished

    folders = sorted(p for p in Path(runs).glob(f"{run}*") if p.is_dir()) if run.isalnum() else []
    folders = [p for p in folders if (p / "config.json").is_file()]
    if len(folders) != 1:
        found = ", ".join(p.name for p in folders[:5]) or "none"
        raise click.UsageError(f"expected one run starting with {run!r} in {runs}, found {found}")
    record = finished(folders[0])
    if record is None:
        raise click.UsageError(f"run {folders[0].name} is not finished")
    return record


def _exact(score: dict[str, Any]) -> object:
    return score["status"] if score["exact"] is None else score["exact"]
