"""The encoder track on the front page: tasks by encodings, a section per protocol."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby

from leaderboard.catalog import Catalog
from leaderboard.guess import Guess, guess
from leaderboard.rows import Row
from leaderboard.tables import Table, leading


@dataclass(frozen=True)
class Encoders:
    """The protocol's leading tables, their encodings and guesses; of a line None is "not run".

    `seeds` is how many runs a cell is the mean of, from the fewest to the most.
    """

    protocol: str
    labels: tuple[str, ...]
    lines: tuple[tuple[Table, Guess, tuple[Row | None, ...]], ...]
    seeds: tuple[int, int]


def encoders(tables: Sequence[Table], catalog: Catalog) -> Iterator[Encoders]:
    """A section for each protocol that trains encoders; of tables sorted by protocol.

    An encoding stands beside those that wrap it.
    """
    own = (table for table in leading(tables) if table.of_encoders)
    for protocol, some in groupby(own, lambda table: table.base):
        by = [(table, {row.label: row for row in table.rows}) for table in some]
        known = {label for _, rows in by for label in rows}
        labels = tuple(sorted(known, key=lambda label: label.split(":")[::-1]))
        lines = tuple((t, guess(t, catalog), tuple(map(rows.get, labels))) for t, rows in by)
        counts = [len(row.seeds) for _, rows in by for row in rows.values()]
        yield Encoders(protocol, labels, lines, (min(counts), max(counts)))
