"""Costs relative to those of one encoding on the same processor: of training, and of decoding."""

import csv
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.resources import files
from statistics import fmean

from leaderboard.stats.tables import Table

MEASURED = "decoding.csv"  # what `pezoo perf --format csv` printed


@dataclass(frozen=True)
class Decoding:
    """Time of one more token with a cache, over the baseline's: the median over rounds.

    `low` and `high` are the quartiles of its milliseconds; `where` says how it was measured.
    """

    encoding: str
    ratio: float
    low: float
    high: float
    where: str


def decoding_costs() -> Iterator[Decoding]:
    """Yield the measured costs of decoding of encodings with default options."""
    file = files("leaderboard.stats") / MEASURED
    for row in csv.DictReader(file.read_text("utf-8").splitlines() if file.is_file() else ()):
        if row["status"] == "ok" and row["decode_ratio"]:
            numbers = (float(row[f"decode_{name}"]) for name in ("ratio", "q1_ms", "q3_ms"))
            where = (
                f"{row['batch']} sequences of {row['task']} in protocol {row['protocol']}, "
                f"{row['processor']}, {row['threads']} thread"
            )
            yield Decoding(row["encoding"], *numbers, where)


def relative(table: Table, reference: str) -> dict[str, float]:
    """Return CPU seconds of training by label, as a multiple of those of the label `reference`.

    Runs are compared on one kind of processor at a time: the mean over the runs of a row of their
    seconds / mean seconds of the reference on that processor. Rows without such runs are left out.
    """
    known = {record.run: record for record in table.records}
    seconds: dict[str, dict[str | None, list[float]]] = defaultdict(lambda: defaultdict(list))
    for row in table.rows:
        for record in (known[run] for run in row.runs):
            if record.cost.cpu_seconds:
                seconds[row.label][record.env.cpu].append(record.cost.cpu_seconds)
    usual = {cpu: fmean(own) for cpu, own in seconds[reference].items()}
    ratios = {
        label: [one / usual[cpu] for cpu, own in by.items() if cpu in usual for one in own]
        for label, by in seconds.items()
    }
    return {label: fmean(own) for label, own in ratios.items() if own}
