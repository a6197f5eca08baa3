"""Tables with what a page needs around them: a title, a file name, warnings, the settings."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

from leaderboard.files import command_text
from leaderboard.records import Record
from leaderboard.summary import Row, summarise, table_key


@dataclass(frozen=True)
class Group:
    """One table: the rows, best first, and the records that they were computed from."""

    slug: str
    title: str
    rows: tuple[Row, ...]
    records: tuple[Record, ...]
    warnings: tuple[str, ...]

    @property
    def first(self) -> Record:
        return self.records[0]

    def settings(self) -> list[tuple[str, str]]:
        """Every setting that the runs share, as ("protocol.train.steps", "1500")."""
        return sorted(_flat("", self.first.shared()))

    def commands(self) -> list[str]:
        """The commands that made the runs, each once."""
        return sorted({command_text(record.provenance.command) for record in self.records})


def grouped(records: Sequence[Record], checkpoint: str = "last") -> list[Group]:
    """All tables, sorted by protocol and task. A title names its settings only where one protocol
    and task come with several settings, which are never put into one table."""
    rows = summarise(records, checkpoint)
    keys = sorted({table_key(record) for record in records})
    groups = []
    for key, own in groupby(rows, key=lambda row: (row.protocol, row.task, row.settings)):
        protocol, task, settings = key
        several = sum(other[:2] == key[:2] for other in keys) > 1
        mine = tuple(record for record in records if table_key(record) == key)
        groups.append(
            Group(
                f"{protocol}.{task}" + (f".{settings}" if several else ""),
                f"{protocol} / {task}" + (f" (settings {settings})" if several else ""),
                tuple(own),
                mine,
                tuple(_warnings(mine)),
            )
        )
    return groups


def _warnings(records: Sequence[Record]) -> Iterator[str]:
    """What weakens a comparison within the table."""
    for seed in sorted({record.seed for record in records}):
        hashes = {r.backbone_hash for r in records if r.seed == seed and r.status == "done"}
        if len(hashes) > 1:
            yield f"seed {seed}: the backbones did not start from the same weights"
    for what in ("device", "torch", "pezoo", "threads", "attention"):
        if len(found := {str(getattr(record.env, what)) for record in records}) > 1:
            yield f"runs differ in {what}: {', '.join(sorted(found))}"
    if unclean := sum(record.env.dirty is not False for record in records):
        yield f"{unclean} of {len(records)} runs come from code that equals no known commit"


def _flat(prefix: str, value: Any) -> Iterator[tuple[str, str]]:
    if isinstance(value, dict):
        for key, item in value.items():
            yield from _flat(f"{prefix}.{key}" if prefix else key, item)
    else:
        yield prefix, str(value)
