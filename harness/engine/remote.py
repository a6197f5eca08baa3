"""Runs on other machines, which share the folder of the runs with this one and nothing else.

A worker writes what it is doing to progress.json in its run's folder, about once a second, and
trains as long as the file of its sweep exists. However an order travels, all else is in files.
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

from harness.engine.job import execute_job
from harness.engine.stack_plan import Job
from harness.runs.events import FINAL
from harness.runs.files import read_json
from harness.runs.folder import finished
from harness.settings.config import RunConfig
from leaderboard.files import write_whole

POLL = 0.3  # seconds between two looks at all runs
PROGRESS = "progress.json"

Handle = TypeVar("Handle")
Ended = list[dict[str, Any]] | dict[str, Any]  # the last event of each run, or one for all


@dataclass(frozen=True)
class Order:
    """Runs of one job to execute, as they travel: one, or several as a stack.

    Calling it executes them and gives the last event of each.
    """

    configs: tuple[RunConfig, ...]
    root: Path
    command: str
    threads: int
    sweep: Path  # the runs save a checkpoint and end when this file is gone
    measure: bool = False  # stack them only where that is faster, as measured where they run

    def __call__(self) -> list[dict[str, Any]]:
        import torch

        torch.set_num_threads(self.threads)
        if not self.root.is_dir():
            error = f"{self.root} is not on this machine: it must be a shared folder"
            return [{"error": error} for _ in self.configs]
        signs = _Signs(self)
        try:
            execute_job(self.configs, self.root, self.command, signs.tell, self._stop, self.measure)
        finally:
            self.clear()
        return [signs.last[place] for place in range(len(self.configs))]

    def path(self, place: int) -> Path:
        """The folder of one of the runs."""
        return self.root / self.configs[place].hash

    def clear(self) -> None:
        """Forget what was told about its runs."""
        for place in range(len(self.configs)):
            (self.path(place) / PROGRESS).unlink(missing_ok=True)

    def _stop(self) -> bool:
        return not self.sweep.exists()


class _Signs:
    """Signs of life of an order's runs; nothing depends on them, so that they may be lost.

    Each replaces the one before, which nobody may have seen: words for the user, and a record
    before all runs of a stack have theirs, stay.
    """

    def __init__(self, order: Order) -> None:
        self.order = order
        self.last: dict[int, dict[str, Any]] = {}
        self.said: dict[int, list[dict[str, Any]]] = {}

    def tell(self, place: int, event: dict[str, Any]) -> None:
        self.last[place] = event
        if event.keys() & FINAL - {"record"}:
            return
        said = self.said.setdefault(place, [])
        if event.keys() & {"note", "again"}:
            said.append(event)
        folder = self.order.path(place)
        where = {"run": folder.name, "host": socket.gethostname(), "pid": os.getpid()}
        with suppress(OSError):
            text = json.dumps(event | where | {"said": said})
            write_whole(folder / PROGRESS, text.encode())


@dataclass
class _Running(Generic[Handle]):
    """An order, and those of its runs that have no last event yet, by their place in it."""

    handle: Handle
    order: Order
    left: dict[int, int]  # place: run
    seen: dict[int, dict[str, Any]] = field(default_factory=dict)

    @property
    def trains(self) -> bool:
        """Whether, by its last signs, it would save a checkpoint if it was stopped."""
        seen = [self.seen.get(place, {}) for place in self.left]
        return any("loss" in one for one in seen) and not any("phase" in one for one in seen)

    @property
    def sign(self) -> dict[str, Any]:
        """The last that any of them told; {} before the first."""
        return next(iter(self.seen.values()), {})

    def told(self) -> Iterator[tuple[int, dict[str, Any]]]:
        """What is new in the files of its runs."""
        for place, run in list(self.left.items()):
            event, before = read_json(self.order.path(place) / PROGRESS), self.seen.get(place, {})
            if not event or event == before:
                continue
            self.seen[place] = event
            yield from ((run, one) for one in event["said"][len(before.get("said", ())) :])
            if "record" in event:
                del self.left[place]
            if not event.keys() & {"note", "again"}:
                yield run, event

    def end(self, events: Ended) -> Iterator[tuple[int, dict[str, Any]]]:
        """The last events of those that are left."""
        for place, run in self.left.items():
            event = events[place] if isinstance(events, list) else dict(events)
            if "died" in event and (record := finished(self.order.path(place))):
                event = {"record": record}
            yield run, event


class Remote(ABC, Generic[Handle]):
    """The `Workers` of the scheduler, for whatever carries orders to other machines."""

    tries = 4

    def __init__(self, root: Path, command: str, threads: int, measure: bool = True) -> None:
        self.root, self.command, self.threads = root.resolve(), command, threads
        self.measure = measure
        self.sweep = self.root / f".sweep-{uuid4().hex[:12]}"
        self.stopping = False
        self.running: list[_Running[Handle]] = []
        self.refused: list[tuple[int, dict[str, Any]]] = []

    @abstractmethod
    def submit(self, order: Order) -> Handle:
        """Send it off."""

    @abstractmethod
    def ended(self, handle: Handle) -> Ended | None:
        """What calling the order gave, one last event for all; None while it waits or runs."""

    @abstractmethod
    def cancel(self, handle: Handle, sign: dict[str, Any]) -> None:
        """End it at once, or take it out of the queue; `sign` is a sign of life, if there was."""

    def start(self, runs: Job, configs: Sequence[RunConfig]) -> None:
        self.root.mkdir(parents=True, exist_ok=True)
        self.sweep.touch()
        measure = self.measure and len(runs) > 1
        order = Order(tuple(configs), self.root, self.command, self.threads, self.sweep, measure)
        order.clear()
        try:
            self.running.append(_Running(self.submit(order), order, dict(enumerate(runs))))
        except Exception as error:  # Slurm takes no more jobs, say
            self.refused += [(run, _halt("cannot be submitted", error)) for run in runs]

    def wait(self, interrupt: int) -> Iterator[tuple[int, dict[str, Any]]]:
        select.select([interrupt], [], [], POLL)
        while self.refused:
            yield self.refused.pop()
        for one in list(self.running):
            events = self._ended(one.handle)
            if events is not None:
                self.running.remove(one)
                yield from one.end(events)
                continue
            yield from one.told()
            if self.stopping and not one.trains:
                self.running.remove(one)
                self.cancel(one.handle, one.sign)
                yield from one.end({"busy": "stopped"})

    def stop(self) -> None:
        """Runs that train save a checkpoint; the others have one, or nothing to save."""
        self.stopping = True
        self.sweep.unlink(missing_ok=True)

    def close(self) -> None:
        self.sweep.unlink(missing_ok=True)
        for one in self.running:
            self.cancel(one.handle, one.sign)
        self.running.clear()

    def _ended(self, handle: Handle) -> Ended | None:
        try:
            return self.ended(handle)
        except Exception as error:  # the cluster is gone
            return _halt("nothing is known of it any more", error)


def _halt(what: str, error: Exception) -> dict[str, Any]:
    """A run's last event where other runs would end the same way."""
    text = " ".join(str(error).split())[:300]
    return {"error": f"{what}: {type(error).__name__}: {text}", "halt": True}
