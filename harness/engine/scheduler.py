"""The loop of every engine with workers: retries, runs locked elsewhere, Ctrl-C.

A run whose process dies continues from its checkpoint in another one, with those that were stacked
with it; in its last try alone, so that a run which kills its process takes no other with it. After
that it is recorded as failed. On Ctrl-C or SIGTERM the workers save their runs; a second signal
ends them at once.
"""

from __future__ import annotations

import math
import os
import signal
import threading
import time
from abc import abstractmethod
from collections import Counter, deque
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from filelock import Timeout

from experiment.config import RunConfig
from harness.engine import base
from harness.engine.stack_plan import Job
from harness.runs.events import FINAL, Event, ReportOf


class Interrupted(KeyboardInterrupt):
    """A signal ended the comparison, its checkpoints saved."""

    def __init__(self, number: int) -> None:
        super().__init__()
        self.signal = number


class Workers(Protocol):
    """Somewhere to execute jobs. A run is named by its place among all runs."""

    tries: int  # how often a run is started when its process dies

    def start(self, job: Job, configs: Sequence[RunConfig]) -> None:
        """Begin or queue a run, or several that are to train as one stack."""

    def wait(self, interrupt: int) -> Iterable[tuple[int, Event]]:
        """Wait a moment; what happened to which run, as in `harness.runs.events`.

        Returns early when the file `interrupt` has something to read.
        """

    def stop(self) -> None:
        """Ask every run to save a checkpoint and end; `wait` goes on to report."""

    def close(self) -> None:
        """End what is left at once, and free everything."""


class Engine(base.Engine):
    """An engine with workers."""

    @abstractmethod
    def workers(self, configs: Sequence[RunConfig], root: Path, command: str) -> Workers:
        """The workers for these runs."""

    def run_all(
        self, configs: Sequence[RunConfig], root: Path, command: str, report: ReportOf
    ) -> None:
        Jobs(
            workers=self.workers(configs, root, command),
            configs=configs,
            waiting=deque(self.plan(configs, root)),
            most=self.jobs(configs),
            root=root,
            command=command,
            report=report,
        ).run_all()


@dataclass
class Jobs:
    """Jobs that wait, those that run, `most` at a time, and what became of their runs.

    A run that another process has locked is tried once more after all others. A file that cannot be
    written ends everything.
    """

    workers: Workers
    configs: Sequence[RunConfig]
    waiting: deque[Job]
    most: int
    root: Path
    command: str
    report: ReportOf
    running: dict[int, Job] = field(default_factory=dict)  # the job of each run
    deaths: Counter[int] = field(default_factory=Counter)
    died: dict[Job, list[int]] = field(default_factory=dict)  # of a job that still runs
    locked: set[int] = field(default_factory=set)
    began: dict[Job, float] = field(default_factory=dict)
    took: dict[tuple[str, str], float] = field(default_factory=dict)  # by task and encoding
    stopping: bool = False

    def run_all(self) -> None:
        """Execute everything. Errors: Interrupted after a signal."""
        with interrupts(signal.SIGINT, signal.SIGTERM) as interrupt:
            try:
                number = self._run(interrupt)
                if number:
                    self._stop(interrupt)
            finally:
                self.workers.close()
        if number:
            raise Interrupted(number)

    def _run(self, interrupt: int) -> int:
        """Until everything is done: 0; or until a signal: its number."""
        while self.waiting or self.running:
            while self.waiting and len(set(self.running.values())) < self.most:
                job = self._next()
                self.running |= dict.fromkeys(job, job)
                self.began[job] = time.monotonic()
                self.workers.start(job, [self.configs[run] for run in job])
            if number := self._wait(interrupt):
                return number
        return 0

    def _next(self) -> Job:
        """The next job; of the last ones the longest, so that none runs on alone at the end."""
        if len(self.waiting) > 2 * self.most:
            return self.waiting.popleft()
        job = max(self.waiting, key=self._expected)
        self.waiting.remove(job)
        return job

    def _expected(self, job: Job) -> float:
        """Seconds, as the same encoding last took on the same task; unknown counts as longest.

        What another process had locked comes last.
        """
        if self.locked.intersection(job):
            return -1.0
        return sum(self.took.get(self._kind(run), math.inf) for run in job)

    def _kind(self, run: int) -> tuple[str, str]:
        return self.configs[run].task, self.configs[run].encoding

    def _stop(self, interrupt: int) -> None:
        """Have every run saved; a further signal ends the wait."""
        self.stopping = True
        self.workers.stop()
        while self.running:
            if self._wait(interrupt):
                return

    def _wait(self, interrupt: int) -> int:
        """Handle what happens; the signal, if there was one."""
        for run, event in self.workers.wait(interrupt):
            self._handle(run, event)
        return pressed(interrupt)

    def _handle(self, run: int, event: Event) -> None:
        job: Job = ()
        if event.keys() & FINAL:
            job = self.running.pop(run, (run,))
        if "record" in event and job in self.began:
            self.took[self._kind(run)] = (time.monotonic() - self.began[job]) / len(job)
        if "died" in event:
            event = self._retry(job, run, event["died"])
        if job not in self.running.values():
            self._restart(self.died.pop(job, []))
        if "busy" in event and not self.stopping and run not in self.locked:
            self.locked.add(run)
            self.waiting.append((run,))
            return
        if event.pop("halt", False):
            if self.waiting:
                event["error"] += f"; {sum(map(len, self.waiting))} more not started"
            self.waiting.clear()
        self.report(run, event)

    def _retry(self, job: Job, run: int, how: str) -> Event:
        """Note the death of a run's process for `_restart`; a failed record after the last try."""
        if self.stopping:
            return {"busy": "stopped"}
        self.deaths[run] += 1
        if self.deaths[run] < self.workers.tries:
            self.died.setdefault(job, []).append(run)
            return {"again": f"its process died ({how}), trying again"}
        why = f"its process died {self.workers.tries} times, at last by {how}"
        from harness.runs.execute import record_failure  # with torch

        try:
            return {"record": record_failure(self.configs[run], self.root, self.command, why)}
        except (OSError, Timeout) as error:
            return {"error": f"{why}; and {error}"}

    def _restart(self, runs: list[int]) -> None:
        """Start runs of one job that died together next; alone if it is their last try."""
        last = any(self.deaths[run] == self.workers.tries - 1 for run in runs)
        jobs = [(run,) for run in runs] if last else [tuple(runs)] if runs else []
        self.waiting.extendleft(reversed(jobs))


@contextmanager
def interrupts(*numbers: int) -> Iterator[int]:
    """A file to read from after each of these signals, which then interrupt nothing else."""
    reader, writer = os.pipe()
    os.set_blocking(reader, False)
    ours = threading.current_thread() is threading.main_thread()
    before = {number: signal.getsignal(number) for number in numbers if ours}
    for number, handler in before.items():
        if handler is not signal.SIG_IGN:
            signal.signal(number, lambda number, _: os.write(writer, bytes([number])))
    try:
        yield reader
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        os.close(reader)
        os.close(writer)


def pressed(interrupt: int) -> int:
    """The number of the next signal that came; 0 if there was none."""
    try:
        return os.read(interrupt, 1)[0]
    except BlockingIOError:
        return 0
