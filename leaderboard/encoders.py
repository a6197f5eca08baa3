"""The encoder track on the front page: tasks by encodings, a section per protocol."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby

from leaderboard.rows import Row
from leaderboard.tables import Table, leading


@dataclass(frozen=True)
class Encoders:
    """The protocol's leading tables and their encodings; of a line None is "not run"."""

    protocol: str
    labels: tuple[str, ...]
    lines: tuple[tuple[Table, tuple[Row | None, ...]], ...]


def encoders(tables: Sequence[Table]) -> Iterator[Encoders]:
    """A section for each protocol that trains encoders; of tables sorted by protocol."""
    own = (table for table in leading(tables) if table.of_encoders)
    for protocol, some in groupby(own, lambda table: table.base):
        by = [(table, {row.label: row for row in table.rows}) for table in some]
        labels = tuple(sorted({label for _, rows in by for label in rows}))
        lines = tuple((table, tuple(map(rows.get, labels))) for table, rows in by)
        yield Encoders(protocol, labels, lines)
