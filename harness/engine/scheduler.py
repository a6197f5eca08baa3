"""All runs of a matrix, whoever executes them: retries, runs held elsewhere, Ctrl-C.

A run whose process dies goes on in another one, from its checkpoint, with those that were stacked
with it; but alone in its last try, so that a run which kills its process takes no other with it.
When the tries are used up it is recorded as failed. On Ctrl-C or SIGTERM the workers save what they
have; a second one ends them at once.
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

from harness.engine.stack_plan import Job
from harness.runs.events import FINAL
from harness.settings.config import RunConfig

Event = Callable[[int, dict[str, Any]], None]


class Interrupted(KeyboardInterrupt):
    """A sweep ended by a signal, its checkpoints saved."""

    def __init__(self, number: int) -> None:
        super().__init__()
        self.signal = number


class Workers(Protocol):
    """Somewhere to execute runs. A run is named by its place in the matrix."""

    tries: int  # how often a run is started, when its process dies

    def start(self, runs: Job, configs: Sequence[RunConfig]) -> None:
        """Begin or queue a run, or several that are to train as one stack."""

    def wait(self, interrupt: int) -> Iterable[tuple[int, dict[str, Any]]]:
        """What has happened to which run, waiting a moment for it.

        Returns early when the file `interrupt` has something to read. The last event of a run is
        one of `harness.runs.events`.
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
    plan: Sequence[Job],
) -> None:
    """Execute every run, `jobs` at a time; on_event(index, event) tells what happens.

    `plan` says which runs are to train as one stack.
    Events: progress from `execute`, {"again": text} where the process of a run has died, {"note":
    text}; at last {"record": ...}, {"error": text}, or {"busy": text} where another process holds
    the run or a signal stopped it. A run that is held is tried once more after all others. A file
    that cannot be written ends the sweep.
    Errors: Interrupted after Ctrl-C or SIGTERM, when the checkpoints are saved.
    """
    sweep = _Sweep(workers, configs, root, command, on_event)
    sweep.waiting = deque(plan)
    with interrupts(signal.SIGINT, signal.SIGTERM) as interrupt:
        try:
            number = sweep.run(jobs, interrupt)
            if not number:
                return
            sweep.stop(interrupt)
        finally:
            workers.close()
    raise Interrupted(number)


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
        self.waiting: deque[Job] = deque()
        self.busy: dict[int, Job] = {}
        self.deaths: Counter[int] = Counter()
        self.lost: dict[Job, list[int]] = {}
        self.held: set[int] = set()
        self.stopping = False

    def run(self, jobs: int, interrupt: int) -> int:
        """Until everything is done: 0; or until a signal: its number."""
        while self.waiting or self.busy:
            while self.waiting and len(set(self.busy.values())) < jobs:
                self._start(self.waiting.popleft())
            if number := self._interrupted(interrupt):
                return number
        return 0

    def _start(self, job: Job) -> None:
        self.busy |= dict.fromkeys(job, job)
        self.workers.start(job, [self.configs[run] for run in job])

    def stop(self, interrupt: int) -> None:
        """Have every run save what it has; a further signal ends the wait."""
        self.stopping = True
        self.workers.stop()
        while self.busy:
            if self._interrupted(interrupt):
                return

    def _interrupted(self, interrupt: int) -> int:
        """Take what happens; the signal, if there was one too."""
        for run, event in self.workers.wait(interrupt):
            self._take(run, event)
        return pressed(interrupt)

    def _take(self, run: int, event: dict[str, Any]) -> None:
        job: Job = ()
        if event.keys() & FINAL:
            job = self.busy.pop(run, (run,))
        if "apart" in event:
            self._split(job, run, event["apart"])
            return
        if "died" in event:
            event = self._died(job, run, event["died"])
        if job not in self.busy.values():
            self._restart(self.lost.pop(job, []))
        if "busy" in event and not self.stopping and run not in self.held:
            self.held.add(run)
            self.waiting.append((run,))
            return
        if event.pop("halt", False):
            if self.waiting:
                event["error"] += f"; {sum(map(len, self.waiting))} more not started"
            self.waiting.clear()
        self.on_event(run, event)

    def _split(self, job: Job, run: int, why: str) -> None:
        """Train this run by itself, and so those of all stacks of its encoding and task."""
        if run == job[0]:
            self.on_event(run, {"note": why})
            kind = _kind(self.configs[run])
            jobs = [(j, _kind(self.configs[j[0]]) == kind) for j in self.waiting]
            self.waiting = deque(
                one for j, same in jobs for one in ([(r,) for r in j] if same else [j])
            )
        self.waiting = deque(sorted([*self.waiting, (run,)]))  # in the order of the matrix

    def _died(self, job: Job, run: int, how: str) -> dict[str, Any]:
        """What the death of a run's process comes to: another try, or a failed record."""
        if self.stopping:
            return {"busy": "stopped"}
        self.deaths[run] += 1
        if self.deaths[run] < self.workers.tries:
            self.lost.setdefault(job, []).append(run)
            return {"again": f"its process died ({how}), trying again"}
        why = f"its process died {self.workers.tries} times, at last by {how}"
        return _recorded(self.configs[run], self.root, self.command, why)

    def _restart(self, runs: list[int]) -> None:
        """Runs of one job that died together are the next to be started."""
        last = any(self.deaths[run] == self.workers.tries - 1 for run in runs)
        jobs = [(run,) for run in runs] if last else [tuple(runs)] if runs else []
        self.waiting.extendleft(reversed(jobs))


def _kind(config: RunConfig) -> tuple[str, str]:
    return config.encoding, config.task


def _recorded(config: RunConfig, root: Path, command: str, why: str) -> dict[str, Any]:
    from filelock import Timeout

    from harness.runs.execute import record_failure

    try:
        return {"record": record_failure(config, root, command, why)}
    except (OSError, Timeout) as error:
        return {"error": f"{why}; and {error}"}


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
