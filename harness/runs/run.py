"""One run, from its settings to its record: train and evaluate it in its folder.

What is drawn at a step depends on the seed and the step alone, so that a run continues from its
last checkpoint as if it had never stopped.
"""

from __future__ import annotations

import math
import time
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from filelock import Timeout

from experiment.config import RunConfig
from harness import tasks
from harness.data.seeds import generator
from harness.runs import cost
from harness.runs.events import Event, Report, Stop, Stopped, holder
from harness.runs.files import WriteError, write
from harness.runs.folder import Curve, RunFolder, StartError, ending
from harness.runs.record import Draft, data_hash, failure_reason, new_record
from harness.training.evaluate import (
    LooksAhead,
    check_decoding,
    examples,
    score_all,
    score_curve,
    score_sets,
    validate,
    validation_examples,
)
from harness.training.trainer import Diverged, Trainer, start
from leaderboard.record.schema import Record
from pezoo.base import PositionError

if TYPE_CHECKING:
    from pathlib import Path

MakeTrainer = Callable[[RunConfig], Trainer]
Rows = list[dict[str, Any]]  # the scores of one evaluation, a row per length


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
            return folder.result() or _execute(folder, command, report, stop, make_trainer)
    finally:
        torch.set_num_threads(threads)


def _execute(
    folder: RunFolder, command: str, report: Report, stop: Stop, make_trainer: MakeTrainer
) -> Record:
    folder.open()
    draft, final = new_record(folder.config, command), True
    try:
        run = Run.begin(folder, draft, make_trainer)
        try:
            run.train(report, stop)
            run.evaluate(report)
        finally:
            run.note_results()
    except (Stopped, WriteError, StartError):  # they say nothing about the run
        raise
    except Exception as error:
        draft |= {"status": "failed", "reason": failure_reason(error)}
        # These would happen again; other errors may depend on the machine or on code.
        final = isinstance(error, Diverged | LooksAhead | PositionError)
        write(folder.path / "traceback.txt", traceback.format_exc().encode())
    return folder.finish(draft, final)


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
    except Timeout as error:
        return {"busy": f"another process is training it{holder(error.lock_file)}"}
    except Stopped as error:
        return {"busy": f"stopped at {error}, checkpoint saved"}
    except StartError as error:
        return {error.args[0]: error.args[1]}
    except OSError as error:  # a run's own errors are in its record
        words = error.strerror if isinstance(error, WriteError) else None
        return {"error": words or str(error), "halt": True}
    except Exception as error:
        return {"error": f"{type(error).__name__}: {' '.join(str(error).split())}"}


def record_failure(config: RunConfig, root: Path, command: str, reason: str) -> Record:
    """Write the record of a run whose process died, unless it has one. Errors: as `execute`."""
    folder = RunFolder(root, config)
    with folder.lock():
        draft = new_record(config, command) | {"status": "failed", "reason": reason}
        return folder.result() or folder.finish(draft, final=False)


def draw_all(config: RunConfig) -> None:
    """Draw every test and validation set once, and a batch of the longest training length.

    Called before the first step: a task may fail at a length that only the tests have, such as a
    Turing machine that does not halt there, and hours of training must not end with that error.
    Errors: those of the task, usually TaskError.
    """
    task, train = tasks.make(config.task), config.train
    lengths = task.lengths(*train.lengths)
    task.sample(generator("ahead", config.seed), train.batch, lengths[-1])
    for length in lengths:
        validation_examples(task, config, length)
    sets = [config.replace_eval(set=one.name, lengths=one.lengths) for one in config.eval.sets]
    for own in (config, *sets):
        for length in own.eval.lengths:
            if task.lengths(length, length):
                examples(task, own, length)


class Rate:
    """Steps per second since the first step, which may have compiled kernels; once a second.

    >>> Rate().due(step=101) is None  # the clock starts here
    True
    """

    def __init__(self) -> None:
        self._first: tuple[int, float] | None = None
        self._reported = -math.inf

    def due(self, step: int) -> float | None:
        """Return steps per second, or None within a second of the last answer."""
        now = time.perf_counter()
        step_0, began = self._first = self._first or (step, now)
        if step == step_0 or now - self._reported < 1:
            return None
        self._reported = now
        return (step - step_0) / (now - began)


