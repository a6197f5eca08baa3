"""The two intervals that the pages show, and when which one is used.

With two seeds or more: Student's t over the seeds' scores, clipped to [0, 1]. It speaks about
other seeds. With one seed: Wilson's interval of its correct/count. It speaks only about other
test examples for the same trained model, and so says less. Both at 95 %.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import sqrt
from statistics import fmean, stdev

LEVEL = 0.95


@dataclass(frozen=True)
class Stat:
    """A mean over n seeds; `method` says what low and high are ("t", "Wilson" or "none")."""

    mean: float
    low: float | None
    high: float | None
    n: int
    method: str


def over_seeds(values: Sequence[float], counts: tuple[int, int] | None = None) -> Stat:
    """The mean with its interval; `counts` is (correct, count) and used for a single seed."""
    mean = fmean(values)
    if len(values) >= 2:
        return Stat(mean, *student(values), len(values), "t")
    if counts is not None:
        return Stat(mean, *wilson(*counts), 1, "Wilson")
    return Stat(mean, None, None, 1, "none")


def student(values: Sequence[float]) -> tuple[float, float]:
    """mean -+ t * sd / sqrt(n), clipped to [0, 1]. Seeds that all agree give zero width."""
    from scipy.special import stdtrit

    half = float(stdtrit(len(values) - 1, (1 + LEVEL) / 2)) * stdev(values) / sqrt(len(values))
    return max(0.0, fmean(values) - half), min(1.0, fmean(values) + half)


def wilson(correct: int, count: int) -> tuple[float, float]:
    """Wilson's score interval of a share of successes.

    >>> [round(end, 4) for end in wilson(8, 10)]
    [0.4902, 0.9433]
    """
    z = 1.959963984540054  # the normal distribution's 97.5 % point
    share, scale = correct / count, 1 + z * z / count
    middle = (share + z * z / (2 * count)) / scale
    half = z * sqrt(share * (1 - share) / count + z * z / (4 * count * count)) / scale
    low = 0.0 if correct == 0 else max(0.0, middle - half)
    return low, 1.0 if correct == count else min(1.0, middle + half)
