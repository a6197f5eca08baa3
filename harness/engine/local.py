"""Worker processes on this machine, one per group of cores or per GPU.

Each takes the next run when it is free. When this process dies, they are gone at once.
"""

import multiprocessing
import os
import signal
import tempfile
import threading
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from multiprocessing import forkserver, resource_tracker
from multiprocessing.connection import Connection, wait
from multiprocessing.context import ForkServerContext, ForkServerProcess
from pathlib import Path

from experiment.config import RunConfig
from harness.engine import EngineError, scheduler
from harness.engine.scheduler import without_ctrl_c
from harness.runs.events import FINAL, Event
from harness.settings.protocol import check_device


def cores() -> int:
    """Return the number of cores that this process may use."""
    has_affinity = hasattr(os, "sched_getaffinity")
    return len(os.sched_getaffinity(0)) if has_affinity else os.cpu_count() or 1


def threads_of(jobs: int) -> int:
    """Return the threads of each of so many workers: OMP_NUM_THREADS, or a share of the cores.

    Errors: EngineError for more than 1024, which may kill a process.
    """
    given = os.environ.get("OMP_NUM_THREADS", "").partition(",")[0]
    if given.isdecimal() and int(given) > 1024:
        raise EngineError(f"OMP_NUM_THREADS is {given}: expected at most 1024 threads")
    return int(given) if given.isdecimal() and int(given) else max(1, cores() // jobs)


def _gpus(configs: Sequence[RunConfig]) -> int:
    """Count the GPUs to use: 0 if the runs need none or name one themselves, as cuda:1."""
    if not configs or configs[0].device != "cuda":
        return 0
    import torch

    return torch.cuda.device_count()


@dataclass
class _Worker:
    """A process and the run that it executes."""

    process: ForkServerProcess
    pipe: Connection
    seat: int  # 0, 1, ...: the GPU, where there are several
    run: int = -1
    evaluating: bool = False


class LocalWorkers:
    """Processes of this machine, as the `Workers` of `harness.engine.scheduler`."""

    tries = 2

    def __init__(self, root: Path, command: str, threads: int, gpus: int) -> None:
        self.root, self.command, self.threads, self.gpus = root, command, threads, gpus
        self.busy: dict[Connection, _Worker] = {}
        self.idle: list[_Worker] = []
        self.stopping = False

    def start(self, run: int, config: RunConfig) -> None:
        worker = self.idle.pop() if self.idle else self._spawn()
        worker.run, worker.evaluating = run, False
        self.busy[worker.pipe] = worker
        try:
            worker.pipe.send((config, self.root, self.command))
        except OSError:  # it died idle; reading from its pipe says so
            return

    def wait(self, interrupt: int) -> Iterator[tuple[int, Event]]:
        for ready in wait([*self.busy, interrupt]):
            if isinstance(ready, Connection):
                worker = self.busy[ready]
                yield worker.run, self._event(worker)
                if worker.evaluating and self.stopping:
                    worker.process.kill()  # its checkpoint is saved, and it may take minutes

    def stop(self) -> None:
        self.stopping = True
        for worker in self.busy.values():
            worker.process.kill() if worker.evaluating else worker.process.terminate()

    def close(self) -> None:
        for worker in (*self.busy.values(), *self.idle):
            worker.process.kill()
            worker.process.join()

    def _event(self, worker: _Worker) -> Event:
        """Read the next event of a worker's run."""
        try:
            event: Event = worker.pipe.recv()
        except (EOFError, OSError):
            del self.busy[worker.pipe]
            worker.process.join()
            return {"died": _ending(worker.process.exitcode or 0)}
        worker.evaluating = event.get("phase") == "evaluating"
        if event.keys() & FINAL:
            self.idle.append(self.busy.pop(worker.pipe))
        return event

    def _spawn(self) -> _Worker:
        taken = {worker.seat for worker in self.busy.values()}
        seat = next(n for n in range(len(taken) + 1) if n not in taken)
        gpu = seat % self.gpus if self.gpus > 1 else None
        context = fork_server()
        ours, theirs = context.Pipe()
        process = context.Process(target=_work, args=(theirs, self.threads, gpu), daemon=True)
        process.start()
        theirs.close()
        return _Worker(process, ours, seat)


def _ending(code: int) -> str:
    """Describe how a process ended."""
    if code >= 0:
        return f"exit code {code}"
    name = signal.Signals(-code).name
    return f"{name}, mostly for lack of memory" if name == "SIGKILL" else name


def fork_server() -> ForkServerContext:
    """Return a context whose processes start fast, forked from one that has only imported.

    It ignores Ctrl-C, and so do they. Their sockets are in the folder of temporary files; the path
    of a socket has at most 107 bytes.
    """
    if len(os.fsencode(tempfile.gettempdir())) > 60:
        tempfile.tempdir = "/tmp"
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["harness.runs.run", "torch._dynamo"])
    resource_tracker.ensure_running()  # lets Ctrl-C through again when it starts
    with without_ctrl_c():
        forkserver.ensure_running()
    return context


def _work(pipe: Connection, threads: int, gpu: int | None) -> None:
    """Take runs from the pipe until it closes; SIGTERM asks for a checkpoint."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    warnings.formatwarning = lambda message, *_: f"warning: {message}\n"
    stop: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, frame: stop.append(number))
    threading.Thread(target=_leave_with_parent, daemon=True).start()
    import torch

    from harness.runs.run import last_event

    if gpu is not None:
        torch.cuda.set_device(gpu)  # "cuda" in a run's config then means this one

    def report(event: Event) -> None:
        try:
            pipe.send(event)
        except OSError:
            raise SystemExit(1) from None  # the parent is gone

    while True:
        try:
            config, root, command = pipe.recv()
        except (EOFError, OSError):
            return
        torch.set_num_threads(threads)
        report(last_event(config, root, command, report, lambda: bool(stop)))


def _leave_with_parent() -> None:
    """End with the parent, which frees the run for the next process."""
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    os._exit(1)


class Engine(scheduler.Engine):
    """This machine."""

    def device(self, requested: str) -> str:
        """See `check_device`. Errors: ConfigError if torch cannot use the device."""
        return check_device(requested)

    def jobs(self, configs: Sequence[RunConfig]) -> int:
        """Return `--jobs`; by default one per GPU of several, or one per core up to 2."""
        usual = max(_gpus(configs), min(2, cores()))
        return max(1, min(self.options.jobs or usual, len(configs)))

    def workers(self, configs: Sequence[RunConfig], root: Path, command: str) -> LocalWorkers:
        return LocalWorkers(
            root,
            command,
            threads=self.options.threads or threads_of(self.jobs(configs)),
            gpus=_gpus(configs),
        )
