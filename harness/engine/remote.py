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
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, TypeVar
from uuid import uuid4

from harness.config import RunConfig
from harness.engine.outcome import outcome
from harness.files import read_json

POLL = 0.3  # seconds between two looks at all runs

Handle = TypeVar("Handle")


@dataclass(frozen=True)
class Order:
    """One run to execute, as it travels; calling it executes the run and gives its last event."""

    config: RunConfig
    root: Path
    command: str
    threads: int
    sweep: Path  # the run saves a checkpoint and ends when this file is gone

    def __call__(self) -> dict[str, Any]:
        import torch

        torch.set_num_threads(self.threads)
        if not self.root.is_dir():
            return {"error": f"{self.root} is not on this machine: it must be a shared folder"}
        try:
            return outcome(self.config, self.root, self.command, self._report, self._stop)
        finally:
            self.progress.unlink(missing_ok=True)

    @property
    def progress(self) -> Path:
        return self.root / self.config.hash / "progress.json"

    def _stop(self) -> bool:
        return not self.sweep.exists()

    def _report(self, event: dict[str, Any]) -> None:
        """A sign of life; nothing depends on it, so that it may be lost."""
        where = {"run": self.config.hash, "host": socket.gethostname(), "pid": os.getpid()}
        temporary = self.progress.with_name(f".progress.{os.getpid()}")
        with suppress(OSError):
            temporary.write_text(json.dumps(event | where), encoding="utf-8")
            os.replace(temporary, self.progress)


class Remote(ABC, Generic[Handle]):
    """The `Workers` of `harness.engine.sweep`, for whatever carries orders to other machines."""

    tries = 4

    def __init__(self, root: Path, command: str, threads: int) -> None:
        self.root, self.command, self.threads = root.resolve(), command, threads
        self.sweep = self.root / f".sweep-{uuid4().hex[:12]}"
        self.stopping = False
        self.running: dict[int, tuple[Handle, Order]] = {}
        self.seen: dict[int, dict[str, Any]] = {}
        self.refused: list[tuple[int, dict[str, Any]]] = []

    @abstractmethod
    def submit(self, order: Order) -> Handle:
        """Send it off."""

    @abstractmethod
    def ended(self, handle: Handle) -> dict[str, Any] | None:
        """The last event of an order, {"died": how}, or None while it waits or runs."""

    @abstractmethod
    def cancel(self, handle: Handle, event: dict[str, Any]) -> None:
        """End it at once, or take it out of the queue; `event` is the last that it told."""

    def start(self, run: int, config: RunConfig) -> None:
        self.root.mkdir(parents=True, exist_ok=True)
        self.sweep.touch()
        order = Order(config, self.root, self.command, self.threads, self.sweep)
        order.progress.unlink(missing_ok=True)
        try:
            self.running[run] = (self.submit(order), order)
        except Exception as error:  # Slurm takes no more jobs, say
            self.refused.append((run, _halt("cannot be submitted", error)))

    def wait(self, interrupt: int) -> Iterator[tuple[int, dict[str, Any]]]:
        select.select([interrupt], [], [], POLL)
        while self.refused:
            yield self.refused.pop()
        for run, (handle, order) in list(self.running.items()):
            event = self._ended(handle)
            if event is not None:
                self._forget(run)
                yield run, event
                continue
            event = read_json(order.progress)
            if event and event != self.seen.get(run):
                self.seen[run] = event
                yield run, event
            if self.stopping and "loss" not in self.seen.get(run, {}):
                self.cancel(handle, self._forget(run))
                yield run, {"busy": "stopped"}

    def stop(self) -> None:
        """Runs that train save a checkpoint; the others have one, or nothing to save."""
        self.stopping = True
        self.sweep.unlink(missing_ok=True)

    def close(self) -> None:
        self.sweep.unlink(missing_ok=True)
        for run, (handle, _) in list(self.running.items()):
            self.cancel(handle, self._forget(run))

    def _ended(self, handle: Handle) -> dict[str, Any] | None:
        try:
            return self.ended(handle)
        except Exception as error:  # the cluster is gone
            return _halt("nothing is known of it any more", error)

    def _forget(self, run: int) -> dict[str, Any]:
        """The last that it told."""
        del self.running[run]
        return self.seen.pop(run, {})


def _halt(what: str, error: Exception) -> dict[str, Any]:
    """A run's last event where other runs would end the same way."""
    text = " ".join(str(error).split())[:300]
    return {"error": f"{what}: {type(error).__name__}: {text}", "halt": True}
