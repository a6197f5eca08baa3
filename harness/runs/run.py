"""A run in memory: its folder and record, the trainer and the learning curve."""

from __future__ import annotations

import math
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from experiment.config import RunConfig
from harness.runs import cost, heap
from harness.runs.ahead import draw_all
from harness.runs.environment import data_hash
from harness.runs.events import Event, Report, Stop, Stopped
from harness.runs.files import WriteError, write, write_json
from harness.runs.folder import Curve, RunFolder
from harness.runs.rate import Rate
from harness.runs.record import failure_reason, new_record, now
from harness.runs.scores import scores_of
from harness.training.evaluate import score_all, score_curve, score_sets, validate
from harness.training.losses import Diverged
from harness.training.trainer import Trainer
from pezoo.base import PositionError

Record = dict[str, Any]
MakeTrainer = Callable[[RunConfig], Trainer]


@dataclass(eq=False)
class Run:
    """A run in memory; `loss` is that of the last step which was read."""

    folder: RunFolder
    record: Record
    trainer: Trainer
    curve: Curve
    loss: float = math.nan

    @classmethod
    def begin(cls, folder: RunFolder, record: Record, make_trainer: MakeTrainer) -> Run:
        """A new run, or one restored from its last checkpoint."""
        config = folder.config
        cost.forget_peak_memory(config.device)
        heap.keep()
        record["data_hash"] = data_hash(config)
        if not folder.steps():
            draw_all(config)
        trainer = make_trainer(config)
        record["backbone_hash"] = trainer.model.backbone_hash()
        record["chance"] = trainer.task.chance
        run = cls(folder, record, trainer, _new_curve())
        run.restore()
        record["env"] |= {
            "threads": torch.get_num_threads(),
            "attention": trainer.model.attention,
            "kernels": trainer.model.kernels(),
            **trainer.spread,
        }
        return run

    def restore(self) -> None:
        """Load the newest checkpoint, if there is one.

        Uses as many threads as the run's first session, because the rounding of sums depends on
        their number.
        """
        curve = self.folder.restore(self.trainer)
        if curve is not None:
            self.curve = curve
            self.spent["sessions"] += 1
            torch.set_num_threads(self.spent["threads"])

    @property
    def spent(self) -> cost.Cost:
        return self.curve["cost"]  # type: ignore[no-any-return]

    @property
    def step(self) -> int:
        return self.trainer.step

    @property
    def steps(self) -> int:
        return self.trainer.config.train.steps

    @property
    def next_pause(self) -> int:
        """The next step after which `_validate_and_save` has something to do."""
        config = self.trainer.config
        every = (config.eval.every, config.train.checkpoint_every)
        return min(self.steps, *(self.step - self.step % n + n for n in every))

    def train(self, report: Report, stop: Stop) -> None:
        """Take all steps; validate and save where it is due.

        Errors: Diverged; Stopped when `stop` said so and a checkpoint is saved; WriteError.
        """
        while self.step < self.steps:
            stopped = self._advance(report, stop)
            self._validate_and_save(stopped)
            if stopped:
                raise Stopped(f"step {self.step} of {self.steps}")

    def _advance(self, report: Report, stop: Stop) -> bool:
        """Train up to the next pause. Returns whether `stop` asked to end before."""
        until, rate = self.next_pause, Rate()
        with cost.timed(self.spent, "train"), cost.drawing(self.trainer, self.spent):
            while self.step < until:
                self.trainer.advance()
                stopped, per_second = stop(), rate.due(self.step)
                if stopped or per_second or self.step == until:
                    self.loss = self.trainer.read()
                if stopped:
                    return True
                if per_second:
                    report(self._progress(per_second))
        return False

    def _progress(self, rate: float) -> Event:
        """Where training stands, with the last validation and steps per second."""
        points = self.curve["points"]
        exact = points[-1]["exact"] if points else None
        return {"step": self.step, "loss": self.loss, "exact": exact, "rate": rate}

    def _validate_and_save(self, stopped: bool) -> None:
        """Validate and save a checkpoint where this step is due; save anyway if training stops."""
        config, last = self.trainer.config, self.step == self.steps
        if self.step % config.eval.every == 0 or last:
            with cost.timed(self.spent, "eval"):
                self._validate()
        if self.step % config.train.checkpoint_every == 0 or last or stopped:
            cost.note_peak_memory(self.spent, config.device)
            cost.note_attention(self.spent, self.trainer)
            with cost.timed(self.spent, "save"):
                self.folder.save(self.trainer, self.curve)

    def _validate(self) -> None:
        """Add a point to the learning curve; training lengths alone choose the best model."""
        trainer, curve = self.trainer, self.curve
        exact = validate(trainer.model, trainer.task, trainer.config)
        point = {"step": self.step, "loss": self.loss, "exact": exact}
        if trainer.config.eval.curve_lengths:
            point["seconds"] = round(self.spent["train_wall"], 2)
            point |= score_curve(trainer.model, trainer.task, trainer.config)
        curve["points"].append(point)
        if exact >= curve["best_exact"]:
            curve["best_step"], curve["best_exact"] = self.step, exact
            curve["best_sha256"] = self.folder.save_best(trainer)
        if trainer.config.eval.top and self._has_learned():
            curve["full"].append(score_all(trainer.model, trainer.task, trainer.config))

    def _has_learned(self) -> bool:
        """Whether a loss of the curve was below the threshold from which evaluations count."""
        below = self.trainer.config.eval.top_below
        return below is None or any(point["loss"] < below for point in self.curve["points"])

    def evaluate(self, report: Report) -> None:
        """Score the trained models at every test length."""
        report({"step": self.step, "phase": "evaluating"})
        trainer = self.trainer
        with cost.timed(self.spent, "eval"):
            sets = score_sets(trainer.model, trainer.task, trainer.config)
            scores = scores_of(trainer, self.folder, self.curve)
        self.record["scores"], self.record["modes"] = scores
        if sets:
            self.record["sets"] = sets

    def note_results(self) -> None:
        """Put what is known into the record, also where an error ended the run."""
        cost.note_peak_memory(self.spent, self.trainer.config.device)
        cost.note_attention(self.spent, self.trainer)
        self.record |= {
            "learning": self.curve["points"],
            "best_step": self.curve["best_step"],
            "cost": cost.summary(self.trainer, self.spent),
        }
        self.record["env"]["attention_ran"] = self.spent["attention"]


def _new_curve() -> Curve:
    return {
        "points": [],
        "full": [],
        "best_step": None,
        "best_exact": -1.0,
        "best_sha256": "",
        "cost": cost.new(),
    }


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
    return write_record(folder, record, final)


def write_record(folder: RunFolder, record: Record, final: bool) -> Record:
    """Write the record with its provenance; one that is not final is tried again."""
    record["provenance"] |= folder.origin()
    record["provenance"]["finished"] = now()
    folder.finish(record, final)
    return record
