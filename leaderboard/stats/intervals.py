"""The intervals that the pages show, all at 95 %.

With two seeds or more: Student's t over the seeds' scores, of shares clipped to [0, 1]; it speaks
about other seeds. The deviation counts as one right answer, or .001 bits, at least, as in the
tests: seeds that happen to agree do not make a mean certain. With one seed: Wilson's interval of
its correct/count, and none of bits; it speaks only about other test examples for the same trained
model. Differences between encodings are in `leaderboard.stats.comparisons`.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from math import fsum, sqrt
from statistics import fmean

LEVEL = 0.95


@dataclass(frozen=True)
class Stat:
    """A mean over n seeds; `method` says what low and high are ("t", "Wilson" or "none")."""

    mean: float
    low: float | None
    high: float | None
    n: int
    method: str


def over_seeds(
    values: Sequence[float],
    counts: tuple[int, int] | None = None,
    step: float = 0.0,
    top: float = 1.0,
) -> Stat:
    """Return the mean and its interval.

    `counts` is (correct, count), used for a single seed; `step` is the value of one more right
    answer; `top` the largest value that a mean may have.
    """
    mean = fmean(values)
    if len(values) >= 2:
        return Stat(mean, *student(values, (0.0, top), step), len(values), "t")
    if counts is not None:
        return Stat(mean, *wilson(*counts), 1, "Wilson")
    return Stat(mean, None, None, 1, "none")


def student(
    values: Sequence[float], ends: tuple[float, float] = (0.0, 1.0), step: float = 0.0
) -> tuple[float, float]:
    """mean -+ t * sd / sqrt(n), clipped to `ends`, where sd is at least `step`."""
    half = quantile(LEVEL, len(values) - 1) * spread(values, step) / sqrt(len(values))
    return max(ends[0], fmean(values) - half), min(ends[1], fmean(values) + half)


def spread(values: Sequence[float], step: float = 0.0) -> float:
    """Return the standard deviation over seeds, at least `step`; rounding counts as 0."""
    mean = fmean(values)  # statistics.stdev counts in fractions: 20 times as slow
    sd = sqrt(fsum((value - mean) ** 2 for value in values) / (len(values) - 1))
    return max(sd if sd > 1e-12 else 0.0, step)


@lru_cache(1 << 14)  # most runs have few of the counts that there are
def wilson(correct: int, count: int) -> tuple[float, float]:
    """Return Wilson's score interval for a share of successes.

    >>> [round(end, 4) for end in wilson(8, 10)]
    [0.4902, 0.9433]
    """
    z = 1.959963984540054  # the normal distribution's 97.5 % point
    share, scale = correct / count, 1 + z * z / count
    middle = (share + z * z / (2 * count)) / scale
    half = z * sqrt(share * (1 - share) / count + z * z / (4 * count * count)) / scale
    low = 0.0 if correct == 0 else max(0.0, middle - half)
    return low, 1.0 if correct == count else min(1.0, middle + half)


def two_sided(t: float, freedom: int) -> float:
    """Pr(|T| >= |t|) with that many degrees of freedom.

    >>> round(two_sided(4.3027, 2), 4)
    0.05
    """
    from scipy.special import stdtr  # imported where a table is made

    return 2 * float(stdtr(freedom, -abs(t)))


@cache
def quantile(level: float, freedom: int) -> float:
    """The t with Pr(|T| < t) = level.

    >>> round(quantile(0.95, 2), 4)
    4.3027
    """
    from scipy.special import stdtrit

    return float(stdtrit(freedom, (1 + level) / 2))
