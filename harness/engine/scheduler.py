"""The loop of every engine with workers: retries, runs locked elsewhere, Ctrl-C.

A run whose process dies continues from its checkpoint in another one; after the last try it is
recorded as failed. On Ctrl-C or SIGTERM the workers save their runs; a second signal ends them at
once.
"""

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
from harness import engine
from harness.runs.events import FINAL, Event, ReportOf


class Interrupted(KeyboardInterrupt):
    """A signal ended the comparison; its checkpoints are saved."""

    def __init__(self, number: int) -> None:
        super().__init__()
        self.signal = number


class Workers(Protocol):
    """Processes that execute runs. A run is named by its index among all runs."""

    tries: int  # how often a run is started when its process dies

    def start(self, run: int, config: RunConfig) -> None:
        """Begin or queue a run."""

    def wait(self, interrupt: int) -> Iterable[tuple[int, Event]]:
        """Wait a moment, and yield the events of runs; see `harness.runs.events`.

        Returns early when the file descriptor `interrupt` has something to read.
        """

    def stop(self) -> None:
        """Ask every run to save a checkpoint and end; `wait` goes on to report."""

    def close(self) -> None:
        """End what is left at once, and free everything."""


class Engine(engine.Engine):
    """An engine with workers."""

    @abstractmethod
    def workers(self, configs: Sequence[RunConfig], root: Path, command: str) -> Workers:
        """Return the workers for these runs."""

    def run_all(
        self, configs: Sequence[RunConfig], root: Path, command: str, report: ReportOf
    ) -> None:
        workers, most = self.workers(configs, root, command), self.jobs(configs)
        Scheduler(workers, configs, most, root, command, report).run_all()


@dataclass
class Scheduler:
    """Starts runs, `most` at a time, and reports their events.

    A run that another process has locked is tried once more after all others. A file that cannot be
    written ends everything.
    """

    workers: Workers
    configs: Sequence[RunConfig]
    most: int
    root: Path
    command: str
    report: ReportOf
    waiting: deque[int] = field(init=False)
    running: dict[int, float] = field(default_factory=dict)  # when each began
    deaths: Counter[int] = field(default_factory=Counter)
    locked: set[int] = field(default_factory=set)
    took: dict[tuple[str, str], float] = field(default_factory=dict)  # by task and encoding
    stopping: bool = False

    def __post_init__(self) -> None:
        self.waiting = deque(range(len(self.configs)))

    def run_all(self) -> None:
        """Execute everything. Errors: Interrupted after a signal."""
        with interrupts(signal.SIGINT, signal.SIGTERM) as interrupt:
            try:
                if number := self._run(interrupt):
                    self.stopping = True
                    self.workers.stop()
                    while self.running and not self._wait(interrupt):
                        pass  # every run is saved; a further signal ends the wait
            finally:
                self.workers.close()
        if number:
            raise Interrupted(number)

    def _run(self, interrupt: int) -> int:
        """Run until everything is done, and return 0; or until a signal, and return its number."""
        while self.waiting or self.running:
            while self.waiting and len(self.running) < self.most:
                run = self._next()
                self.running[run] = time.monotonic()
                self.workers.start(run, self.configs[run])
            if number := self._wait(interrupt):
                return number
        return 0

    def _next(self) -> int:
        """Return the next run; towards the end the longest one, to keep all workers busy."""
        if len(self.waiting) > 2 * self.most:
            return self.waiting.popleft()
        run = max(self.waiting, key=self._expected)
        self.waiting.remove(run)
        return run

    def _expected(self, run: int) -> float:
        """Return the seconds that the encoding last took on the task, infinity if unknown.

        Runs that another process had locked come last.
        """
        return -1.0 if run in self.locked else self.took.get(self._kind(run), math.inf)

    def _kind(self, run: int) -> tuple[str, str]:
        return self.configs[run].task, self.configs[run].spec

    def _wait(self, interrupt: int) -> int:
        """Handle what happens. Returns the number of a signal that came, else 0."""
        for run, event in self.workers.wait(interrupt):
            self._handle(run, event)
        return pressed(interrupt)

    def _handle(self, run: int, event: Event) -> None:
        began = self.running.pop(run, None) if event.keys() & FINAL else None
        if "record" in event and began is not None:
            self.took[self._kind(run)] = time.monotonic() - began
        if "died" in event:
            event = self._retry(run, event["died"])
        if "busy" in event and not self.stopping and run not in self.locked:
            self.locked.add(run)
            self.waiting.append(run)
            return
        if event.pop("halt", False):
            if self.waiting:
                event["error"] += f"; {len(self.waiting)} more not started"
            self.waiting.clear()
        self.report(run, event)

    def _retry(self, run: int, how: str) -> Event:
        """Start a run whose process died once more; after the last try, record its failure."""
        if self.stopping:
            return {"busy": "stopped"}
        self.deaths[run] += 1
        if self.deaths[run] < self.workers.tries:
            self.waiting.appendleft(run)
            return {"again": f"its process died ({how}), trying again"}
        why = f"its process died {self.workers.tries} times, at last by {how}"
        from harness.runs.run import record_failure  # imports torch

        try:
            return {"record": record_failure(self.configs[run], self.root, self.command, why)}
        except (OSError, Timeout) as error:
            return {"error": f"{why}; and {error}"}


@contextmanager
def interrupts(*numbers: int) -> Iterator[int]:
    """Turn these signals into bytes to read from the yielded file descriptor."""
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


@contextmanager
def without_ctrl_c() -> Iterator[None]:
    """Have processes that start inside ignore Ctrl-C, which reaches the whole group."""
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)


def pressed(interrupt: int) -> int:
    """Return the number of the next signal that came, 0 if there was none."""
    try:
        return os.read(interrupt, 1)[0]
    except BlockingIOError:
        return 0
