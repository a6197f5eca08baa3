"""Runs on other machines, which share nothing with this one but the folder of the runs.

A worker writes its last event to progress.json in its run's folder, about once a second, and trains
as long as a file exists that this process made. However a job travels, all else is in files.
"""

from __future__ import annotations

import json
import os
import select
import socket
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Generic, TypeVar
from uuid import uuid4

from experiment.config import RunConfig
from experiment.files import write_whole
from harness.engine import scheduler
from harness.engine.stack_plan import Job
from harness.runs.events import FINAL, Event
from harness.runs.files import read_json
from harness.runs.folder import finished
from harness.runs.machine import is_alive

POLL = 0.3  # seconds between two looks at all runs
PROGRESS = "progress.json"

Handle = TypeVar("Handle")
Ended = list[Event] | Event  # the last event of each run, or one for all


class Engine(scheduler.Engine):
    """An engine that hands jobs to a cluster."""

    @property
    def threads(self) -> int:
        return self.options.threads or 1

    def jobs(self, configs: Sequence[RunConfig]) -> int:
        """All at once, or up to `--jobs`: the cluster starts as many as it has room for."""
        return max(1, min(self.options.jobs or len(configs), len(configs)))


@dataclass(frozen=True)
class RemoteJob:
    """A job as it travels: calling it executes its runs and returns the last event of each."""

    configs: tuple[RunConfig, ...]
    root: Path
    command: str
    threads: int
    alive: Path  # the runs save a checkpoint and end when this file is gone

    def __call__(self) -> list[Event]:
        import torch

        from harness.runs.execute import execute_all  # imports torch

        torch.set_num_threads(self.threads)
        if not self.root.is_dir():
            error = f"{self.root} is not on this machine: it must be a shared folder"
            return [{"error": error} for _ in self.configs]
        progress = _Progress(self)
        try:
            execute_all(self.configs, self.root, self.command, progress.report, self._stop)
        finally:
            self.clear()
        return [progress.last[place] for place in range(len(self.configs))]

    def folder(self, place: int) -> Path:
        """The folder of one of the runs."""
        return self.root / self.configs[place].hash

    def clear(self) -> None:
        """Remove the progress of its runs."""
        for place in range(len(self.configs)):
            (self.folder(place) / PROGRESS).unlink(missing_ok=True)

    def _stop(self) -> bool:
        return not self.alive.exists()


class _Progress:
    """Writes what happens to a job's runs. Nothing depends on it, so a lost file does no harm.

    An event replaces the one before, which nobody may have read; messages for the user are kept in
    "said". A run's record is written too: the runs stacked with it may still train.
    """

    def __init__(self, job: RemoteJob) -> None:
        self.job = job
        self.last: dict[int, Event] = {}
        self.said: dict[int, list[Event]] = {}

    def report(self, place: int, event: Event) -> None:
        self.last[place] = event
        if event.keys() & FINAL - {"record"}:
            return
        said = self.said.setdefault(place, [])
        if "again" in event:
            said.append(event)
        folder = self.job.folder(place)
        where = {"run": folder.name, "host": socket.gethostname(), "pid": os.getpid()}
        with suppress(OSError):
            write_whole(folder / PROGRESS, json.dumps(event | where | {"said": said}).encode())


@dataclass
class _Running(Generic[Handle]):
    """A job, and those of its runs that have no last event yet, by their place in it."""

    handle: Handle
    job: RemoteJob
    left: dict[int, int]  # place: run
    seen: dict[int, Event] = field(default_factory=dict)

    @property
    def trains(self) -> bool:
        """Whether, by its last events, it would save a checkpoint if it was stopped."""
        seen = [self.seen.get(place, {}) for place in self.left]
        return any("loss" in one for one in seen) and not any("phase" in one for one in seen)

    @property
    def progress(self) -> Event:
        """The last event of any of its runs; {} before the first."""
        return next(iter(self.seen.values()), {})

    def news(self) -> Iterator[tuple[int, Event]]:
        """What is new in the files of its runs."""
        for place, run in list(self.left.items()):
            event, before = read_json(self.job.folder(place) / PROGRESS), self.seen.get(place, {})
            if not event or event == before:
                continue
            self.seen[place] = event
            yield from ((run, one) for one in event["said"][len(before.get("said", ())) :])
            if "record" in event:
                del self.left[place]
            if "again" not in event:
                yield run, event

    def end(self, events: Ended) -> Iterator[tuple[int, Event]]:
        """The last events of those that are left."""
        for place, run in self.left.items():
            event = events[place] if isinstance(events, list) else dict(events)
            if "died" in event and (record := finished(self.job.folder(place))):
                event = {"record": record}
            yield run, event


