"""What every engine is and can be told."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from experiment.config import RunConfig
from harness.engine.stack_plan import Job
from harness.runs.events import ReportOf


class EngineError(ValueError):
    """An engine that does not exist, is not installed, or cannot do what the user wants."""


@dataclass(frozen=True)
class Options:
    """What a user may say about an engine."""

    jobs: int | None = None  # at once
    threads: int | None = None  # CPU threads of each worker
    address: str | None = None  # of a Ray cluster
    slurm: tuple[str, ...] = ()  # key=value for submitit
    accumulate: int | None = None  # parts in which each process computes its batch
    stack: str = "auto"  # whether seeds and learning rates train as one model: auto, on or off


@dataclass(frozen=True)
class Engine(ABC):
    """Executes the runs of a comparison."""

    options: Options

    @abstractmethod
    def device(self, requested: str) -> str:
        """The device of the runs. Errors: ValueError where there is none."""

    @abstractmethod
    def jobs(self, configs: Sequence[RunConfig]) -> int:
        """How many jobs of these runs it has in progress at once."""

    @abstractmethod
    def plan(self, configs: Sequence[RunConfig], root: Path) -> list[Job]:
        """The jobs of these runs: one each, or several runs that train as a stack."""

    @abstractmethod
    def run_all(
        self, configs: Sequence[RunConfig], root: Path, command: str, report: ReportOf
    ) -> None:
        """Execute all runs; report(i, event) says what happens to run i.

        Errors: KeyboardInterrupt after Ctrl-C or SIGTERM, when the checkpoints are saved.
        """
