"""Times that can be compared: candidates take turns, and every ratio stays within one round.

A machine that slows down for a second slows all candidates of that round. A B C A B C with the
ratio taken per round cancels this; A A A B B B would charge it to one of them.
"""

from __future__ import annotations

import gc
import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import NamedTuple, TypeVar

import torch

T = TypeVar("T")
Turn = Callable[[], dict[str, float]]  # seconds per phase


class Times(NamedTuple):
    """Quartiles and median of some seconds.

    >>> Times.of([1.0, 2.0, 3.0, 4.0, 10.0])
    Times(median=3.0, q1=2.0, q3=4.0)
    """

    median: float
    q1: float
    q3: float

    @classmethod
    def of(cls, seconds: Sequence[float]) -> Times:
        if len(seconds) == 1:
            return cls(seconds[0], seconds[0], seconds[0])
        q1, median, q3 = statistics.quantiles(seconds, n=4, method="inclusive")
        return cls(median, q1, q3)


def clock(call: Callable[[], T], device: str) -> tuple[float, T]:
    """Seconds that a call takes until the device has finished, and its result."""
    _synchronise(device)
    began = time.perf_counter()
    result = call()
    _synchronise(device)
    return time.perf_counter() - began, result


def interleave(
    turns: Mapping[str, Turn], rounds: int, warmup: int
) -> dict[str, dict[str, list[float]]]:
    """Seconds by name and phase, one entry per round, in the order of the rounds."""
    seconds: dict[str, dict[str, list[float]]] = {name: {} for name in turns}
    with _no_collector():
        for number in range(warmup + rounds):
            for name, turn in turns.items():
                for phase, taken in turn().items():
                    if number >= warmup:
                        seconds[name].setdefault(phase, []).append(taken)
            gc.collect()
    return seconds


def ratio(these: Sequence[float], baseline: Sequence[float]) -> float:
    """The median over rounds of the ratio within a round.

    >>> ratio([2.0, 20.0, 2.0], [1.0, 10.0, 4.0])
    2.0
    """
    return statistics.median(a / b for a, b in zip(these, baseline, strict=True))


def columns(
    phase: str, seconds: Sequence[float], baseline: Sequence[float] | None
) -> dict[str, float | None]:
    """One phase of a report's row: milliseconds and the ratio to the baseline."""
    times = Times.of(seconds)
    return {
        f"{phase}_ms": times.median * 1e3,
        f"{phase}_q1_ms": times.q1 * 1e3,
        f"{phase}_q3_ms": times.q3 * 1e3,
        f"{phase}_ratio": None if baseline is None else ratio(seconds, baseline),
    }


@contextmanager
def threads(count: int) -> Iterator[None]:
    """Run torch on that many threads, and on as many as before afterwards."""
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


@contextmanager
def _no_collector() -> Iterator[None]:
    """Python's garbage collector runs between rounds alone, over what is made in here alone."""
    was = gc.isenabled()
    gc.disable()
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()
        if was:
            gc.enable()


def _synchronise(device: str) -> None:
    if device.startswith("cuda"):
        torch.cuda.synchronize(device)
    elif device.startswith("mps"):
        torch.mps.synchronize()
