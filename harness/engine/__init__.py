"""Where runs are executed: worker processes here, a Ray cluster, Slurm, or torchrun's processes.

The engine and its number of workers change no weight and no score: a run depends on its config, and
in the last bits on how many threads and processes share its sums, which the record names. An engine
is imported when it is used; it is called as its module and the extra that it needs.
"""

from __future__ import annotations

import os
from importlib import import_module
from importlib.util import find_spec

from harness.engine.base import Engine, EngineError, Options
from pezoo.spec import unknown

__all__ = ["Engine", "EngineError", "Options", "make"]

NAMES = ("local", "ray", "submitit", "ddp")
_NEEDS = ("ray", "submitit")


def make(name: str | None, options: Options) -> Engine:
    """An engine by name; by default local, and ddp under torchrun.

    Errors: EngineError names the nearest one, or what has to be installed.
    """
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
    if name in _NEEDS and find_spec(name) is None:
        raise EngineError(f'engine {name} is not installed: pip install "pezoo[{name}]"')
    made: Engine = import_module(f"harness.engine.{name}").Engine(options)
    return made
