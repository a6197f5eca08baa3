"""Places within one table, and what the paired tests say about them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import combinations

from leaderboard.comparisons import SAME, Comparison, Scores, compare
from leaderboard.rows import Row

Signs = Mapping[tuple[str, str], int]  # 1 where the first label is better, -1 the second, else 0


def ranked(rows: Sequence[Row]) -> list[Row]:
    """The rows, best first, with their places.

    A place counts the rows with a higher mean. The range of places counts only those that a paired
    t test with Holm's correction distinguishes from it. A row with custom options counts for no
    other row's place; its own is the place that it would have.
    """
    found = _signs(comparisons(rows))

    def placed(row: Row) -> Row:
        if row.unseen is None:
            return row
        rivals = [rival for rival in _scored(rows) if rival is not row and not rival.custom]
        signs = [found.get((row.label, rival.label), 0) for rival in rivals]
        rank = 1 + sum(_mean(rival) > _mean(row) for rival in rivals)
        worst = 1 + len(rivals) - signs.count(1)
        return replace(row, rank=rank, ranks=(1 + signs.count(-1), worst))

    return sorted(map(placed, rows), key=lambda row: (-_mean(row), -(row.reach or 0), row.label))


def comparisons(rows: Sequence[Row]) -> list[Comparison]:
    """Every pair of rows that have a number, corrected for the number of pairs.

    A row with custom options changes no other row's result: its pairs are corrected as if it were
    the only such row in the table.
    """
    scored = _scored(rows)
    scores = {row.label: Scores(dict(row.by_seed), row.step) for row in scored}
    plain = {row.label: scores[row.label] for row in scored if not row.custom}
    found = compare(plain)
    for label in (row.label for row in scored if row.custom):
        found += [one for one in compare({label: scores[label], **plain}) if one.first == label]
    return found


def verdicts(rows: Sequence[Row]) -> list[str]:
    """The comparisons in words: which test, then a line for each row but the last."""
    found = [one for one in comparisons(rows) if one.p is not None]
    if not found:
        return [f"No comparison: {_obstacle(rows)}"]
    scored, signs = _scored(rows), _signs(found)
    test = f"Paired t tests over shared seeds, 5 % level, Holm's correction {_pairs(scored, found)}"
    if any(signs.values()):
        lines = [f"{test}:", *_lines(scored, signs)]
    else:
        lines = [f"{test}: no two are distinguishable"]
        tested = {label for pair in signs for label in pair}
        if alone := [row.label for row in scored if row.label not in tested]:
            lines.append(f"Not compared, for too few shared seeds: {', '.join(alone)}")
    if sum(row.custom for row in scored) > 1:
        lines.append("Encodings with custom options are not compared with each other")
    return lines


def _pairs(scored: Sequence[Row], found: Sequence[Comparison]) -> str:
    """The pairs that Holm's correction is over."""
    custom = {row.label for row in scored if row.custom}
    plain = sum(not {one.first, one.second} & custom for one in found)
    if not plain:
        return "over the pairs of each encoding with custom options"
    words = f"over {plain} pair{'s' * (plain > 1)}"
    if plain < len(found):
        those = "those" if plain > 1 else "that one"
        words += f" (for an encoding with custom options: {those} and its own)"
    return words


def _lines(scored: Sequence[Row], signs: Signs) -> Iterator[str]:
    """Every row but the last against those below it."""
    words = {
        1: "better than {}",
        0: f"{SAME} from {{}}",
        -1: "worse than {}",
        None: "not compared with {} (too few shared seeds)",
    }
    for at, row in enumerate(scored[:-1]):
        by: dict[int | None, list[str]] = {sign: [] for sign in words}
        for other in scored[at + 1 :]:
            if not (row.custom and other.custom):
                by[signs.get((row.label, other.label))].append(other.label)
        if parts := [words[sign].format(", ".join(to)) for sign, to in by.items() if to]:
            yield f"{row.label}: {'; '.join(parts)}"


def _obstacle(rows: Sequence[Row]) -> str:
    """Why no two of the rows were compared."""
    scored = _scored(rows)
    if len(rows) == 1:
        return "there is only one encoding"
    if len(scored) < 2:
        name = f"only {scored[0].label}" if scored else "no encoding"
        return f"{name} has a score at unseen lengths"
    if any(len(dict(a.by_seed).keys() & dict(b.by_seed)) > 1 for a, b in combinations(scored, 2)):
        return "those that share two seeds all have custom options"
    return "no two encodings share two seeds"


def _signs(found: Sequence[Comparison]) -> Signs:
    """Both ways round."""
    there = {(one.first, one.second): one.sign for one in found}
    return there | {(second, first): -sign for (first, second), sign in there.items()}


def _scored(rows: Sequence[Row]) -> list[Row]:
    return [row for row in rows if row.unseen is not None]


def _mean(row: Row) -> float:
    """Rounded, so that equal scores share a place."""
    return round(row.unseen.mean, 9) if row.unseen else -1.0
