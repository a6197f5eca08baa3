"""Whether the encoding and the task of a record can be built with their options."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import lru_cache

from leaderboard.schema import Record


def refusals(record: Record) -> Iterator[str]:
    """Why one of them cannot; nothing for a good record."""
    model = record.config.model
    sizes = model.width, model.heads, model.layers, record.train_length
    yield from _encoding(record.config.encoding, *sizes)
    yield from _task(record.task)


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


def _reason(build: Callable[[], object]) -> tuple[str, ...]:
    try:
        build()
    except (ValueError, RuntimeError, MemoryError, OverflowError, TypeError) as error:
        return (f"it cannot be built: {error}",)
    return ()
