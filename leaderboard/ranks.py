"""Places within one table, and how sure they are."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import combinations
from typing import TYPE_CHECKING

from leaderboard.comparisons import SAME, Comparison, Scores, compare

if TYPE_CHECKING:
    from leaderboard.summary import Row


_WORDS = {
    1: "better than",
    0: f"{SAME} from",
    -1: "worse than",
    None: "for want of shared seeds not compared with",
}


def ranked(rows: Sequence[Row]) -> list[Row]:
    """The rows, best first, with their places.

    A place counts the rows with a higher mean. The range of places counts only those that a paired
    t test with Holm's correction over all pairs tells from it.
    """
    found = _signs(comparisons(rows))

    def placed(row: Row) -> Row:
        if row.unseen is None:
            return row
        rivals = [r for r in rows if r.unseen is not None and r is not row and not r.typed]
        mean = round(row.unseen.mean, 9)
        rank = 1 + sum(round(r.unseen.mean, 9) > mean for r in rivals if r.unseen)
        signs = [found.get((row.label, rival.label), 0) for rival in rivals]
        worst = 1 + len(rivals) - signs.count(1)
        return replace(row, rank=rank, ranks=(1 + signs.count(-1), worst))

    return sorted(map(placed, rows), key=_order)


def comparisons(rows: Sequence[Row]) -> list[Comparison]:
    """Every pair of rows that have a number, corrected for the number of pairs.

    A row with options typed by hand changes no other row's result: its own pairs are corrected as
    if it were the only such row in the table.
    """
    known = [row for row in rows if row.unseen is not None]
    plain = {row.label: _scores(row) for row in known if not row.typed}
    found = compare(plain)
    for row in known:
        if row.typed:
            with_it = compare({row.label: _scores(row), **plain})
            found += [one for one in with_it if one.first == row.label]
    return found


def verdicts(rows: Sequence[Row]) -> list[str]:
    """Who is told from whom, in words: the test, a line for each row but the last, what is left."""
    found = [one for one in comparisons(rows) if one.p is not None]
    if not found:
        return [f"{_obstacle(rows)}: nothing is said about differences."]
    known = [row for row in rows if row.unseen is not None]
    head = f"Paired t test over shared seeds, level 5 %, Holm's correction {_pairs(known, found)}:"
    if any(one.sign for one in found):
        lines = [head, *_each(known, found)]
    else:
        lines = [f"{head} no two are distinguishable."]
        tested = {label for one in found for label in (one.first, one.second)}
        if alone := [row.label for row in known if row.label not in tested]:
            lines.append(f"Compared with none, for want of shared seeds: {', '.join(alone)}")
    if sum(row.typed for row in known) > 1:
        lines.append("Two that both have options typed by hand are not compared with each other")
    return lines


def _pairs(known: Sequence[Row], found: Sequence[Comparison]) -> str:
    """Over which pairs `comparisons` corrects."""
    typed = {row.label for row in known if row.typed}
    plain = sum(not {one.first, one.second} & typed for one in found)
    if not plain:
        return "over the pairs of each encoding with options typed by hand"
    words = f"over {plain} pair{'s' * (plain > 1)}"
    if plain == len(found):
        return words
    these = "these" if plain > 1 else "this one"
    return f"{words}, for an encoding with options typed by hand over {these} and its own"


def _each(known: Sequence[Row], found: Sequence[Comparison]) -> list[str]:
    """Every row but the last against those below it."""
    lines, signs = [], _signs(found)
    for at, row in enumerate(known[:-1]):
        by: dict[int | None, list[str]] = {1: [], 0: [], -1: [], None: []}
        for other in known[at + 1 :]:
            if not (row.typed and other.typed):
                by[signs.get((row.label, other.label))].append(other.label)
        parts = [f"{_WORDS[sign]} {', '.join(others)}" for sign, others in by.items() if others]
        if parts:
            lines.append(f"{row.label}: {'; '.join(parts)}")
    return lines


def _obstacle(rows: Sequence[Row]) -> str:
    """Why no two of the rows were tested against each other."""
    known = [row for row in rows if row.unseen is not None]
    if len(rows) == 1:
        return "There is one encoding alone"
    if len(known) < 2:
        return (
            f"{f'Only {known[0].label}' if known else 'No encoding'} has a score at unseen lengths"
        )
    pairs = combinations(known, 2)
    if any(len(dict(a.by_seed).keys() & dict(b.by_seed).keys()) > 1 for a, b in pairs):
        return "Any two that share two seeds both have options typed by hand"
    return "No two encodings share two seeds"


def _scores(row: Row) -> Scores:
    return Scores(dict(row.by_seed), row.step)


def _signs(found: Sequence[Comparison]) -> dict[tuple[str, str], int]:
    """1, -1 or 0 for (first, second), both ways round."""
    there = {(one.first, one.second): one.sign for one in found}
    return there | {(second, first): -sign for (first, second), sign in there.items()}


def _order(row: Row) -> tuple[object, ...]:
    mean = round(row.unseen.mean, 9) if row.unseen else -1.0
    return -mean, -(row.reach or 0), row.label
