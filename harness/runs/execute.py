"""From settings to a record: train and evaluate one run in its folder."""

from __future__ import annotations

from pathlib import Path

import torch

from experiment.config import RunConfig
from harness.runs.events import Event, Report, Stop, ended_by
from harness.runs.folder import RunFolder
from harness.runs.record import new_record
from harness.runs.run import MakeTrainer, Record, Run, close_record, open_record, write_record
from harness.training.trainer import start


def never() -> bool:
    """A `stop` that lets a run train to its end."""
    return False


def execute(
    config: RunConfig,
    root: Path,
    command: str,
    report: Report,
    stop: Stop = never,
    make_trainer: MakeTrainer = start,
) -> Record:
    """Train and evaluate one run in its folder and return its record; resume where possible.

    A run that fails has a record too, with status "failed" and the reason. `stop` is called after
    every training step.
    Errors: filelock.Timeout when another process trains this run, WriteError when a file cannot be
    written, Stopped.
    """
    folder, threads = RunFolder(root, config), torch.get_num_threads()
    try:
        with folder.lock():
            done = folder.result()
            if done is not None:
                return done
            record = open_record(folder, command)

            def fill() -> None:
                run = Run.begin(folder, record, make_trainer)
                try:
                    run.train(report, stop)
                    run.evaluate(report)
                finally:
                    run.note_results()

            return close_record(folder, record, fill)
    finally:
        torch.set_num_threads(threads)


def last_event(
    config: RunConfig,
    root: Path,
    command: str,
    report: Report,
    stop: Stop,
    make_trainer: MakeTrainer = start,
) -> Event:
    """Execute a run and return its last event, as `harness.runs.events` lists them."""
    try:
        return {"record": execute(config, root, command, report, stop, make_trainer)}
    except Exception as error:
        return ended_by(error)


def record_failure(config: RunConfig, root: Path, command: str, reason: str) -> Record:
    """Write the record of a run whose process died, unless it has one. Errors: as `execute`."""
    folder = RunFolder(root, config)
    with folder.lock():
        record = new_record(config, command) | {"status": "failed", "reason": reason}
        return folder.result() or write_record(folder, record, final=False)
