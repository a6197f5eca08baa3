"""Cost of training, relative to one encoding on the same processor."""

from collections import defaultdict
from statistics import fmean

from leaderboard.stats.tables import Table


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
