"""`pezoo bench --keep-predictions`: what finished runs answer to their test sets, as files."""

import gzip
import json
from collections.abc import Sequence
from pathlib import Path

import click

from experiment.config import RunConfig
from harness.cli.show import restore, started
from harness.runs.files import write
from harness.runs.folder import RunFolder
from harness.training.predictions import predictions
from leaderboard.record.read import PREDICTIONS, kept_predictions
from leaderboard.record.schema import Record


def keep_predictions(
    configs: Sequence[RunConfig], records: Sequence[Record], folder: Path
) -> list[Path]:
    """Write `PREDICTIONS` beside the record of every finished run without; return the paths.

    Answers are those of the last checkpoint, on this machine's CPU. Runs without one here, and
    those on text, which has no answers, are left out with a warning. Errors: WriteError.
    """
    done, paths = {record.run for record in records if record.status == "done"}, []
    missing = done - {*kept_predictions(folder, done, [])}
    for config in configs:
        path = RunFolder(folder, config).path / PREDICTIONS
        if config.hash not in missing:
            continue
        trainer = None if config.track == "text" else started(config)
        if trainer is None or not restore(trainer, config, str(folder)):
            why = "text has no answers" if trainer is None else "it has no checkpoint here"
            click.echo(f"warning: no predictions of run {config.hash}: {why}", err=True)
            continue
        lines = (json.dumps(one) + "\n" for one in predictions(trainer.model, trainer.task, config))
        write(path, gzip.compress("".join(lines).encode(), mtime=0))
        click.echo(f"predictions: {path}", err=True)
        paths.append(path)
    return paths