@dataclass(eq=False)
class Run:
    """A run in memory; `loss` is that of the last step which was read."""

    folder: RunFolder
    draft: Draft  # of the record
    trainer: Trainer
    curve: Curve
    loss: float = math.nan

    @classmethod
    def begin(cls, folder: RunFolder, draft: Draft, make_trainer: MakeTrainer) -> Run:
        """Make a new run, or restore it from its last checkpoint."""
        config = folder.config
        cost.forget_peak_memory(config.device)
        cost.keep_heap()
        draft["data_hash"] = data_hash(config)
        if not folder.steps():
            draw_all(config)
        trainer = make_trainer(config)
        draft["backbone_hash"] = trainer.model.backbone_hash()
        draft["chance"] = trainer.task.chance
        if config.start:
            draft["start"] = folder.load_start(trainer)
        run = cls(folder, draft, trainer, _new_curve())
        if (curve := folder.restore(trainer)) is not None:
            run.curve = curve
            run.spent["sessions"] += 1
            trainer.tokens, trainer.data_seconds = run.spent["tokens"], run.spent["data_wall"]
            # The rounding of sums depends on their number: that of the first session.
            torch.set_num_threads(run.spent["threads"])
        draft["env"] |= {
            "threads": torch.get_num_threads(),
            "attention": trainer.model.attention,
            "kernels": trainer.model.kernels(),
            **trainer.spread,
        }
        return run

    @property
    def spent(self) -> cost.Cost:
        return self.curve["cost"]  # type: ignore[no-any-return]

    @property
    def step(self) -> int:
        return self.trainer.step

    @property
    def steps(self) -> int:
        return self.trainer.last

    def _due(self, every: int) -> bool:
        """Return True after every `every`-th step and after the last one."""
        return self.step % every == 0 or self.step == self.steps

    def train(self, report: Report, stop: Stop) -> None:
        """Take all steps; validate and save where it is due.

        Errors: Diverged; Stopped when `stop` said so and a checkpoint is saved; WriteError.
        """
        config, spent = self.trainer.config, self.spent
        if not self.steps:  # the weights that it reads with, for `pezoo try` and `show`
            self.folder.save(self.trainer, self.curve)
        while self.step < self.steps:
            with cost.timed(spent, "train"):
                stopped = self._advance(report, stop)
            if self._due(config.eval.every):
                with cost.timed(spent, "eval"):
                    self._validate()
            if stopped or self._due(config.train.checkpoint_every):
                cost.note(spent, self.trainer)
                with cost.timed(spent, "save"):
                    self.folder.save(self.trainer, self.curve)
            if stopped:
                raise Stopped(f"step {self.step} of {self.steps}")

    def _advance(self, report: Report, stop: Stop) -> bool:
        """Train until a validation or a checkpoint is due, or `stop` says so; return its answer."""
        config, rate = self.trainer.config, Rate()
        while True:
            self.trainer.advance()
            stopped, per_second = stop(), rate.due(self.step)
            pause = self._due(config.eval.every) or self._due(config.train.checkpoint_every)
            if stopped or pause or per_second:
                self.loss = self.trainer.losses.read()
            if per_second and not stopped:
                exact = self.curve["points"][-1]["exact"] if self.curve["points"] else None
                at = {"step": self.step, "of": self.steps, "rate": per_second}
                report(at | {"loss": self.loss, "exact": exact})
            if stopped or pause:
                return stopped

    def _validate(self) -> None:
        """Add a point to the learning curve; training lengths alone choose the best model."""
        trainer, curve = self.trainer, self.curve
        found = validate(trainer.model, trainer.task, trainer.config)
        exact = found and found[0]
        point = {"step": self.step, "loss": self.loss, "exact": exact}
        if trainer.config.train.learned:
            point["least"] = found and found[1]
        if trainer.config.eval.curve_lengths:
            point["seconds"] = round(self.spent["train_wall"], 2)
            point |= score_curve(trainer.model, trainer.task, trainer.config)
        curve["points"].append(point)
        trainer.ending = ending(trainer.config, curve)
        if exact is None or exact >= curve["best_exact"]:
            curve["best_step"], curve["best_exact"] = self.step, exact or 0.0
            curve["best_sha256"] = self.folder.save_best(trainer)
        if trainer.config.eval.top and self._has_learned():
            curve["full"].append(score_all(trainer.model, trainer.task, trainer.config))

    def _has_learned(self) -> bool:
        """Return whether a loss was below the threshold from which evaluations count."""
        below = self.trainer.config.eval.top_below
        return below is None or any(point["loss"] < below for point in self.curve["points"])

    def evaluate(self, report: Report) -> None:
        """Score the trained models at every test length."""
        report({"step": self.step, "phase": "evaluating"})
        trainer = self.trainer
        with cost.timed(self.spent, "eval"):
            sets = score_sets(trainer.model, trainer.task, trainer.config)
            scores = self._scores()
        self.draft["scores"], self.draft["modes"] = scores
        if sets:
            self.draft["sets"] = sets

    def _scores(self) -> tuple[dict[str, Rows], dict[str, dict[str, Rows]]]:
        """Score the last and the best model: by checkpoint, and by further mode and checkpoint."""
        trainer, curve = self.trainer, self.curve
        model, task, config = trainer.model, trainer.task, trainer.config

        def everything(answers: bool = False) -> dict[str | None, Rows]:
            modes = (None, *model.encoding.modes)
            rows = {mode: score_all(model, task, config, mode, answers) for mode in modes}
            check_decoding(model, task, config)
            return rows

        found = {"last": everything(answers=True)}
        if curve["best_step"] in (trainer.step, None):  # None: no step was taken
            found["best"] = {
                mode: [row | {"wrong": []} for row in rows] for mode, rows in found["last"].items()
            }
        else:
            self.folder.load_best(trainer, curve)
            found["best"] = everything()
        scores = {checkpoint: rows[None] for checkpoint, rows in found.items()}
        if config.eval.top and curve["full"]:
            scores |= _top(curve["full"], config.eval.top)
        return scores, {
            mode: {checkpoint: rows[mode] for checkpoint, rows in found.items()}
            for mode in model.encoding.modes
        }

    def note_results(self) -> None:
        """Put what is known into the record, also where an error ended the run."""
        cost.note(self.spent, self.trainer)
        self.draft |= {
            "learning": self.curve["points"],
            "best_step": self.curve["best_step"],
            "cost": cost.summary(self.trainer, self.spent),
        }
        self.draft["env"]["attention_ran"] = self.spent["attention"]


