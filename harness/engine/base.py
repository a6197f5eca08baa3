"""The interface of every engine."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from experiment.config import RunConfig
from harness.runs.events import ReportOf


class EngineError(ValueError):
    """An engine that does not exist, is not installed, or cannot do what was asked."""


@dataclass(frozen=True)
class Options:
    """The options of `pezoo bench` that concern the engine."""

    jobs: int | None = None  # runs at once
    threads: int | None = None  # CPU threads of each run
    address: str | None = None  # of a Ray cluster
    slurm: tuple[str, ...] = ()  # key=value for submitit
    accumulate: int | None = None  # parts in which each process of torchrun computes its batch


@dataclass(frozen=True)
class Engine(ABC):
    """Executes the runs of a comparison."""

    options: Options

    @abstractmethod
    def device(self, requested: str) -> str:
        """Return the device of the runs. Errors: ValueError where it is not available."""

    @abstractmethod
    def jobs(self, configs: Sequence[RunConfig]) -> int:
        """Return how many of these runs are in progress at once."""

    @abstractmethod
    def run_all(
        self, configs: Sequence[RunConfig], root: Path, command: str, report: ReportOf
    ) -> None:
        """Execute all runs; report(i, event) says what happens to run i.

        Errors: KeyboardInterrupt after Ctrl-C or SIGTERM, once the checkpoints are saved.
        """
