"""Checks before the first training step."""

from __future__ import annotations

import errno
import json
import os
from pathlib import Path
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from experiment.config import RunConfig
    from harness.settings.sweep import Sweep


def writable(folder: Path) -> None:
    """Create the folder if needed. Errors: UsageError; OSError if the disk is full."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        probe = folder / f".probe-{os.getpid()}"
        probe.touch()
        probe.unlink()
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise
        why = "it is a file" if folder.is_file() else error.strerror
        raise click.UsageError(f"cannot write to --runs {folder}: {why}") from error


def check_builds(configs: list[RunConfig]) -> None:
    """Build one model per encoding and task."""
    for config in {(c.encoding, c.task): c for c in configs}.values():
        _check_build(config)


def _check_build(config: RunConfig) -> None:
    from harness.runs.record import failure_reason
    from harness.tasks.base import TaskError
    from harness.training.trainer import build
    from pezoo.base import Encoding
    from pezoo.functional import parameter_groups
    from pezoo.prf import prf_of

    try:
        # No optimiser: with it torch imports its compiler, and that Triton, for seconds.
        model = build(config.replace(device="cpu"))[1]
        parameter_groups(model)
        for part in model.encoding.modules():  # an encoding may stand inside another
            if isinstance(part, Encoding):
                # Raises TaskError where it reads a PRF that the task does not define.
                prf_of(part, 2, scale=1, task_prf=model.task_prf)
    except TaskError as error:
        raise TaskError(f"{config.encoding} cannot run on {config.task}: {error}") from error
    except ValueError:
        raise
    except Exception as error:  # a plug-in may raise any exception
        raise click.UsageError(
            f"{config.encoding} on {config.task} cannot be built: {failure_reason(error)}"
        ) from error


def check_records(configs: list[RunConfig], command: str, sweep: Sweep | None = None) -> None:
    """Check that the leaderboard reads records with these settings. Errors: UsageError."""
    from harness.runs.record import blank_record
    from harness.settings.sweep import blank_tuning
    from leaderboard.record.read import LARGEST_FILE, reason
    from leaderboard.record.schema import Record

    origin = {"tuning": blank_tuning(sweep)} if sweep else {}
    last = sorted(configs, key=lambda config: config.seed)  # the largest seed of each kind
    for config in {(c.encoding, c.task, c.protocol): c for c in last}.values():
        record = blank_record(config, command)
        record["provenance"] |= origin
        text = json.dumps(record, indent=1)
        try:
            if len(text) > LARGEST_FILE:
                curve = f"train.steps {config.train.steps} and eval.every {config.eval.every} make"
                raise ValueError(f"{curve} {len(text)} bytes; a record has at most {LARGEST_FILE}")
            Record.parse(text)
        except ValueError as error:
            raise click.UsageError(f"no record can hold these settings: {reason(error)}") from error
