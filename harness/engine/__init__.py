"""Where runs are executed: worker processes here, a Ray cluster, Slurm, or torchrun's processes.

Which engine it is, and with how many workers, changes no weight and no score: a run depends on its
config, and in the last bits on how many threads and processes share its sums, which the record
names. An engine is imported when it is asked for; its name is that of its module and of the extra
that it needs.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from harness.engine.scheduler import Event
    from harness.engine.stack_plan import Job
    from harness.settings.config import RunConfig

NAMES = ("local", "ray", "submitit", "ddp")
_NEEDS = {"ray": "ray", "submitit": "submitit"}


class EngineError(ValueError):
    """An engine that does not exist, is not installed, or cannot do what it is asked."""


@dataclass(frozen=True)
class Options:
    """What a user may say about an engine."""

    jobs: int | None = None  # runs at once
    threads: int | None = None  # CPU threads of each worker
    address: str | None = None  # of a Ray cluster
    slurm: tuple[str, ...] = ()  # key=value for submitit
    accumulate: int | None = None  # parts in which each process computes its batch
    stack: str = "auto"  # whether seeds and learning rates train as one model: auto, on or off


class Engine(Protocol):
    """What executes the runs of a matrix."""

    def device(self, asked: str) -> str:
        """The device for the configs. Errors: ValueError where there is none."""

    def jobs(self, configs: Sequence[RunConfig]) -> int:
        """How many of these runs it has in progress at once."""

    def plan(self, configs: Sequence[RunConfig], root: Path) -> list[Job]:
        """Which of these runs one worker trains together, as a stack; all others alone."""

    def run_all(
        self, configs: Sequence[RunConfig], root: Path, command: str, on_event: Event
    ) -> None:
        """As `harness.engine.scheduler.run_all`."""


def make(name: str | None, options: Options) -> Engine:
    """An engine by name; by default local, and ddp under torchrun.

    Errors: EngineError names the nearest one, or what is to be installed.
    """
    from pezoo.spec import unknown

    name = name or ("ddp" if "TORCHELASTIC_RUN_ID" in os.environ else "local")
    if name not in NAMES:
        raise EngineError(unknown("engine", name, NAMES))
    for option, value, owner in (
        ("--address", options.address, "ray"),
        ("--slurm", options.slurm, "submitit"),
        ("--accumulate", options.accumulate, "ddp"),
    ):
        if value and name != owner:
            raise EngineError(f"{option} belongs to --engine {owner}; the engine is {name}")
    if name == "ddp" and options.stack == "on":
        raise EngineError(
            "--stack on: torchrun's processes share one model; engines that stack are local, ray "
            "and submitit"
        )
    need = _NEEDS.get(name)
    if need and find_spec(need) is None:
        raise EngineError(f'engine {name} is not installed: pip install "pezoo[{name}]"')
    made: Engine = import_module(f"harness.engine.{name}").Engine(options)
    return made
