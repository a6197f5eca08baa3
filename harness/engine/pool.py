"""Worker processes on one machine. Which worker takes a run changes nothing about its result.

A run whose worker dies goes on in another one; dies that too, it is recorded as failed. On Ctrl-C
every worker saves a checkpoint; on a second one, or when this process dies, they are gone at once.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from multiprocessing.context import ForkServerContext, ForkServerProcess
from pathlib import Path
from typing import Any

from harness.config import RunConfig

Event = Callable[[int, dict[str, Any]], None]
FINAL = {"record", "error", "busy"}
TRIES = 2


def run_all(
    configs: Sequence[RunConfig], root: Path, command: str, jobs: int, on_event: Event
) -> None:
    """Execute every run, `jobs` at a time; on_event(index, event) tells what happens.

    Events: progress from `execute`, then {"record": ...}, {"error": text}, or {"busy": text} where
    another process holds the run or Ctrl-C stopped it. A run that is held is tried once more after
    all others. A file that cannot be written ends the sweep.
    Errors: KeyboardInterrupt after Ctrl-C, when the checkpoints are saved.
    """
    pool = _Pool(configs, root, command, jobs, on_event)
    with _interrupts() as interrupt:
        try:
            if pool.run(interrupt):
                return
            pool.stop(interrupt)
        finally:
            pool.close()
    raise KeyboardInterrupt


@dataclass
class _Worker:
    """A process and the run that it is at."""

    process: ForkServerProcess
    pipe: Connection
    run: int = -1
    evaluating: bool = False


class _Pool:
    def __init__(
        self, configs: Sequence[RunConfig], root: Path, command: str, jobs: int, on_event: Event
    ) -> None:
        self.configs, self.root, self.command = configs, root, command
        self.jobs, self.on_event = jobs, on_event
        self.waiting = deque(range(len(configs)))
        self.busy: dict[Connection, _Worker] = {}
        self.idle: list[_Worker] = []
        self.deaths: Counter[int] = Counter()
        self.held: set[int] = set()
        self.stopping = False

    def run(self, interrupt: int) -> bool:
        """Until everything is done: True; or until Ctrl-C: False."""
        while self.waiting or self.busy:
            while self.waiting and len(self.busy) < self.jobs:
                self._give(self.waiting.popleft())
            if self._interrupted(interrupt):
                return False
        return True

    def stop(self, interrupt: int) -> None:
        """Have every worker save what it has; a further Ctrl-C ends the wait."""
        self.stopping = True
        for worker in self.busy.values():
            worker.process.terminate()
        while self.busy:
            for worker in self.busy.values():
                if worker.evaluating:  # its checkpoints are saved, and evaluating can take minutes
                    worker.process.kill()
            if self._interrupted(interrupt):
                return

    def close(self) -> None:
        for worker in (*self.busy.values(), *self.idle):
            worker.process.kill()
            worker.process.join()

    def _interrupted(self, interrupt: int) -> bool:
        """Wait for events and take them; whether Ctrl-C was one of them."""
        for ready in wait([*self.busy, interrupt]):
            if not isinstance(ready, Connection):
                os.read(interrupt, 1)
                return True
            self._receive(self.busy[ready])
        return False

    def _give(self, run: int) -> None:
        worker = self.idle.pop() if self.idle else _spawn(self.jobs)
        worker.run, worker.evaluating = run, False
        self.busy[worker.pipe] = worker
        try:
            worker.pipe.send((self.configs[run], self.root, self.command))
        except OSError:  # it died idle; reading from its pipe says so
            return

    def _receive(self, worker: _Worker) -> None:
        run = worker.run
        try:
            event = worker.pipe.recv()
        except (EOFError, OSError):
            del self.busy[worker.pipe]
            worker.process.join()
            event = self._died(run, worker.process.exitcode or 0)
        else:
            worker.evaluating = event.get("phase") == "evaluating"
            if event.keys() & FINAL:
                self.idle.append(self.busy.pop(worker.pipe))
        if "busy" in event and not self.stopping and run not in self.held:
            self.held.add(run)
            self.waiting.append(run)
            return
        if event.pop("halt", False):
            if self.waiting:
                event["error"] += f"; {len(self.waiting)} more not started"
            self.waiting.clear()
        if event:
            self.on_event(run, event)

    def _died(self, run: int, code: int) -> dict[str, Any]:
        """The event that says so, or none where the run is tried again."""
        how = signal.Signals(-code).name if code < 0 else f"exit code {code}"
        if self.stopping:
            return {"busy": "stopped"}
        self.deaths[run] += 1
        if self.deaths[run] < TRIES:
            self.waiting.appendleft(run)
            return {}
        memory = ", mostly for lack of memory" if how == "SIGKILL" else ""
        why = f"its process died {TRIES} times, at last by {how}{memory}"
        return _recorded(self.configs[run], self.root, self.command, why)


def _recorded(config: RunConfig, root: Path, command: str, why: str) -> dict[str, Any]:
    from harness.execute import fail

    try:
        return {"record": fail(config, root, command, why)}
    except OSError as error:
        return {"error": f"{why}; and {error}"}


@contextmanager
def _interrupts() -> Iterator[int]:
    """A file to read from after each Ctrl-C, which then does not interrupt anything else."""
    reader, writer = os.pipe()
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


def fork_server() -> ForkServerContext:
    """Processes forked from one that has done nothing but import: they start in no time."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["harness.execute", "torch._dynamo"])  # what training imports
    return context


def threads_of(jobs: int) -> int:
    """Threads for each of so many workers: the cores shared out, or OMP_NUM_THREADS."""
    asked = os.environ.get("OMP_NUM_THREADS", "").partition(",")[0]
    if asked.isdecimal() and int(asked):
        return int(asked)
    has_affinity = hasattr(os, "sched_getaffinity")
    cores = len(os.sched_getaffinity(0)) if has_affinity else os.cpu_count() or 1
    return max(1, cores // jobs)


def _spawn(jobs: int) -> _Worker:
    context = fork_server()
    ours, theirs = context.Pipe()
    process = context.Process(target=_work, args=(theirs, threads_of(jobs)), daemon=True)
    # The mask is inherited: Ctrl-C reaches the whole group, and this process alone reacts.
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        process.start()
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
    theirs.close()
    return _Worker(process, ours)


def _work(pipe: Connection, threads: int) -> None:
    """Take runs from the pipe until it closes; SIGTERM asks for a checkpoint."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    asked: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, frame: asked.append(number))
    threading.Thread(target=_leave_with_parent, daemon=True).start()
    import torch

    while True:
        try:
            config, root, command = pipe.recv()
            torch.set_num_threads(threads)
            pipe.send(_outcome(config, root, command, pipe, lambda: bool(asked)))
        except (EOFError, OSError):
            return


def _leave_with_parent() -> None:
    """Nobody would take the result; and the run is free for whoever starts next."""
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    os._exit(1)


def _outcome(
    config: RunConfig, root: Path, command: str, pipe: Connection, stop: Callable[[], bool]
) -> dict[str, Any]:
    from filelock import Timeout

    from harness.execute import Stopped, execute

    def report(event: dict[str, Any]) -> None:
        try:
            pipe.send(event)
        except OSError:
            raise SystemExit(1) from None  # the parent is gone

    try:
        return {"record": execute(config, root, command, report, stop)}
    except Timeout:
        return {"busy": "another process is training it"}
    except Stopped as error:
        return {"busy": f"stopped at {error}, checkpoint saved"}
    except OSError as error:  # a run's own errors are in its record
        return {"error": str(error), "halt": True}
    except Exception as error:
        return {"error": f"{type(error).__name__}: {error}"}
