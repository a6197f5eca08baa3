"""Options that several commands share."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

FORMATS = ("table", "json", "csv", "markdown")
THREADS = click.IntRange(1, 1024)

runs = click.option("--runs", default="runs", show_default=True, help="Folder of the runs.")
protocol = click.option(
    "--protocol", default="quick", show_default=True, help="A name or a TOML file."
)
settings = click.option(
    "--set", multiple=True, help="Change a setting: --set train.steps=500. The last counts."
)
log = click.option(
    "--log",
    callback=lambda _, __, names: tuple(name.strip() for name in (names or "").split(",") if name),
    help="Logs of training, with commas: tensorboard, wandb, trackio.",
)
form = click.option("--format", type=click.Choice(FORMATS), default="table", show_default=True)


def device(default: str) -> Callable[[Any], Any]:
    return click.option(
        "--device", default=default, show_default=True, help="auto, cpu, cuda, cuda:N or mps."
    )


def records_folder(typed: str | None) -> Path:
    """Return the folder of committed records, the package's own by default."""
    from leaderboard.record.read import RECORDS

    source = Path(typed) if typed else RECORDS
    if not source.is_dir():
        raise click.UsageError(f"no folder {source}")
    return source
