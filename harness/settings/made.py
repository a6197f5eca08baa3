"""Whether a record's encoding and task can be built, and the task has the lengths it names."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import lru_cache

from leaderboard.schema import Record


def refusals(record: Record) -> Iterator[str]:
    """Why one of them cannot, or what it has; nothing for a good record."""
    model = record.config.model
    sizes = model.width, model.heads, model.layers, record.train_length
    yield from _encoding(record.config.encoding, *sizes)
    yield from (faults := _task(record.task))
    if not faults:
        yield from _instances(record)
        yield from _sets(record)


@lru_cache(1000)
def _encoding(spec: str, width: int, heads: int, layers: int, length: int) -> tuple[str, ...]:
    from pezoo.base import Shape
    from pezoo.registry import make

    shape = Shape(width, heads, width // heads, layers, length)
    return _reason(lambda: make(spec, shape))


@lru_cache(1000)
def _task(text: str) -> tuple[str, ...]:
    from harness import tasks

    return _reason(lambda: tasks.make(text))


def _instances(record: Record) -> Iterator[str]:
    """Lengths have "no instance" where the task has none, and only there."""
    version = record.config.task_version
    for where, both in record.by_mode.items():
        for score in both.last:
            if (missing := _missing(record.task, version, score.length)) is None:
                continue
            if missing != (score.status == "no instance"):
                has = f"{record.task} has {'no instance' if missing else 'instances'}"
                place = f"{where or 'last'}, length {score.length}"
                yield f"{place}: {has} of this length, the status is {score.status}"


def _sets(record: Record) -> Iterator[str]:
    """A length of a further test set is seen where no instance is longer than those in training."""
    version, top = record.config.task_version, record.train_length
    for name, scores in record.sets.items():
        for score in scores:
            longest = _longest(record.task, version, name, score.length)
            if score.seen and longest is not None and longest > top:
                yield (
                    f"{name}, length {score.length}: seen, but instances of length {longest} are "
                    f"longer than in training ({top})"
                )


@lru_cache(10_000)
def _missing(text: str, version: int, length: int) -> bool | None:
    """Whether a task has no instance of a length; None if this is another version of it."""
    from harness import tasks

    task = tasks.make(text)
    return not task.lengths(length, length) if task.version == version else None


@lru_cache(10_000)
def _longest(text: str, version: int, name: str, length: int) -> int | None:
    """The longest of a few instances of a test set; None if this is another version of the task."""
    import torch

    from harness import tasks

    task = tasks.make(text)
    if task.version != version or not task.lengths(length, length):
        return None
    return task.longest(task.test_set(name, torch.Generator().manual_seed(0), 8, length).prompt)


def _reason(build: Callable[[], object]) -> tuple[str, ...]:
    try:
        build()
    except (ValueError, RuntimeError, MemoryError, OverflowError, TypeError) as error:
        return (f"it cannot be built: {error}",)
    return ()