def _new_curve() -> Curve:
    return {
        "points": [],
        "full": [],
        "best_step": None,
        "best_exact": -1.0,
        "best_sha256": "",
        "cost": cost.new(),
    }


def _top(evaluations: list[Rows], n: int) -> dict[str, Rows]:
    """Return both readings of "the average of the top n": over all lengths, and of each length.

    The best are those of the highest exact match, in both tracks.
    """
    best = sorted(evaluations, key=_mean_exact)[-n:]
    rows = [
        sorted(same, key=lambda row: row["exact"] or 0.0)[-n:]
        for same in zip(*evaluations, strict=True)
    ]
    return {f"top{n}": _average(best), f"top{n}_each": _average([*zip(*rows, strict=True)])}


def _mean_exact(scores: Rows) -> float:
    values = [row["exact"] for row in scores if row["exact"] is not None]
    return sum(values) / len(values) if values else 0.0


def _average(evaluations: Sequence[Sequence[dict[str, Any]]]) -> Rows:
    """Sum the counts of several evaluations of one run, for each length."""
    rows = []
    for same in zip(*evaluations, strict=True):
        row = dict(same[0])
        if row["status"] == "ok":
            row["correct"] = sum(r["correct"] for r in same)
            row["count"] = sum(r["count"] for r in same)
            row["exact"] = row["correct"] / row["count"]
            row["token"] = sum(r["token"] for r in same) / len(same)
            row["tokens"] = sum(r.get("tokens") or 0 for r in same) or None
        rows.append(row)
    return rows
