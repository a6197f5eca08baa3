"""Tests of differences between encodings, over the seeds that they share.

Runs of one seed share data, test examples and initial backbone, so seeds are compared in pairs.
Every pair of encodings is a test of its own; Holm's correction keeps the chance of even one false
difference below 5 % among the encodings compared together, as far as differences are normal, which
three seeds cannot show. The intervals of single encodings are in `leaderboard.stats.intervals`.

>>> a = SeedScores({0: 0.90, 1: 0.92, 2: 0.91})
>>> b = SeedScores({0: 0.50, 1: 0.53, 2: 0.49})
>>> (one,) = compare({"a": a, "b": b})
>>> one.sign, round(one.p, 4)  # a is better
(1, 0.0005)
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from math import inf, sqrt
from statistics import fmean

from leaderboard.stats.intervals import LEVEL, Stat, spread, student, two_sided


@dataclass(frozen=True)
class SeedScores:
    """One encoding's score by seed; `step` is the score of one more right answer.

    `bits`: of the scores less is better, and they may be above 1.
    """

    by_seed: Mapping[int, float]
    step: float = 0.0
    bits: bool = False


_Test = tuple[str, str, tuple[Stat, float] | None]  # two labels, and what `paired` gives


@dataclass(frozen=True)
class Comparison:
    """first - second over `difference.n` shared seeds.

    `difference` has the pair's own 95 % interval; `p` is the paired t test's and `adjusted` is
    Holm's over all pairs compared together. All three are None with fewer than two shared seeds.
    """

    first: str
    second: str
    difference: Stat | None = None
    p: float | None = None
    adjusted: float | None = None
    bits: bool = False

    @property
    def sign(self) -> int:
        """1 where the first is better, -1 where the second is, 0: not distinguishable."""
        if self.difference is None or self.adjusted is None or self.adjusted >= 1 - LEVEL:
            return 0
        return 1 if (self.difference.mean > 0) != self.bits else -1


def compare(scores: Mapping[str, SeedScores], apart: Sequence[str] = ()) -> list[Comparison]:
    """Compare every pair of encodings, in the given order.

    Those `apart` follow. Each is compared with the others as if no more of them were there.
    """
    plain = [label for label in scores if label not in {*apart}]

    def tests(pairs: Iterable[tuple[str, str]]) -> list[_Test]:
        return [(a, b, paired(scores[a], scores[b])) for a, b in pairs]

    every = tests(combinations(plain, 2))
    bits = any(one.bits for one in scores.values())
    found = _adjusted(every, bits)
    for label in apart:
        own = tests((label, other) for other in plain)
        found += _adjusted(own + every, bits)[: len(own)]
    return found


def _adjusted(tests: Sequence[_Test], bits: bool) -> list[Comparison]:
    adjusted = iter(holm([found[1] for _, _, found in tests if found]))
    return [
        Comparison(a, b, *found, next(adjusted), bits) if found else Comparison(a, b)
        for a, b, found in tests
    ]


def paired(first: SeedScores, second: SeedScores) -> tuple[Stat, float] | None:
    """first - second over the seeds that both have: its own 95 % interval, and the p value.

    Two-sided p of the paired t test, t = mean(d) sqrt(n) / sd(d) with n - 1 degrees of freedom; 1
    for equal scores. sd(d) is taken to be at least one step: seeds that happen to differ by equal
    amounts do not make a difference certain. None for fewer than two shared seeds.
    """
    shared = sorted(first.by_seed.keys() & second.by_seed.keys())
    if len(shared) < 2:
        return None
    differences = [first.by_seed[seed] - second.by_seed[seed] for seed in shared]
    step, n = max(first.step, second.step), len(shared)
    mean, sd = fmean(differences), spread(differences, step)
    most = inf if first.bits else 1.0
    stat = Stat(mean, *student(differences, (-most, most), step), n, "paired t")
    if abs(mean) < 1e-12:
        return stat, 1.0
    return stat, two_sided(mean * sqrt(n) / sd, n - 1) if sd else 0.0


def holm(values: Sequence[float]) -> list[float]:
    """Adjusted p values, in the order given: the k-th smallest of m is multiplied by m - k + 1.

    No adjusted value is below one of a smaller p, or above 1.

    >>> holm([0.01, 0.04, 0.03])
    [0.03, 0.06, 0.06]

    Paper: Holm 1979, "A simple sequentially rejective multiple test procedure".
    """
    adjusted, highest = [0.0] * len(values), 0.0
    for rank, index in enumerate(sorted(range(len(values)), key=values.__getitem__)):
        highest = max(highest, min(1.0, (len(values) - rank) * values[index]))
        adjusted[index] = highest
    return adjusted