class RemoteWorkers(ABC, Generic[Handle]):
    """The scheduler's `Workers`, for whatever carries jobs to other machines."""

    tries = 4

    def __init__(self, root: Path, command: str, threads: int) -> None:
        self.root, self.command, self.threads = root.resolve(), command, threads
        self.alive = self.root / f".sweep-{uuid4().hex[:12]}"
        self.stopping = False
        self.running: list[_Running[Handle]] = []
        self.refused: list[tuple[int, Event]] = []

    @abstractmethod
    def submit(self, job: RemoteJob) -> Handle:
        """Send it off."""

    @abstractmethod
    def ended(self, handle: Handle) -> Ended | None:
        """What calling the job returned, or one last event for all; None while it is not over."""

    @abstractmethod
    def cancel(self, handle: Handle, progress: dict[str, Any]) -> None:
        """End it at once, or take it out of the queue; `progress` is its last event, if any."""

    def start(self, job: Job, configs: Sequence[RunConfig]) -> None:
        self.root.mkdir(parents=True, exist_ok=True)
        if not self.alive.exists():
            _forget_the_dead(self.root)
            self.alive.write_text(f"{socket.gethostname()} {os.getpid()}", encoding="utf-8")
        remote = RemoteJob(
            configs=tuple(configs),
            root=self.root,
            command=self.command,
            threads=self.threads,
            alive=self.alive,
        )
        remote.clear()
        try:
            self.running.append(_Running(self.submit(remote), remote, dict(enumerate(job))))
        except Exception as error:  # Slurm takes no more jobs, say
            self.refused += [(run, _halt("cannot be submitted", error)) for run in job]

    def wait(self, interrupt: int) -> Iterator[tuple[int, Event]]:
        select.select([interrupt], [], [], POLL)
        while self.refused:
            yield self.refused.pop()
        for one in list(self.running):
            events = self._ended(one.handle)
            if events is not None:
                self.running.remove(one)
                yield from one.end(events)
                continue
            yield from one.news()
            if self.stopping and not one.trains:
                self.running.remove(one)
                self._cancel(one)
                yield from one.end({"busy": "stopped"})

    def stop(self) -> None:
        """Runs that train save a checkpoint; the others have one, or nothing to save."""
        self.stopping = True
        self.alive.unlink(missing_ok=True)

    def close(self) -> None:
        self.alive.unlink(missing_ok=True)
        for one in self.running:
            self._cancel(one)
        self.running.clear()

    def _cancel(self, one: _Running[Handle]) -> None:
        self.cancel(one.handle, one.progress)
        one.job.clear()  # it may end before it does so itself

    def _ended(self, handle: Handle) -> Ended | None:
        try:
            return self.ended(handle)
        except Exception as error:  # the cluster is gone
            return _halt("nothing is known of it any more", error)


def _forget_the_dead(root: Path) -> None:
    """Delete the files of processes that were killed here, so that their runs end and are free."""
    for path in root.glob(".sweep-*"):
        with suppress(OSError):
            host, _, pid = path.read_text(encoding="utf-8").partition(" ")
            if host == socket.gethostname() and pid.isdecimal() and not is_alive(int(pid)):
                path.unlink()


def _halt(what: str, error: Exception) -> Event:
    """A run's last event where other runs would end the same way."""
    text = " ".join(str(error).split())[:300]
    return {"error": f"{what}: {type(error).__name__}: {text}", "halt": True}
