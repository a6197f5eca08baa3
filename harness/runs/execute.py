"""One run from start, or from where it stopped, to its record."""

from __future__ import annotations

import math
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from harness.runs import cost, heap
from harness.runs.environment import data_hash
from harness.runs.files import WriteError, write, write_json
from harness.runs.folder import Curve, RunFolder
from harness.runs.rate import Pace
from harness.runs.record import frame, now, reason
from harness.runs.scores import scores_of
from harness.settings.protocol import RunConfig
from harness.training.evaluate import score_all, validate
from harness.training.trainer import Diverged, Trainer, start
from pezoo.base import PositionError

Progress = Callable[[dict[str, Any]], None]
Stop = Callable[[], bool]
Begin = Callable[[RunConfig], Trainer]


class Stopped(Exception):
    """Training was asked to stop and did, after saving a checkpoint."""


def execute(
    config: RunConfig,
    root: Path,
    command: str,
    report: Progress,
    stop: Stop = lambda: False,
    begin: Begin = start,
) -> dict[str, Any]:
    """Train and evaluate one run in its folder, resuming if it can; the record.

    A run that fails is a record too, with status "failed" and the reason. `stop` is asked after
    every training step; `begin` makes the trainer.
    Errors: filelock.Timeout when another process is at it, WriteError when a file cannot be
    written, Stopped.
    """
    folder = RunFolder(root, config)
    with folder.lock():
        done = folder.result()
        if done is not None:
            return done
        record = opened(folder, command)
        return settled(
            folder, record, lambda: _train_and_score(begin, folder, report, stop, record)
        )


def opened(folder: RunFolder, command: str) -> dict[str, Any]:
    """Make a run's folder ready; the record that is to be filled in."""
    folder.tidy()
    write_json(folder.path / "config.json", folder.config.model_dump(mode="json"))
    return frame(folder.config, command)


def settled(folder: RunFolder, record: dict[str, Any], work: Callable[[], None]) -> dict[str, Any]:
    """Do what fills in the record, and write it; what fails is a record too.

    Errors: WriteError and Stopped, which say nothing about the run.
    """
    final = True
    try:
        work()
    except (Stopped, WriteError):
        raise
    except Exception as error:
        record |= {"status": "failed", "reason": reason(error)}
        # These would end the same way again; others may depend on the machine or on code.
        final = isinstance(error, Diverged | PositionError)
        write(folder.path / "traceback.txt", traceback.format_exc().encode())
    return _finish(folder, record, final)


def fail(config: RunConfig, root: Path, command: str, why: str) -> dict[str, Any]:
    """The record of a run whose process cannot write one, unless it did. Errors: as `execute`."""
    folder = RunFolder(root, config)
    with folder.lock():
        record = frame(config, command) | {"status": "failed", "reason": why}
        return folder.result() or _finish(folder, record, final=False)


def _finish(folder: RunFolder, record: dict[str, Any], final: bool) -> dict[str, Any]:
    record["provenance"] |= folder.origin()
    record["provenance"]["finished"] = now()
    folder.finish(record, final)
    return record


def _train_and_score(
    begin: Begin, folder: RunFolder, report: Progress, stop: Stop, record: dict[str, Any]
) -> None:
    """Fill in the record; what is known so far also when an error ends it."""
    threads = torch.get_num_threads()
    trainer, curve = began(begin, folder, record)
    try:
        train(trainer, folder, curve, report, stop)
        score(trainer, folder, curve, report, record)
    finally:
        note(trainer, curve, record)
        torch.set_num_threads(threads)


def began(begin: Begin, folder: RunFolder, record: dict[str, Any]) -> tuple[Trainer, Curve]:
    """The trainer, where its last checkpoint left it, and its learning curve.

    Takes the number of threads of the run's first session, by which sums are rounded.
    """
    config = folder.config
    heap.keep()
    cost.forget_peak_memory(config.device)
    record["data_hash"] = data_hash(config)
    trainer = begin(config)
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


