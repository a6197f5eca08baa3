"""From settings to records: one run, or several that train as a stack, each in its own folder.

After an interruption the runs of a stack go back to the last checkpoint that they share, and the
stack continues bit for bit; where they share none, those behind catch up first. A run that fails
leaves the stack; where the stack itself fails, its runs train one after the other.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path

import torch
from torch import Tensor

from experiment.config import RunConfig
from harness.runs import cost
from harness.runs.events import Report, ReportOf, Stop, Stopped, ended_by
from harness.runs.files import WriteError
from harness.runs.folder import RunFolder
from harness.runs.rate import Rate
from harness.runs.record import failure_reason, new_record
from harness.runs.run import MakeTrainer, Record, Run, close_record, open_record, write_record
from harness.training.losses import Diverged
from harness.training.stack import Stack
from harness.training.trainer import Trainer, start

Finish = Callable[[int, Record | Exception], None]


def never() -> bool:
    """A `stop` that lets runs train to their end."""
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
    ended: list[Record | Exception] = []
    runs = _Runs(lambda _, event: report(event), stop, lambda _, result: ended.append(result))
    runs.execute([config], root, command, make_trainer)
    (result,) = ended
    if isinstance(result, Exception):
        raise result
    return result


def execute_all(
    configs: Sequence[RunConfig],
    root: Path,
    command: str,
    report: ReportOf,
    stop: Stop,
    make_trainer: MakeTrainer = start,
) -> None:
    """As `execute` for one run, or for several of one family (`RunConfig.family`) as a stack.

    report(i, event) says what happens to run i; its last event is a record or an error, as
    `harness.runs.events` lists them.
    """

    def finish(number: int, result: Record | Exception) -> None:
        failed = isinstance(result, Exception)
        report(number, ended_by(result) if failed else {"record": result})

    _Runs(report, stop, finish).execute(configs, root, command, make_trainer)


def record_failure(config: RunConfig, root: Path, command: str, reason: str) -> Record:
    """Write the record of a run whose process died, unless it has one. Errors: as `execute`."""
    folder = RunFolder(root, config)
    with folder.lock():
        record = new_record(config, command) | {"status": "failed", "reason": reason}
        return folder.result() or write_record(folder, record, final=False)


class _Runs:
    """The runs, by number, that have neither a record nor an error yet.

    A single run is trained as it is; several, as one stack while they are at the same step.
    """

    def __init__(self, report: ReportOf, stop: Stop, finish: Finish) -> None:
        self.report, self.stop, self.finish = report, stop, finish
        self.runs: dict[int, Run] = {}
        self.alone: set[int] = set()  # those that failed as a stack

    def execute(
        self, configs: Sequence[RunConfig], root: Path, command: str, make_trainer: MakeTrainer
    ) -> None:
        """Call `finish` once for each run."""
        threads = torch.get_num_threads()
        try:
            with ExitStack() as locks:
                for number, config in enumerate(configs):
                    try:
                        folder = RunFolder(root, config)
                        locks.enter_context(folder.lock())
                        self._begin(number, folder, command, make_trainer)
                    except Exception as error:
                        self.finish(number, error)
                self._train()
                for number, run in [*self.runs.items()]:
                    self._close(number, partial(run.evaluate, partial(self.report, number)))
        finally:
            torch.set_num_threads(threads)

    def _begin(
        self, number: int, folder: RunFolder, command: str, make_trainer: MakeTrainer
    ) -> None:
        """Add a run, unless it is done or fails at once."""
        done = folder.result()
        if done is None:
            record = open_record(folder, command)
            try:
                self.runs[number] = Run.begin(folder, record, make_trainer)
                return
            except Exception as error:
                done = close_record(folder, record, partial(_raise, error))
        self.finish(number, done)

    def _train(self) -> None:
        """Take all steps; runs that are behind go first."""
        least = min((run.step for run in self.runs.values()), default=0)
        for run in self.runs.values():  # their process may have died when only some were saved
            if run.step > least and least in run.folder.steps():
                run.restore(least)
        while waiting := {n: run for n, run in self.runs.items() if run.step < run.steps}:
            step = min(run.step for run in waiting.values())
            behind = [number for number, run in waiting.items() if run.step == step]
            behind = [number for number in behind if number in self.alone][:1] or behind
            ahead = [run.step for run in waiting.values() if run.step > step]
            until = min([waiting[behind[0]].next_pause, *ahead])
            try:
                self._advance([waiting[number] for number in behind], until)
            except Exception as error:
                self._unstack(behind, error)
            else:
                self._validate_and_save(behind)

    def _advance(self, runs: list[Run], until: int) -> None:
        """Train up to step `until`, until a run diverges, or until asked to stop."""
        trainers = [run.trainer for run in runs]
        stack = Stack(trainers) if len(runs) > 1 else _Single(trainers)
        order = {id(trainer): place for place, trainer in enumerate(stack.trainers)}
        runs = sorted(runs, key=lambda run: order[id(run.trainer)])
        rate = Rate()
        with ExitStack() as exits:
            exits.callback(stack.write_back)
            exits.enter_context(cost.shared([run.spent for run in runs], "train"))
            for run in runs:
                exits.enter_context(cost.drawing(run.trainer, run.spent))
            while stack.step < until:
                stack.advance()
                stopped, per_second = self.stop(), rate.due(stack.step)
                if not (stopped or per_second or stack.step == until):
                    continue
                for run, loss, diverged in zip(runs, *stack.read(), strict=True):
                    run.loss, run.diverged = loss, diverged
                if stopped or any(run.diverged for run in runs):
                    return
                for number, run in self.runs.items() if per_second else ():
                    if run in runs:
                        self.report(number, run.event(per_second))

    def _validate_and_save(self, numbers: list[int]) -> None:
        """Do so for each; remove runs that failed, and all runs if asked to stop."""
        stopped = self.stop()
        for number in numbers:
            try:
                self.runs[number].validate_and_save(stopped)
            except WriteError as error:
                for other in [*self.runs]:
                    self._remove(other, error)
                return
            except Exception as error:
                self._close(number, partial(_raise, error))
        if stopped:
            for number, run in [*self.runs.items()]:
                self._remove(number, Stopped(f"step {run.step} of {run.steps}"))

    def _unstack(self, numbers: list[int], error: Exception) -> None:
        """What failed as a stack is trained one by one; what failed alone has failed."""
        if len(numbers) == 1:
            self._close(numbers[0], partial(_raise, error))
            return
        self.alone.update(numbers)
        text = f"cannot go on as one stack ({failure_reason(error)}); one after the other"
        for number in numbers:
            self.report(number, {"again": text})

    def _close(self, number: int, work: Callable[[], None]) -> None:
        """Do the last work of a run, write its record and remove it."""
        run = self.runs[number]

        def fill() -> None:
            try:
                work()
            finally:
                run.note_results()

        try:
            self._remove(number, close_record(run.folder, run.record, fill))
        except Exception as error:
            self._remove(number, error)

    def _remove(self, number: int, result: Record | Exception) -> None:
        del self.runs[number]
        self.finish(number, result)


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
