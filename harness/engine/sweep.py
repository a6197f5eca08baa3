"""All runs of a matrix, whoever executes them: retries, runs held elsewhere, Ctrl-C.

A run whose process dies goes on in another one, from its checkpoint; when the tries are used up it
is recorded as failed. On Ctrl-C the workers save what they have; a second one ends them at once.
"""

from __future__ import annotations

import os
import signal
import threading
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol

from harness.config import RunConfig

Event = Callable[[int, dict[str, Any]], None]
FINAL = {"record", "error", "busy", "died"}


class Workers(Protocol):
    """Somewhere to execute runs. A run is named by its place in the matrix."""

    tries: int  # how often a run is started, when its process dies

    def start(self, run: int, config: RunConfig) -> None:
        """Begin or queue a run."""

    def wait(self, interrupt: int) -> Iterable[tuple[int, dict[str, Any]]]:
        """What has happened to which run, waiting a moment for it.

        Returns early when the file `interrupt` has something to read. The last event of a run is
        one of `harness.engine.outcome`, or {"died": how} where its process is gone.
        """

    def stop(self) -> None:
        """Ask every run to save a checkpoint and end; `wait` goes on to tell what happens."""

    def close(self) -> None:
        """End what is left at once, and free everything."""


def run_all(
    workers: Workers,
    configs: Sequence[RunConfig],
    root: Path,
    command: str,
    jobs: int,
    on_event: Event,
) -> None:
    """Execute every run, `jobs` at a time; on_event(index, event) tells what happens.

    Events: progress from `execute`, {"again": text} where the process of a run has died; at last
    {"record": ...}, {"error": text}, or {"busy": text} where another process holds the run or
    Ctrl-C stopped it. A run that is held is tried once more after all others. A file that cannot
    be written ends the sweep.
    Errors: KeyboardInterrupt after Ctrl-C, when the checkpoints are saved.
    """
    sweep = _Sweep(workers, configs, root, command, on_event)
    with interrupts() as interrupt:
        try:
            if sweep.run(jobs, interrupt):
                return
            sweep.stop(interrupt)
        finally:
            workers.close()
    raise KeyboardInterrupt


class _Sweep:
    def __init__(
        self,
        workers: Workers,
        configs: Sequence[RunConfig],
        root: Path,
        command: str,
        on_event: Event,
    ) -> None:
        self.workers, self.configs, self.on_event = workers, configs, on_event
        self.root, self.command = root, command
        self.waiting = deque(range(len(configs)))
        self.busy: set[int] = set()
        self.deaths: Counter[int] = Counter()
        self.held: set[int] = set()
        self.stopping = False

    def run(self, jobs: int, interrupt: int) -> bool:
        """Until everything is done: True; or until Ctrl-C: False."""
        while self.waiting or self.busy:
            while self.waiting and len(self.busy) < jobs:
                run = self.waiting.popleft()
                self.busy.add(run)
                self.workers.start(run, self.configs[run])
            if self._interrupted(interrupt):
                return False
        return True

    def stop(self, interrupt: int) -> None:
        """Have every run save what it has; a further Ctrl-C ends the wait."""
        self.stopping = True
        self.workers.stop()
        while self.busy:
            if self._interrupted(interrupt):
                return

    def _interrupted(self, interrupt: int) -> bool:
        """Take what happens; whether Ctrl-C happened too."""
        for run, event in self.workers.wait(interrupt):
            self._take(run, event)
        return pressed(interrupt)

    def _take(self, run: int, event: dict[str, Any]) -> None:
        if event.keys() & FINAL:
            self.busy.discard(run)
        if "died" in event:
            event = self._died(run, event["died"])
        if "busy" in event and not self.stopping and run not in self.held:
            self.held.add(run)
            self.waiting.append(run)
            return
        if event.pop("halt", False):
            if self.waiting:
                event["error"] += f"; {len(self.waiting)} more not started"
            self.waiting.clear()
        self.on_event(run, event)

    def _died(self, run: int, how: str) -> dict[str, Any]:
        """What the death of a run's process comes to: another try, or a failed record."""
        if self.stopping:
            return {"busy": "stopped"}
        self.deaths[run] += 1
        if self.deaths[run] < self.workers.tries:
            self.waiting.appendleft(run)
            return {"again": f"its process died ({how}), trying again"}
        why = f"its process died {self.workers.tries} times, at last by {how}"
        return _recorded(self.configs[run], self.root, self.command, why)


def _recorded(config: RunConfig, root: Path, command: str, why: str) -> dict[str, Any]:
    from filelock import Timeout

    from harness.execute import fail

    try:
        return {"record": fail(config, root, command, why)}
    except (OSError, Timeout) as error:
        return {"error": f"{why}; and {error}"}


@contextmanager
def interrupts() -> Iterator[int]:
    """A file to read from after each Ctrl-C, which then does not interrupt anything else."""
    reader, writer = os.pipe()
    os.set_blocking(reader, False)
    ours = threading.current_thread() is threading.main_thread()
    before = signal.getsignal(signal.SIGINT)
    if ours and before is not signal.SIG_IGN:
        signal.signal(signal.SIGINT, lambda *_: os.write(writer, b"!"))
    try:
        yield reader
    finally:
        if ours:
            signal.signal(signal.SIGINT, before)
        os.close(reader)
        os.close(writer)


def pressed(interrupt: int) -> bool:
    """Whether there was another Ctrl-C."""
    try:
        return bool(os.read(interrupt, 1))
    except BlockingIOError:
        return False
