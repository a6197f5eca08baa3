"""Tables with what a page needs around them: a title, a file name, warnings, the settings."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from leaderboard.files import command_text
from leaderboard.records import Record
from leaderboard.summary import Row, summarise, table_key
from leaderboard.tuning import base, values_text

PROTOCOL, TUNED, CHANGED, EARLIER = "protocol", "tuned", "changed", "earlier"
POLICIES = (PROTOCOL, TUNED, CHANGED, EARLIER)  # how the settings were chosen, in the order shown


@dataclass(frozen=True)
class Group:
    """One table: the rows, best first, and the records that they were computed from.

    `policy` says how the settings were chosen: the protocol's own; those of an earlier version of
    the protocol; changed for all encodings alike; or tuned, for each encoding the best cell of one
    grid, chosen on seeds set apart.
    `changes` are (setting, value here, the protocol's value).
    """

    slug: str
    title: str
    rows: tuple[Row, ...]
    records: tuple[Record, ...]
    warnings: tuple[str, ...]
    policy: str = PROTOCOL
    changes: tuple[tuple[str, str, str], ...] = ()

    @property
    def first(self) -> Record:
        return self.records[0]

    @property
    def base(self) -> str:
        """The protocol's name without the mark of changed settings."""
        return base(self.first.protocol)

    @property
    def settings_name(self) -> str:
        """What tells this table from the protocol's own, in words."""
        if self.policy == PROTOCOL:
            return "the protocol's own"
        if tuning := self.first.provenance.tuning:
            return f"tuned: {tuning.grid_words()}"
        changes = ", ".join(f"{key}={value}" for key, value, _ in self.changes)
        return changes or f"settings {self.first.shared_hash}"

    def settings(self) -> list[tuple[str, str]]:
        """Every setting that the runs share, as ("protocol.train.steps", "1500")."""
        return sorted(flat("", self.first.shared()))

    def commands(self) -> list[str]:
        """The commands that made the runs, each once."""
        return sorted({command_text(record.provenance.command) for record in self.records})


def grouped(records: Sequence[Record], checkpoint: str = "last") -> list[Group]:
    """All tables, sorted by protocol and task, the protocol's own settings first. A title
    names its settings only where they are not the protocol's own and the name does not tell.
    Runs that served to choose settings are in none."""
    records = [record for record in records if not record.tuning_run]
    rows: dict[tuple[str, str, str], list[Row]] = defaultdict(list)
    mine: dict[tuple[str, str, str], list[Record]] = defaultdict(list)
    for row in summarise(records, checkpoint):
        rows[row.protocol, row.task, row.settings].append(row)
    for record in records:
        mine[table_key(record)].append(record)
    families: dict[tuple[str, str], list[tuple[str, str, str]]] = defaultdict(list)
    for key in rows:
        families[base(key[0]), key[1]].append(key)
    groups = []
    for family in sorted(families):
        keys = sorted(families[family], key=lambda key: _order(key, mine[key]))
        groups += [_group(key, rows[key], mine[key], keys, mine) for key in keys]
    return groups


def _order(key: tuple[str, str, str], records: Sequence[Record]) -> tuple[object, ...]:
    """The protocol itself before its changes; of several versions of it the newest first."""
    newest = max(record.finished.timestamp() for record in records)
    return "+" in key[0], -newest if "+" not in key[0] else 0.0, key


def _group(
    key: tuple[str, str, str],
    rows: Sequence[Row],
    records: Sequence[Record],
    keys: Sequence[tuple[str, str, str]],
    mine: dict[tuple[str, str, str], list[Record]],
) -> Group:
    protocol, task, settings = key
    changed = "+" in protocol
    policy = CHANGED if changed else PROTOCOL if key == keys[0] else EARLIER
    policy = TUNED if records[0].provenance.tuning else policy
    several = policy != PROTOCOL and sum(other[:2] == key[:2] for other in keys) > 1
    title = f"{base(protocol)} / {task} (tuned)" if policy == TUNED else f"{protocol} / {task}"
    group = Group(
        f"{protocol}.{task}" + (f".{settings}" if several else ""),
        title + (f" (settings {settings})" if several else ""),
        tuple(rows),
        tuple(records),
        tuple(_warnings(records)),
        policy,
    )
    if key == keys[0]:
        return group
    return replace(group, changes=tuple(_changes(records[0], mine[keys[0]][0])))


def _changes(record: Record, own: Record) -> Iterator[tuple[str, str, str]]:
    here, there = (dict(flat("", one.shared())) for one in (record, own))
    tuning = record.provenance.tuning
    chosen = {f"train.{name}" for name in tuning.grid} if tuning else set()
    for key in sorted((here.keys() | there.keys()) - chosen):
        if key != "protocol" and not key.startswith("tuned.") and here.get(key) != there.get(key):
            yield key, here.get(key, "not set"), there.get(key, "not set")


def _warnings(records: Sequence[Record]) -> Iterator[str]:
    """What weakens a comparison within the table."""
    checks = {"backbone_hash": "the backbones did not start from the same weights"}
    if records[0].provenance.tuning is None:  # where steps are tuned, data differ in amount
        checks["data_hash"] = "the runs did not see the same data"
    for what, text in checks.items():
        for seed in sorted({record.seed for record in records}):
            done = [r for r in records if r.seed == seed and r.status == "done"]
            found = {getattr(record, what) for record in done}
            if len(found - {None} if what == "data_hash" else found) > 1:
                yield f"seed {seed}: {text}"
    for what in ("device", "torch", "pezoo", "threads", "attention"):
        if len(found := {str(getattr(record.env, what)) for record in records}) > 1:
            yield f"runs differ in {what}: {', '.join(sorted(found))}"
    yield from _unlike_choices(records)
    if unclean := sum(record.env.dirty is not False for record in records):
        yield f"{unclean} of {len(records)} runs come from code that equals no known commit"


def _unlike_choices(records: Sequence[Record]) -> Iterator[str]:
    found: dict[str, set[str]] = defaultdict(set)
    for record in records:
        if tuning := record.provenance.tuning:
            found[record.plain.spec].add(values_text(tuning.chosen))
    for spec, chosen in found.items():
        if len(chosen) > 1:
            yield f"seeds of {spec} have different settings: {'; '.join(sorted(chosen))}"


def flat(prefix: str, value: Any) -> Iterator[tuple[str, str]]:
    """Nested settings as ("train.steps", "1500")."""
    if isinstance(value, dict):
        for key, item in value.items():
            yield from flat(f"{prefix}.{key}" if prefix else key, item)
    else:
        yield prefix, str(value)
