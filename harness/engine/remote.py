"""Runs on other machines, which share the folder of the runs with this one and nothing else.

A worker writes what it is doing to progress.json in its run's folder, about once a second, and
looks there for the sweep's stop file. However an order travels, all else is in files.
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
    stop: Path  # the run saves a checkpoint and ends when this file exists

    def __call__(self) -> dict[str, Any]:
        import torch

        torch.set_num_threads(self.threads)
        if not self.root.is_dir():
            return {"error": f"{self.root} is not on this machine: it must be a shared folder"}
        try:
            return outcome(self.config, self.root, self.command, self._report, self.stop.exists)
        finally:
            self.progress.unlink(missing_ok=True)

    @property
    def progress(self) -> Path:
        return self.root / self.config.hash / "progress.json"

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
        self.flag = self.root / f".stop-{uuid4().hex[:12]}"
        self.running: dict[int, tuple[Handle, Order]] = {}
        self.seen: dict[int, dict[str, Any]] = {}

    @abstractmethod
    def submit(self, order: Order) -> Handle:
        """Send it off."""

    @abstractmethod
    def ended(self, handle: Handle) -> dict[str, Any] | None:
        """The last event of an order, {"died": how}, or None while it waits or runs."""

    @abstractmethod
    def cancel(self, handle: Handle) -> None:
        """End it at once, or take it out of the queue."""

    def start(self, run: int, config: RunConfig) -> None:
        order = Order(config, self.root, self.command, self.threads, self.flag)
        order.progress.unlink(missing_ok=True)
        self.running[run] = (self.submit(order), order)

    def wait(self, interrupt: int) -> Iterator[tuple[int, dict[str, Any]]]:
        select.select([interrupt], [], [], POLL)
        for run, (handle, order) in list(self.running.items()):
            event = self.ended(handle)
            if event is not None:
                self._forget(run)
                yield run, event
                continue
            event = read_json(order.progress)
            if event and event != self.seen.get(run):
                self.seen[run] = event
                yield run, event
            if self.flag.exists() and not self._training(run):
                self.cancel(handle)
                self._forget(run)
                yield run, {"busy": "stopped"}

    def stop(self) -> None:
        """Runs that train save a checkpoint; the others have one, or nothing to save."""
        self.flag.touch()

    def close(self) -> None:
        for handle, _ in self.running.values():
            self.cancel(handle)
        self.running.clear()
        self.flag.unlink(missing_ok=True)

    def _training(self, run: int) -> bool:
        return "loss" in self.seen.get(run, {})

    def _forget(self, run: int) -> None:
        del self.running[run]
        self.seen.pop(run, None)
