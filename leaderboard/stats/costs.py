"""Costs relative to those of one encoding on the same processor: of training, and of decoding."""

import csv
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from statistics import fmean

from leaderboard.stats.tables import PROTOCOL, Table

MEASURED = "costs.csv"  # what `pezoo perf --format csv` printed


@dataclass(frozen=True)
class Measured:
    """Times of an encoding over the baseline's: medians over rounds.

    `train` is a step of training; `decode` one more token with a cache, with the quartiles of its
    milliseconds, None for encoders; `where` says how it was measured.
    """

    encoding: str
    protocol: str
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
                train=float(row["step_ratio"]),
                decode=(float(ratio), float(low), float(high)) if ratio else None,
                where=f"{row['batch']} sequences of {row['task']} in protocol {row['protocol']}, "
                f"{row['processor']}, {row['threads']} thread",
            )


def training_costs(table: Table, reference: str) -> dict[str, float]:
    """Return the cost of training by label, as a multiple of that of the label `reference`.

    Measured side by side where `measured` has the encoding in this protocol; else by the CPU
    seconds of runs, see `relative`.
    """
    known = {
        one.encoding: one.train
        for one in measured()
        if table.policy == PROTOCOL and (one.protocol, one.baseline) == (table.base, reference)
    }
    own = {row.label: known[row.encoding] for row in table.rows if row.encoding in known}
    return relative(table, reference) | own


def relative(table: Table, reference: str) -> dict[str, float]:
    """Return CPU seconds of training by label, as a multiple of those of the label `reference`.

    Runs are compared on one kind of processor at a time: the mean over the runs of a row of their
    seconds / mean seconds of the reference on that processor. Runs on a GPU do not count: their CPU
    only waits. Rows without such runs are left out.
    """
    known = {record.run: record for record in table.records}
    seconds: dict[str, dict[str | None, list[float]]] = defaultdict(lambda: defaultdict(list))
    for row in table.rows:
        for record in (known[run] for run in row.runs):
            if record.cost.cpu_seconds and record.config.device == "cpu":
                seconds[row.label][record.env.cpu].append(record.cost.cpu_seconds)
    usual = {cpu: fmean(own) for cpu, own in seconds[reference].items()}
    ratios = {
        label: [one / usual[cpu] for cpu, own in by.items() if cpu in usual for one in own]
        for label, by in seconds.items()
    }
    return {label: fmean(own) for label, own in ratios.items() if own}
