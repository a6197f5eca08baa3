"""One run from start, or from where it stopped, to its record."""

from __future__ import annotations

import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from harness.runs import cost, heap
from harness.runs.environment import data_hash
from harness.runs.events import Event, Report, Stop, Stopped, ended_by
from harness.runs.files import WriteError, write, write_json
from harness.runs.folder import Curve, RunFolder
from harness.runs.rate import Rate
from harness.runs.record import failure_reason, new_record, now
from harness.runs.scores import scores_of
from harness.settings.config import RunConfig
from harness.training.evaluate import score_all, validate
from harness.training.losses import Diverged
from harness.training.trainer import Trainer, start
from pezoo.base import PositionError

Record = dict[str, Any]
MakeTrainer = Callable[[RunConfig], Trainer]


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
    folder = RunFolder(root, config)
    with folder.lock():
        done = folder.result()
        if done is not None:
            return done
        record = open_record(folder, command)

        def fill() -> None:
            threads = torch.get_num_threads()
            trainer, curve = begin(folder, record, make_trainer)
            try:
                train(trainer, folder, curve, report, stop)
                evaluate(trainer, folder, curve, report, record)
            finally:
                note_results(trainer, curve, record)
                torch.set_num_threads(threads)

        return close_record(folder, record, fill)


def attempt(
    config: RunConfig,
    root: Path,
    command: str,
    report: Report,
    stop: Stop = never,
    make_trainer: MakeTrainer = start,
) -> Event:
    """As `execute`, but it returns the run's last event, whatever error ended it."""
    try:
        return {"record": execute(config, root, command, report, stop, make_trainer)}
    except Exception as error:
        return ended_by(error)


def record_failure(config: RunConfig, root: Path, command: str, reason: str) -> Record:
    """Write the record of a run whose process died, unless it has one. Errors: as `execute`."""
    folder = RunFolder(root, config)
    with folder.lock():
        record = new_record(config, command) | {"status": "failed", "reason": reason}
        return folder.result() or _write(folder, record, final=False)


def open_record(folder: RunFolder, command: str) -> Record:
    """Prepare a run's folder; the record to be filled in."""
    folder.tidy()
    write_json(folder.path / "config.json", folder.config.model_dump(mode="json"))
    return new_record(folder.config, command)


def close_record(folder: RunFolder, record: Record, fill: Callable[[], None]) -> Record:
    """Call `fill`, which completes the record, and write it; with the reason where `fill` fails.

    Errors: WriteError and Stopped, which say nothing about the run.
    """
    final = True
    try:
        fill()
    except (Stopped, WriteError):
        raise
    except Exception as error:
        record |= {"status": "failed", "reason": failure_reason(error)}
        # These would happen again; other errors may depend on the machine or on code.
        final = isinstance(error, Diverged | PositionError)
        write(folder.path / "traceback.txt", traceback.format_exc().encode())
    return _write(folder, record, final)


def _write(folder: RunFolder, record: Record, final: bool) -> Record:
    record["provenance"] |= folder.origin()
    record["provenance"]["finished"] = now()
    folder.finish(record, final)
    return record


def begin(
    folder: RunFolder, record: Record, make_trainer: MakeTrainer = start
) -> tuple[Trainer, Curve]:
    """The trainer, restored from its last checkpoint, and its learning curve.

    Uses as many threads as the run's first session, because sums are rounded by them.
    """
    config = folder.config
    cost.forget_peak_memory(config.device)
    heap.keep()
    record["data_hash"] = data_hash(config)
    trainer = make_trainer(config)
    record["backbone_hash"] = trainer.model.backbone_hash()
    record["chance"] = trainer.task.chance
    curve = resume(trainer, folder)
    record["env"] |= {
        "threads": torch.get_num_threads(),
        "attention": trainer.model.attention,
        "kernels": trainer.model.kernels(),
        **trainer.spread,
    }
    return trainer, curve


