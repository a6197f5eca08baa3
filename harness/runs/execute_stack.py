"""Runs trained as one stack, each in its own folder: checkpoints, learning curve and record.

After an interruption all members go back to the last checkpoint that they share, and the stack
continues bit for bit; where they share none, those behind catch up first. A member that fails
leaves the stack; where the stack itself fails, its members train one after the other.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from harness.runs import cost, execute
from harness.runs.events import Event, ReportOf, Stop, Stopped, ended_by
from harness.runs.files import WriteError
from harness.runs.folder import Curve, RunFolder
from harness.runs.rate import Rate
from harness.runs.record import failure_reason
from harness.settings.config import RunConfig
from harness.training.losses import Diverged
from harness.training.stack import Stack
from harness.training.trainer import Trainer


def execute_stack(
    configs: Sequence[RunConfig], root: Path, command: str, report: ReportOf, stop: Stop
) -> None:
    """Train and evaluate runs of one family (`RunConfig.family`); resume where possible.

    report(i, event) says what happens to run i; `harness.runs.events` lists its last events.
    """
    threads = torch.get_num_threads()
    try:
        with ExitStack() as locks:
            runs = _StackedRuns(report, stop)
            for number, config in enumerate(configs):
                runs.add(locks, number, RunFolder(root, config), command)
            try:
                runs.train()
            except WriteError as error:
                runs.drop_all(error)
            for member in [*runs.members]:
                runs.finish(member, partial(runs.evaluate, member))
    finally:
        torch.set_num_threads(threads)


@dataclass(eq=False)
class _Member:
    number: int
    folder: RunFolder
    record: dict[str, Any]
    trainer: Trainer
    curve: Curve
    loss: float = math.nan
    error: Diverged | None = None

    @property
    def parts(self) -> tuple[Trainer, RunFolder, Curve]:
        return self.trainer, self.folder, self.curve


class _StackedRuns:
    """The members that are neither done nor failed."""

    def __init__(self, report: ReportOf, stop: Stop) -> None:
        self.report, self.stop = report, stop
        self.members: list[_Member] = []

    def add(self, locks: ExitStack, number: int, folder: RunFolder, command: str) -> None:
        """Add this run, unless it is done, locked by another process, or fails to start."""
        try:
            locks.enter_context(folder.lock())
            done = folder.result()
            if done is None:
                record = execute.open_record(folder, command)
                done = self._begin(number, folder, record)
        except Exception as error:
            self.report(number, ended_by(error))
            return
        if done is not None:
            self.report(number, {"record": done})

    def _begin(
        self, number: int, folder: RunFolder, record: dict[str, Any]
    ) -> dict[str, Any] | None:
        """Add a member; the record where it fails at once."""
        try:
            trainer, curve = execute.begin(folder, record)
        except Exception as error:
            return execute.close_record(folder, record, partial(_raise, error))
        self.members.append(_Member(number, folder, record, trainer, curve))
        return None

    def train(self) -> None:
        """Take all steps; members that are behind go first."""
        self._go_back()
        while waiting := [m for m in self.members if m.trainer.step < m.folder.config.train.steps]:
            step = min(m.trainer.step for m in waiting)
            now = [m for m in waiting if m.trainer.step == step]
            ahead = [m.trainer.step for m in waiting if m.trainer.step > step]
            until = min([execute.next_pause(now[0].trainer), *ahead])
            try:
                self._advance(now, until)
            except Exception as error:
                self._train_one_by_one(now, error)
            else:
                self._validate_and_save(now)

    def _go_back(self) -> None:
        """Return to the step of the last member where there is a checkpoint of it.

        A process may be killed when only some members are saved.
        """
        least = min((m.trainer.step for m in self.members), default=0)
        for m in self.members:
            if m.trainer.step > least and least in m.folder.steps():
                m.curve = execute.resume(m.trainer, m.folder, least)

    def _advance(self, members: list[_Member], until: int) -> None:
        """Train up to step `until`, until a member diverges, or until asked to stop."""
        trainers = [m.trainer for m in members]
        stack = Stack(trainers) if len(trainers) > 1 else _Single(trainers)
        by_trainer = {id(m.trainer): m for m in members}
        order = [by_trainer[id(trainer)] for trainer in stack.trainers]
        rate = Rate()
        with ExitStack() as exits:
            exits.callback(stack.write_back)
            exits.enter_context(cost.shared([m.curve["cost"] for m in order], "train"))
            for m in order:
                exits.enter_context(cost.watching_data(m.trainer, m.curve["cost"]))
            while stack.step < until:
                stack.advance()
                stopped, per_second = self.stop(), rate.due(stack.step)
                if not (stopped or per_second or stack.step == until):
                    continue
                for m, loss, error in zip(order, *stack.read(), strict=True):
                    m.loss, m.error = loss, error
                if stopped or any(m.error for m in order):
                    return
                for m in order if per_second else []:
                    event = execute.training_event(m.trainer, m.curve, m.loss, per_second)
                    self.report(m.number, event)

    def _validate_and_save(self, members: list[_Member]) -> None:
        """Do so for each; drop members that failed, and all members if asked to stop."""
        stopped = self.stop()
        for m in members:
            try:
                if m.error:
                    raise m.error
                execute.validate_and_save(*m.parts, m.loss, stopped)
            except WriteError:
                raise
            except Exception as error:
                self.finish(m, partial(_raise, error))
        if stopped:
            for m in [*self.members]:
                step, steps = m.trainer.step, m.trainer.config.train.steps
                self._drop(m, ended_by(Stopped(f"step {step} of {steps}")))

    def _train_one_by_one(self, members: list[_Member], error: Exception) -> None:
        reason = failure_reason(error)
        for m in members:
            text = f"cannot go on as one stack ({reason}); one after the other"
            self.report(m.number, {"again": text})
            self.finish(m, partial(self._train_alone, m))

    def _train_alone(self, m: _Member) -> None:
        execute.train(*m.parts, partial(self.report, m.number), self.stop)
        self.evaluate(m)

    def evaluate(self, m: _Member) -> None:
        """Score a member that is trained."""
        execute.evaluate(*m.parts, partial(self.report, m.number), m.record)

    def finish(self, m: _Member, work: Callable[[], None]) -> None:
        """Do the last work of a member, write its record and drop it."""

        def fill() -> None:
            try:
                work()
            finally:
                execute.note_results(m.trainer, m.curve, m.record)

        try:
            event = {"record": execute.close_record(m.folder, m.record, fill)}
        except Exception as error:
            event = ended_by(error)
        self._drop(m, event)

    def drop_all(self, error: Exception) -> None:
        """End every run for this reason."""
        for m in [*self.members]:
            self._drop(m, ended_by(error))

    def _drop(self, m: _Member, event: Event) -> None:
        self.members.remove(m)
        self.report(m.number, event)


class _Single:
    """One trainer behind the interface of a Stack."""

    def __init__(self, trainers: Sequence[Trainer]) -> None:
        self.trainers = trainers

    @property
    def step(self) -> int:
        return self.trainers[0].step

    def advance(self) -> Tensor:
        return self.trainers[0].advance()

    def read(self) -> tuple[list[float], list[Diverged | None]]:
        return self.trainers[0].losses.read()

    def write_back(self) -> None:
        pass


def _raise(error: Exception) -> None:
    raise error
