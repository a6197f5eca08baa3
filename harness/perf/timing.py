"""Comparable times: candidates take turns, and a ratio compares times of one round.

When the machine slows down for a second, it slows all candidates of that round, and the ratio
cancels the slowdown.
"""

import gc
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

import numpy as np
import torch

T = TypeVar("T")
Turn = Callable[[], dict[str, float]]  # seconds per phase


def clock(call: Callable[[], T], device: str) -> tuple[float, T]:
    """Return the seconds of a call until the device has finished, and its result."""
    _synchronise(device)
    began = time.perf_counter()
    result = call()
    _synchronise(device)
    return time.perf_counter() - began, result


def interleave(
    turns: Mapping[str, Turn], rounds: int, warmup: int
) -> dict[str, dict[str, list[float]]]:
    """Return seconds by name and phase, one entry per round."""
    seconds: dict[str, dict[str, list[float]]] = {name: {} for name in turns}
    collects = gc.isenabled()
    gc.disable()  # it runs between rounds alone
    gc.freeze()
    try:
        for number in range(warmup + rounds):
            for name, turn in turns.items():
                for phase, taken in turn().items():
                    if number >= warmup:
                        seconds[name].setdefault(phase, []).append(taken)
            gc.collect()
    finally:
        gc.unfreeze()
        if collects:
            gc.enable()
    return seconds


def ratio(these: Sequence[float], baseline: Sequence[float]) -> float:
    """Return the median over rounds of the ratio within a round.

    >>> ratio([2.0, 20.0, 2.0], [1.0, 10.0, 4.0])
    2.0
    """
    return statistics.median(a / b for a, b in zip(these, baseline, strict=True))


def columns(
    phase: str, seconds: Sequence[float], baseline: Sequence[float] | None
) -> dict[str, float | None]:
    """Return the columns of one phase: milliseconds and the ratio to the baseline."""
    median, q1, q3 = (1e3 * np.percentile(seconds, [50, 25, 75])).tolist()
    return {
        f"{phase}_ms": median,
        f"{phase}_q1_ms": q1,
        f"{phase}_q3_ms": q3,
        f"{phase}_ratio": None if baseline is None else ratio(seconds, baseline),
    }


def _synchronise(device: str) -> None:
    if device.startswith("cuda"):
        torch.cuda.synchronize(device)
    elif device.startswith("mps"):
        torch.mps.synchronize()
