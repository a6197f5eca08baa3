"""Tables in which every encoding has the setting of a grid that suited it best.

Runs form a grid where they share protocol (by name, before "+"), task, model, test lengths and
training lengths, and differ in how they were trained. The choice reads the training lengths alone:
the highest last exact match on validation data, mean over seeds, then the lowest last loss. What
was tested never enters it.
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import replace
from statistics import fmean

from leaderboard.ranks import ranked
from leaderboard.records import Record
from leaderboard.summary import Row

Grid = tuple[str, str, str]


def base(protocol: str) -> str:
    """The protocol that an overridden one started from.

    >>> base("quick+ab12cd")
    'quick'
    """
    return protocol.split("+")[0]


def grid_key(record: Record) -> Grid:
    """Equal for runs that belong to one grid."""
    fixed = {key: value for key, value in record.shared().items() if key != "protocol"}
    train = fixed.get("train")
    if isinstance(train, dict):
        fixed["train"] = {"lengths": train.get("lengths")}
    return base(record.protocol), record.task, json.dumps(fixed, sort_keys=True)


def best_of_grid(rows: Iterable[tuple[Row, Sequence[Record]]], names: dict[str, str]) -> list[Row]:
    """One row per encoding: its best setting among these rows, ranked anew.

    `rows` come with the records that they were made from; `names` says in words what each
    settings hash stands for.
    """
    choices: dict[tuple[str, str, str], list[tuple[Row, Sequence[Record]]]] = defaultdict(list)
    for row, records in rows:
        choices[row.encoding, row.version, row.mode].append((row, records))
    best = []
    named = Counter((encoding, mode) for encoding, _, mode in choices)
    for options in choices.values():
        row, _ = max(options, key=lambda option: (_fitness(option[1]), option[0].settings))
        label = row.encoding + (
            f" (version {row.version})" if named[row.encoding, row.mode] > 1 else ""
        )
        tried = tuple(sorted(names[other.settings] for other, _ in options))
        best.append(
            replace(
                row,
                protocol=base(row.protocol),
                settings="best-of-grid",
                label=f"{label} ({row.mode})" if row.mode else label,
                tried=tried,
                chosen=names[row.settings],
            )
        )
    return ranked(best)


def _fitness(records: Sequence[Record]) -> tuple[float, float]:
    """(validation exact match, minus the loss) of the last step, means over the runs done."""
    ends = [r.learning[-1] for r in records if r.status == "done" and r.learning]
    if not ends:
        return -1.0, float("-inf")
    losses = [end.loss for end in ends if end.loss is not None]
    return fmean(end.exact or 0.0 for end in ends), -fmean(losses) if losses else float("-inf")
