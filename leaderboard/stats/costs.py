"""Costs relative to those of one encoding on the same processor: of training, and of decoding."""

import csv
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

from leaderboard.stats.tables import Table

MEASURED = "costs.csv"  # what `pezoo perf --format csv` printed


@dataclass(frozen=True)
class Measured:
    """Times of an encoding over the baseline's: medians over rounds.

    `train` is a step of training at a `length`; `decode` one more token with a cache, with the
    quartiles of its milliseconds, None for encoders; `where` says how it was measured.
    """

    encoding: str
    protocol: str
    length: int
    baseline: str
    train: float
    decode: tuple[float, float, float] | None
    where: str


@cache
def measured() -> tuple[Measured, ...]:
    """Return the measured costs."""
    file = files("leaderboard.stats") / MEASURED
    return tuple(_measured(file.read_text("utf-8").splitlines()))


def by_encoding() -> dict[str, Measured]:
    """Return the costs in the first protocol that was measured, for pages of encodings."""
    first = next((one.protocol for one in measured()), "")
    return {one.encoding: one for one in measured() if one.protocol == first}


def _measured(lines: list[str]) -> Iterator[Measured]:
    for row in csv.DictReader(lines):
        if row["status"] == "ok":
            low, high = row["decode_q1_ms"], row["decode_q3_ms"]
            ratio = row["decode_ratio"]
            yield Measured(
                **{name: row[name] for name in ("encoding", "protocol", "baseline")},
                length=int(row["length"]),
                train=float(row["step_ratio"]),
                decode=(float(ratio), float(low), float(high)) if ratio else None,
                where=f"{row['batch']} sequences of {row['task']} in protocol {row['protocol']}, "
                f"{row['processor']}, {row['threads']} thread",
            )


def training_costs(table: Table, reference: str) -> dict[str, float]:
    """Return the cost of training by label, as a multiple of that of the label `reference`.

    Measured in the table's protocol, else in the first that was measured; never the CPU seconds of
    runs, which other programs beside them change.
    """
    own = [one for one in measured() if one.baseline == reference]
    there = {one.encoding: one.train for one in own if one.protocol == table.base}
    known = {label: one.train for label, one in by_encoding().items() if one in own} | there
    return {row.label: known[row.encoding] for row in table.rows if row.encoding in known}
