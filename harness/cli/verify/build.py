"""Build what a configuration names, without more memory than a check may use."""

from collections.abc import Iterator
from functools import lru_cache
from typing import Any

import torch

from experiment.config import Model, RunConfig
from harness import tasks
from harness.model.transformer import Transformer, shape_of
from harness.tasks.base import Task
from pezoo.base import Encoding, Shape
from pezoo.registry import make

MOST_TOKENS = 2**24  # in what a check draws at once
MOST_WEIGHTS = 2**28  # in a backbone that a check initialises
ENCODING = ("encoding", "spec", "encoding_version", "protocol", "device", "attention")
Facts = dict[str, tuple[Any, Any]]  # (in the record, expected)
task_of = lru_cache(1000)(tasks.make)


def lengths_of(task: Task, config: RunConfig) -> list[int]:
    """Return the training lengths."""
    return task.lengths(*config.train.lengths)


def shared(config: RunConfig) -> RunConfig:
    """Return a run with the same batches and tests, whatever its encoding."""
    return config.replace(**dict.fromkeys(ENCODING, ""))


@lru_cache(1000)
def size_of(model: Model) -> int:
    """Return the number of weights outside of the encoding."""
    with torch.device("meta"):
        return weights_of(Transformer(model, Encoding(shape_of(model, 1)), 0, "eager", "meta"))


@lru_cache(10_000)
def encoding_of(spec: str, shape: Shape) -> Encoding:
    """Build an encoding without memory for its weights: a record's table may be of any size."""
    try:
        with torch.device("meta"):
            return make(spec, shape)
    except (RuntimeError, NotImplementedError):  # a plug-in that reads values while it is built
        return make(spec, shape)


def weights_of(module: torch.nn.Module) -> int:
    """Return the number of a module's weights."""
    return sum(part.numel() for part in module.parameters())


def limit(size: int, most: int, what: str) -> None:
    """Raise ValueError if there are more than a check may use."""
    if size > most:
        raise ValueError(f"{size:,} {what} are too many to check; the most are {most:,}")


def different(expected: Facts) -> Iterator[str]:
    """Yield each value of the record that is set and is not the expected one."""
    for name, (found, value) in expected.items():
        close = isinstance(value, float) and found is not None and abs(found - value) <= 1e-9
        if found not in (None, value) and not close:
            yield f"{name} is {str(found)[:200]}, expected {str(value)[:200]}"
