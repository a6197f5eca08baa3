"""Runs trained as one stack, each in its own folder: checkpoints, learning curve and record.

Where an interruption has left some behind, all go back to the last checkpoint that they share, and
the stack goes on bit for bit; where they share none, those behind catch up first. A member that
fails leaves the stack; where the stack itself fails, its members train one after the other.
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

from harness.engine.events import ended
from harness.runs import cost, execute
from harness.runs.execute import Stopped
from harness.runs.files import WriteError
from harness.runs.folder import Curve, RunFolder
from harness.runs.rate import Pace
from harness.runs.record import reason
from harness.settings.protocol import RunConfig
from harness.training.stack import Stack
from harness.training.trainer import Diverged, Trainer, start

Report = Callable[[int, dict[str, Any]], None]
Stop = Callable[[], bool]


def execute_together(
    configs: Sequence[RunConfig], root: Path, command: str, report: Report, stop: Stop
) -> None:
    """Train and evaluate runs of one family (`harness.training.stack`), resuming if it can.

    report(i, event) tells what happens to run i; its last event is as `harness.engine.events`'s.
    """
    threads = torch.get_num_threads()
    try:
        with ExitStack() as exits:
            team = _Team(report, stop)
            for number, config in enumerate(configs):
                team.admit(exits, number, RunFolder(root, config), command)
            try:
                team.train()
            except WriteError as error:
                team.leave_all(error)
            for member in [*team.members]:
                team.conclude(member, partial(team.score, member))
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

    @property
    def parts(self) -> tuple[Trainer, RunFolder, Curve]:
        return self.trainer, self.folder, self.curve


class _Team:
    """The members that are neither done nor failed."""

    def __init__(self, report: Report, stop: Stop) -> None:
        self.report, self.stop = report, stop
        self.members: list[_Member] = []

    def admit(self, exits: ExitStack, number: int, folder: RunFolder, command: str) -> None:
        """Take part with this run, unless it is done, held by another process, or fails."""
        try:
            exits.enter_context(folder.lock())
            done = folder.result()
            if done is None:
                record = execute.opened(folder, command)
                done = self._begin(number, folder, record)
        except Exception as error:
            self.report(number, ended(error))
            return
        if done is not None:
            self.report(number, {"record": done})

    def _begin(
        self, number: int, folder: RunFolder, record: dict[str, Any]
    ) -> dict[str, Any] | None:
        """Another member; the record where it fails at once."""
        try:
            trainer, curve = execute.began(start, folder, record)
        except Exception as error:
            return execute.settled(folder, record, partial(_fail, error))
        self.members.append(_Member(number, folder, record, trainer, curve))
        return None

    def train(self) -> None:
        """All steps; those who are behind go first."""
        self._go_back()
        while waiting := [m for m in self.members if m.trainer.step < m.folder.config.train.steps]:
            step = min(m.trainer.step for m in waiting)
            now = [m for m in waiting if m.trainer.step == step]
            ahead = [m.trainer.step for m in waiting if m.trainer.step > step]
            until = min([execute.next_stop(now[0].trainer), *ahead])
            try:
                self._advance(now, until)
            except Exception as error:
                self._apart(now, error)
            else:
                self._keep(now)

    def _go_back(self) -> None:
        """To the step of the last, if there is a checkpoint: a save may have reached only some."""
        least = min((m.trainer.step for m in self.members), default=0)
        for m in self.members:
            if m.trainer.step > least and least in m.folder.steps():
                m.curve = execute.resume(m.trainer, m.folder, least)

    def _advance(self, members: list[_Member], until: int) -> None:
        """Steps up to `until`, or until one fails or all are asked to stop."""
        trainers = [m.trainer for m in members]
        stack = Stack(trainers) if len(trainers) > 1 else _Single(trainers)
        by_trainer = {id(m.trainer): m for m in members}
        order = [by_trainer[id(trainer)] for trainer in stack.trainers]
        pace = Pace()
        with ExitStack() as exits:
            exits.callback(stack.write_back)
            exits.enter_context(cost.shared([m.curve["cost"] for m in order], "train"))
            for m in order:
                exits.enter_context(cost.watching_data(m.trainer, m.curve["cost"]))
            while stack.step < until:
                losses = stack.advance()
                for m, loss in zip(order, losses, strict=True):
                    m.loss = loss
                if self.stop() or not all(map(math.isfinite, losses)):
                    return
                if rate := pace.due(stack.step):
                    self._tell(order, rate)

    def _tell(self, members: list[_Member], rate: float) -> None:
        for m in members:
            points = m.curve["points"]
            exact = points[-1]["exact"] if points else None
            event = {"step": m.trainer.step, "loss": m.loss, "exact": exact, "rate": rate}
            self.report(m.number, event)

    def _keep(self, members: list[_Member]) -> None:
        """Measure and save those who got here; part with those who failed, or all if asked to."""
        stopped = self.stop()
        for m in members:
            try:
                if not math.isfinite(m.loss):
                    raise Diverged(f"loss is {m.loss} at step {m.trainer.step - 1}")
                execute.keep(*m.parts, m.loss, stopped)
            except WriteError:
                raise
            except Exception as error:
                self.conclude(m, partial(_fail, error))
        if stopped:
            for m in [*self.members]:
                self._leave(m, ended(Stopped(_where(m.trainer))))

    def leave_all(self, error: Exception) -> None:
        """End every run for this reason."""
        for m in [*self.members]:
            self._leave(m, ended(error))

    def _apart(self, members: list[_Member], error: Exception) -> None:
        """What cannot be computed as one is computed one after the other."""
        words = f"cannot go on as one stack ({reason(error)}); one after the other"
        for m in members:
            self.report(m.number, {"again": words})
            self.conclude(m, partial(self._alone, m))

    def _alone(self, m: _Member) -> None:
        execute.train(*m.parts, partial(self.report, m.number), self.stop)
        execute.score(*m.parts, partial(self.report, m.number), m.record)

    def score(self, m: _Member) -> None:
        """Evaluate a member that is trained."""
        execute.score(*m.parts, partial(self.report, m.number), m.record)

    def conclude(self, m: _Member, work: Callable[[], None]) -> None:
        """The last thing to do for a member; its record."""

        def noted() -> None:
            try:
                work()
            finally:
                execute.note(m.trainer, m.curve, m.record)

        try:
            event = {"record": execute.settled(m.folder, m.record, noted)}
        except Exception as error:
            event = ended(error)
        self._leave(m, event)

    def _leave(self, m: _Member, event: dict[str, Any]) -> None:
        self.members.remove(m)
        self.report(m.number, event)


class _Single:
    """The one who is left, or behind: the interface of a Stack."""

    def __init__(self, trainers: Sequence[Trainer]) -> None:
        self.trainers = trainers

    @property
    def step(self) -> int:
        return self.trainers[0].step

    def advance(self) -> list[float]:
        try:
            return [self.trainers[0].advance()]
        except Diverged:
            self.trainers[0].step += 1
            return [math.nan]

    def write_back(self) -> None:
        pass


def _fail(error: Exception) -> None:
    raise error


def _where(trainer: Trainer) -> str:
    return f"step {trainer.step} of {trainer.config.train.steps}"
