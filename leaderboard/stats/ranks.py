"""Ranks within one table, and the results of the paired tests."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from itertools import combinations
from typing import TYPE_CHECKING, TypeVar

from leaderboard.stats.comparisons import Comparison, SeedScores, compare
from leaderboard.stats.rows import Line, Row, merit

if TYPE_CHECKING:
    Placed = TypeVar("Placed", Row, Line)

Signs = Mapping[tuple[str, str], int]  # 1 where the first label is better, -1 the second, else 0
BySeed = tuple[tuple[int, float], ...]
BETTER, WORSE, ALIKE, UNKNOWN = "better", "worse", "not distinguishable", "not compared"


def ranked(rows: Sequence[Placed]) -> list[Placed]:
    """Return the rows, best first, with their ranks.

    A rank is 1 plus the number of rows with a better mean. The range of ranks counts only rows that
    a paired t test with Holm's correction distinguishes from this one; None if no pair was tested.
    A row with custom options does not change the ranks of others and gets the rank that it would
    have. Other modes and separate seeds have no rank and follow their encoding's row. Encodings
    that receive more than the sequence have no rank and come last; one that has not learned the
    task has none either.
    """
    found = _signs(comparisons(rows))
    rivals = [row for row in _scored(rows) if not row.set_apart]
    tested = any((a.label, b.label) in found for a, b in combinations(rivals, 2))

    def placed(row: Placed) -> Placed:
        if row.unseen is None or row.aside or row.receives:
            return replace(row, rank=None, ranks=None)
        others = [rival for rival in rivals if rival.label != row.label]
        signs = [found.get((row.label, rival.label)) for rival in others]
        rank = 1 + sum(_mean(rival) > _mean(row) for rival in others)
        if not (any(sign is not None for sign in signs) if row.custom else tested):
            return replace(row, rank=rank)
        first, last = 1 + signs.count(-1), 1 + len(others) - signs.count(1)
        return replace(row, rank=rank, ranks=(min(first, rank), max(last, rank)))

    best = sorted(map(placed, rows), key=_merit)
    first = {row.plain: at for at, row in reversed([*enumerate(best)]) if not row.aside}
    return sorted(best, key=lambda row: (first.get(row.plain, len(best)), bool(row.aside)))


def comparisons(rows: Sequence[Row] | Sequence[Line]) -> list[Comparison]:
    """Compare every pair of rows that have a number, corrected for the number of pairs.

    A row set apart (custom options, hints, oracles, controls) changes no other row's result: its
    pairs are corrected as if it were the only such row in the table.
    """
    scored = _scored(rows)
    own = sorted((r.label, r.by_seed, r.step, r.in_bits, r.set_apart) for r in scored)
    return [*_compared(tuple(own))]


@lru_cache(1000)  # a build asks for every table several times
def _compared(rows: tuple[tuple[str, BySeed, float, bool, bool], ...]) -> tuple[Comparison, ...]:
    scores = {label: SeedScores(dict(own), step, bits) for label, own, step, bits, _ in rows}
    return tuple(compare(scores, [label for label, *_, apart in rows if apart]))


def matrix(rows: Sequence[Row]) -> list[tuple[Row, list[str]]]:
    """Return every compared row with its result against each: BETTER, WORSE, ALIKE or UNKNOWN.

    The result against itself is "". Other modes and separate seeds are left out.
    """
    shown = [row for row in _scored(rows) if not row.aside]
    signs = _signs(comparisons(shown))
    words = {1: BETTER, -1: WORSE, 0: ALIKE, None: UNKNOWN}

    def against(row: Row, other: Row) -> str:
        return "" if row is other else words[signs.get((row.label, other.label))]

    return [(row, [against(row, other) for other in shown]) for row in shown]


def tested(found: Sequence[tuple[Row, list[str]]]) -> bool:
    """Return whether any pair of this matrix was tested."""
    return any(words not in ("", UNKNOWN) for _, against in found for words in against)


def verdicts(rows: Sequence[Row]) -> list[str]:
    """Describe the comparisons: the test, its results, and what was not compared."""
    rows = [row for row in rows if not row.aside]
    found = [one for one in comparisons(rows) if one.p is not None]
    if not found:
        return [f"No comparison: {_obstacle(rows)}"]
    scored = _scored(rows)
    signs = _signs(found)
    test = f"Paired t tests over shared seeds, 5 % level, Holm's correction {_pairs(scored, found)}"
    lines = [f"{test}:", *_lines(scored, signs)]
    if not any(one.sign for one in found):
        lines = [f"{test}: no two are distinguishable"]
    elif not all(one.sign for one in found):
        lines.append(f"All other pairs that share two seeds: {ALIKE}")
    compared = {label for pair in signs for label in pair}
    if alone := [row.label for row in scored if row.label not in compared]:
        lines.append(f"Not compared, with fewer than two shared seeds: {', '.join(alone)}")
    if sum(row.set_apart for row in scored) > 1:
        lines.append("Encodings set apart are not compared with each other")
    return lines


def _pairs(scored: Sequence[Row], found: Sequence[Comparison]) -> str:
    """Describe the pairs that Holm's correction covers."""
    custom = {row.label for row in scored if row.set_apart}
    plain = sum(not {one.first, one.second} & custom for one in found)
    if not plain:
        return "over the pairs of each encoding set apart"
    words = f"over {plain} pair{'s' * (plain > 1)}"
    if plain < len(found):
        words += "; an encoding set apart adds its own pairs to its own tests alone"
    return words


def _lines(scored: Sequence[Row], signs: Signs) -> Iterator[str]:
    """Yield a line for every row that is better than another."""
    for row in scored:
        worse = [other.label for other in scored if signs.get((row.label, other.label)) == 1]
        if worse:
            yield f"{row.label}: better than {', '.join(worse)}"


def _obstacle(rows: Sequence[Row]) -> str:
    """Return why no two of the rows were compared."""
    scored = _scored(rows)
    if len(rows) == 1:
        return "there is only one encoding"
    if len(scored) < 2:
        name = f"only {scored[0].label}" if scored else "no encoding"
        return f"{name} has a score at unseen lengths"
    if any(len(dict(a.by_seed).keys() & dict(b.by_seed)) > 1 for a, b in combinations(scored, 2)):
        return "those that share two seeds are all set apart"
    return "no two encodings share two seeds"


def _signs(found: Sequence[Comparison]) -> Signs:
    """Return the sign of every tested pair, in both orders."""
    there = {(one.first, one.second): one.sign for one in found if one.p is not None}
    return there | {(second, first): -sign for (first, second), sign in there.items()}


def _scored(rows: Sequence[Placed]) -> list[Placed]:
    return [row for row in rows if row.unseen is not None]


def _merit(row: Row | Line) -> tuple[bool, float, float, str]:
    return bool(row.receives), -_mean(row), -row.tiebreak, row.label


def _mean(row: Row | Line) -> float:
    """Return the merit, rounded so that equal scores share a rank."""
    return round(merit(row), 9)