def resume(trainer: Trainer, folder: RunFolder, last: int | None = None) -> Curve:
    """Restore the newest checkpoint (at most step `last`); the learning curve so far."""
    curve = folder.restore(trainer, last)
    if curve is None:
        return {
            "points": [],
            "full": [],
            "best_step": None,
            "best_exact": -1.0,
            "best_sha256": "",
            "cost": cost.new(),
        }
    curve["cost"]["sessions"] += 1
    torch.set_num_threads(curve["cost"]["threads"])
    return curve


def train(trainer: Trainer, folder: RunFolder, curve: Curve, report: Report, stop: Stop) -> None:
    """Take all steps that are left. Errors: Stopped, and what makes a run fail."""
    steps, spent = trainer.config.train.steps, curve["cost"]
    with cost.watching_data(trainer, spent):
        while trainer.step < steps:
            with cost.timed(spent, "train"):
                loss = _advance(trainer, curve, report, stop)
            stopped = stop()
            validate_and_save(trainer, folder, curve, loss, stopped)
            if stopped:
                raise Stopped(f"step {trainer.step} of {steps}")


def _advance(trainer: Trainer, curve: Curve, report: Report, stop: Stop) -> float:
    """Train to the next pause, or until asked to stop; the last loss."""
    rate, until = Rate(), next_pause(trainer)
    while trainer.step < until:
        trainer.advance()
        if per_second := rate.due(trainer.step):
            report(training_event(trainer, curve, trainer.read(), per_second))
        if stop():
            break
    return trainer.read()


def training_event(trainer: Trainer, curve: Curve, loss: float, rate: float) -> Event:
    """Where training stands, with the last validation."""
    points = curve["points"]
    exact = points[-1]["exact"] if points else None
    return {"step": trainer.step, "loss": loss, "exact": exact, "rate": rate}


def next_pause(trainer: Trainer) -> int:
    """The next step after which `validate_and_save` has something to do."""
    settings, step = trainer.config, trainer.step
    every = (settings.eval.every, settings.train.checkpoint_every)
    return min(settings.train.steps, *(step - step % n + n for n in every))


def validate_and_save(
    trainer: Trainer, folder: RunFolder, curve: Curve, loss: float, stopped: bool = False
) -> None:
    """Validate and save a checkpoint where this step is due; save anyway if training stops."""
    settings, spent = trainer.config, curve["cost"]
    last = trainer.step == settings.train.steps
    if trainer.step % settings.eval.every == 0 or last:
        with cost.timed(spent, "eval"):
            _validate(trainer, folder, curve, loss)
    if trainer.step % settings.train.checkpoint_every == 0 or last or stopped:
        cost.note_peak_memory(spent, settings.device)
        cost.note_attention(spent, trainer)
        with cost.timed(spent, "save"):
            folder.save(trainer, curve)


def _validate(trainer: Trainer, folder: RunFolder, curve: Curve, loss: float) -> None:
    """Add a point to the learning curve; training lengths alone choose the best model."""
    exact = validate(trainer.model, trainer.task, trainer.config)
    curve["points"].append({"step": trainer.step, "loss": loss, "exact": exact})
    if exact >= curve["best_exact"]:
        curve["best_step"], curve["best_exact"] = trainer.step, exact
        curve["best_sha256"] = folder.save_best(trainer)
    if trainer.config.eval.top:
        curve["full"].append(score_all(trainer.model, trainer.task, trainer.config))


def evaluate(
    trainer: Trainer, folder: RunFolder, curve: Curve, report: Report, record: Record
) -> None:
    """Score the trained models at every test length."""
    report({"step": trainer.step, "phase": "evaluating"})
    with cost.timed(curve["cost"], "eval"):
        record["scores"], record["modes"] = scores_of(trainer, folder, curve)


def note_results(trainer: Trainer, curve: Curve, record: Record) -> None:
    """Put what is known into the record, also where an error ended the run."""
    record["learning"], record["best_step"] = curve["points"], curve["best_step"]
    cost.note_peak_memory(curve["cost"], trainer.config.device)
    cost.note_attention(curve["cost"], trainer)
    record["env"]["attention_ran"] = curve["cost"]["attention"]
    record["cost"] = cost.summary(trainer, curve["cost"])