def score(
    trainer: Trainer, folder: RunFolder, curve: Curve, report: Progress, record: dict[str, Any]
) -> None:
    """Evaluate what training left."""
    report({"step": trainer.step, "phase": "evaluating"})
    with cost.timed(curve["cost"], "eval"):
        record["scores"], record["modes"] = scores_of(trainer, folder, curve)


def note(trainer: Trainer, curve: Curve, record: dict[str, Any]) -> None:
    """What is known so far, also when an error has ended it."""
    record["learning"], record["best_step"] = curve["points"], curve["best_step"]
    cost.note_peak_memory(curve["cost"], trainer.config.device)
    cost.note_attention(curve["cost"], trainer)
    record["env"]["attention_ran"] = curve["cost"]["attention"]
    record["cost"] = cost.summary(trainer, curve["cost"])


def resume(trainer: Trainer, folder: RunFolder, last: int | None = None) -> Curve:
    """Go on from the newest checkpoint, or the newest up to step `last`; the learning curve."""
    curve = folder.restore(trainer, last)
    if curve is None:
        return _new_curve()
    curve["cost"]["sessions"] += 1
    torch.set_num_threads(curve["cost"]["threads"])  # sums are rounded as they would have been
    return curve


def _new_curve() -> Curve:
    return {
        "points": [],
        "full": [],
        "best_step": None,
        "best_exact": -1.0,
        "best_sha256": "",
        "cost": cost.new(),
    }


def train(trainer: Trainer, folder: RunFolder, curve: Curve, report: Progress, stop: Stop) -> None:
    """All steps that are left. Errors: Stopped, and what ends a run."""
    settings, spent = trainer.config, curve["cost"]
    with cost.watching_data(trainer, spent):
        while trainer.step < settings.train.steps:
            with cost.timed(spent, "train"):
                loss = _advance(trainer, curve, report, stop)
            stopped = stop()
            keep(trainer, folder, curve, loss, stopped)
            if stopped:
                raise Stopped(f"step {trainer.step} of {settings.train.steps}")


def keep(
    trainer: Trainer, folder: RunFolder, curve: Curve, loss: float, stopped: bool = False
) -> None:
    """Measure and save, if this is a step to do so; save in any case if training is to stop."""
    settings, spent = trainer.config, curve["cost"]
    last = trainer.step == settings.train.steps
    if trainer.step % settings.eval.every == 0 or last:
        with cost.timed(spent, "eval"):
            _measure(trainer, folder, curve, loss)
    if trainer.step % settings.train.checkpoint_every == 0 or last or stopped:
        cost.note_peak_memory(spent, settings.device)
        cost.note_attention(spent, trainer)
        with cost.timed(spent, "save"):
            folder.save(trainer, curve)


def next_stop(trainer: Trainer) -> int:
    """The next step after which `keep` has something to do."""
    settings, step = trainer.config, trainer.step
    every = (settings.eval.every, settings.train.checkpoint_every)
    return min(settings.train.steps, *(step - step % n + n for n in every))


def _advance(trainer: Trainer, curve: Curve, report: Progress, stop: Stop) -> float:
    """Steps up to the next one that is measured or saved, or until asked to stop; the last loss."""
    pace, until, loss = Pace(), next_stop(trainer), math.nan
    while trainer.step < until:
        loss = trainer.advance()
        if rate := pace.due(trainer.step):
            points = curve["points"]
            exact = points[-1]["exact"] if points else None
            report({"step": trainer.step, "loss": loss, "exact": exact, "rate": rate})
        if stop():
            break
    return loss


def _measure(trainer: Trainer, folder: RunFolder, curve: Curve, loss: float) -> None:
    """A point of the learning curve; the best model is chosen on training lengths alone."""
    exact = validate(trainer.model, trainer.task, trainer.config)
    curve["points"].append({"step": trainer.step, "loss": loss, "exact": exact})
    if exact >= curve["best_exact"]:
        curve["best_step"], curve["best_exact"] = trainer.step, exact
        curve["best_sha256"] = folder.save_best(trainer)
    if trainer.config.eval.top:
        curve["full"].append(score_all(trainer.model, trainer.task, trainer.config))
