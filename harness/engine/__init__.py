"""Engines execute runs: worker processes here, a Ray cluster, Slurm, or torchrun's processes.

The engine and its number of workers change no weight and no score: a run depends on its config, and
in the last bits on how many threads and processes share its sums, which the record names. An engine
is imported when it is used; its name is that of its module and of the extra that it needs.
"""

import os
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

from experiment.config import RunConfig
from harness.runs.events import ReportOf
from pezoo.spec import nearest, unknown

NAMES = ("local", "ray", "submitit", "ddp")
_NEEDS = ("ray", "submitit")


class EngineError(ValueError):
    """An engine that does not exist, is not installed, or cannot do what was asked."""


@dataclass(frozen=True)
class Options:
    """The options of `pezoo bench` that concern how runs are executed."""

    jobs: int | None = None  # runs at once
    threads: int | None = None  # CPU threads of each run
    address: str | None = None  # of a Ray cluster
    slurm: tuple[str, ...] = ()  # key=value for submitit
    accumulate: int | None = None  # parts in which each process of torchrun computes its batch
    log: tuple[str, ...] = ()  # kinds of `harness.runs.logs`


@dataclass(frozen=True)
class Engine(ABC):
    """Executes the runs of a comparison."""

    options: Options

    @abstractmethod
    def device(self, requested: str) -> str:
        """Return the device of the runs. Errors: ValueError if it is not available."""

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


def make(name: str | None, options: Options) -> Engine:
    """Return an engine by name; by default local, and ddp under torchrun.

    Errors: EngineError names the nearest one, or what has to be installed.
    """
    name = name or ("ddp" if "TORCHELASTIC_RUN_ID" in os.environ else "local")
    if name not in NAMES:
        slurm = "; Slurm is submitit" if nearest(name, ["slurm"]) else ""
        raise EngineError(unknown("engine", name, NAMES) + slurm)
    for option, value, owner in (
        ("--address", options.address, "ray"),
        ("--slurm", options.slurm, "submitit"),
        ("--accumulate", options.accumulate, "ddp"),
    ):
        if value and name != owner:
            raise EngineError(f"{option} belongs to --engine {owner}; the engine is {name}")
    if name in _NEEDS and find_spec(name) is None:
        raise EngineError(f'engine {name} is not installed: pip install "pezoo[{name}]"')
    made: Engine = import_module(f"harness.engine.{name}").Engine(options)
    return made


def check_kind(chooser: str, requested: str) -> None:
    """Refuse a device other than auto, cpu and cuda. Errors: EngineError."""
    if requested not in ("auto", "cpu", "cuda"):
        raise EngineError(
            f"{chooser} chooses the GPU: expected auto, cpu or cuda, was {requested!r}"
        )
