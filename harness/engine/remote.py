"""Runs on other machines, which share nothing with this one but the folder of the runs.

A worker writes its latest event to progress.json in its run's folder, about once a second, and the
event with which it ends to a file of its own. It trains as long as a file exists that this process
made. However a job travels, all else is in files.
"""

import json
import os
import select
import socket
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from uuid import uuid4

from experiment.config import RunConfig
from experiment.files import is_alive, write_whole
from harness.engine import scheduler
from harness.runs.events import Event
from harness.runs.files import read_json
from harness.runs.folder import failed, finished

POLL = 0.3  # seconds between two polls of all runs
PROGRESS = "progress.json"


class Engine(scheduler.Engine):
    """An engine that hands jobs to a cluster."""

    @property
    def threads(self) -> int:
        return self.options.threads or 1

    def jobs(self, configs: Sequence[RunConfig]) -> int:
        """Return `--jobs`, by default all: the cluster starts as many as it has room for."""
        return max(1, min(self.options.jobs or len(configs), len(configs)))


@dataclass(frozen=True)
class RemoteJob:
    """A run as it travels: calling it executes the run and returns its last event."""

    config: RunConfig
    root: Path
    command: str
    threads: int
    alive: Path  # the run saves a checkpoint and ends when this file is gone

    def __call__(self) -> Event:
        import torch

        from harness.runs.run import last_event

        torch.set_num_threads(self.threads)
        if not self.root.is_dir():
            return {"error": f"{self.root} is not on this machine: it must be a shared folder"}
        stop = lambda: not self.alive.exists()  # noqa: E731
        try:
            event = last_event(self.config, self.root, self.command, self._report, stop)
            self._write(self._last, {key: event[key] for key in event.keys() - {"record"}})
            return event
        finally:
            (self.folder / PROGRESS).unlink(missing_ok=True)

    def checkpoint(self) -> Any:
        """Return the job that Slurm requeues after an interruption; submitit calls it.

        It continues from the last checkpoint.
        """
        from submitit.helpers import DelayedSubmission

        return DelayedSubmission(self)

    @property
    def folder(self) -> Path:
        """The folder of the run."""
        return self.root / self.config.hash

    @property
    def _last(self) -> Path:
        return self.folder / f"{self.alive.name}.last"

    def outcome(self) -> Event | None:
        """Return the event with which it ended, from its files; None where they do not tell."""
        event = read_json(self._last)
        if event == {}:
            record = finished(self.folder) or failed(self.folder)
            return {"record": record} if record else None
        return event if isinstance(event, dict) else None

    def clear(self) -> None:
        """Remove the files of its events."""
        for path in (self.folder / PROGRESS, self._last):
            path.unlink(missing_ok=True)

    def _report(self, event: Event) -> None:
        where = {"run": self.folder.name, "host": socket.gethostname(), "pid": os.getpid()}
        self._write(self.folder / PROGRESS, event | where)

    def _write(self, path: Path, event: Event) -> None:
        """Replace the event before. Nothing depends on the file, so a lost one does no harm."""
        with suppress(OSError):
            write_whole(path, json.dumps(event).encode())


@dataclass
class _Running:
    """A job that was submitted."""

    run: int
    handle: Any
    job: RemoteJob
    seen: Event = field(default_factory=dict)  # the last event of its progress; {} before


class RemoteWorkers(ABC):
    """The scheduler's `Workers`, for whatever carries jobs to other machines."""

    tries = 4

    def __init__(self, root: Path, command: str, threads: int) -> None:
        self.root, self.command, self.threads = root.resolve(), command, threads
        self.alive = self.root / f".sweep-{uuid4().hex[:12]}"
        self.stopping = False
        self.running: list[_Running] = []
        self.refused: list[tuple[int, Event]] = []

    @abstractmethod
    def submit(self, job: RemoteJob) -> Any:
        """Send a job off."""

    @abstractmethod
    def ended(self, handle: Any) -> Event | None:
        """Return the last event of a job, None while it is not over."""

    @abstractmethod
    def cancel(self, handle: Any, progress: Event) -> None:
        """End a job at once, or take it out of the queue; `progress` is its last event, or {}."""

    def start(self, run: int, config: RunConfig) -> None:
        self.root.mkdir(parents=True, exist_ok=True)
        if not self.alive.exists():
            _forget_the_dead(self.root)
            self.alive.write_text(f"{socket.gethostname()} {os.getpid()}", encoding="utf-8")
        job = RemoteJob(config, self.root, self.command, self.threads, self.alive)
        job.clear()
        try:
            self.running.append(_Running(run, self.submit(job), job))
        except Exception as error:  # for example: Slurm takes no more jobs
            self.refused.append((run, _halt("cannot be submitted", error)))

    def wait(self, interrupt: int) -> Iterator[tuple[int, Event]]:
        select.select([interrupt], [], [], POLL)
        while self.refused:
            yield self.refused.pop()
        for one in list(self.running):
            folder, event = one.job.folder, self._ended(one.handle)
            if event is None:
                news = read_json(folder / PROGRESS)
                if news and news != one.seen:
                    one.seen = news
                    yield one.run, news
                if not self.stopping or "loss" in one.seen:  # it saves a checkpoint
                    continue
                self._cancel(one)
                event = {"busy": "stopped"}
            self.running.remove(one)
            one.job.clear()
            if "died" in event and (record := finished(folder)):
                event = {"record": record}
            yield one.run, event

    def stop(self) -> None:
        """Runs that train save a checkpoint; the others have one, or nothing to save."""
        self.stopping = True
        self.alive.unlink(missing_ok=True)

    def close(self) -> None:
        self.alive.unlink(missing_ok=True)
        for one in self.running:
            self._cancel(one)
        self.running.clear()

    def _cancel(self, one: _Running) -> None:
        self.cancel(one.handle, one.seen)
        one.job.clear()  # a cancelled job may not do it itself

    def _ended(self, handle: Any) -> Event | None:
        try:
            return self.ended(handle)
        except Exception as error:  # the cluster is gone
            return _halt("nothing is known of it any more", error)


def _forget_the_dead(root: Path) -> None:
    """Delete the files of processes that were killed on this machine, which ends their jobs."""
    for path in root.glob(".sweep-*"):
        with suppress(OSError):
            host, _, pid = path.read_text(encoding="utf-8").partition(" ")
            if host == socket.gethostname() and pid.isdecimal() and not is_alive(int(pid)):
                path.unlink()


def _halt(what: str, error: Exception) -> Event:
    """Return a run's last event after an error that would end other runs in the same way."""
    text = " ".join(str(error).split())[:300]
    return {"error": f"{what}: {type(error).__name__}: {text}", "halt": True}
