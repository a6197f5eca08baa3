"""Whether what a run took can be: its seconds, memory and parameters."""

from __future__ import annotations

from collections.abc import Iterator

from leaderboard.record.schema import Record

SLACK = 2.0  # for threads that torch did not start
LEAST_SHARE = 1e-5  # of the time by the clock that a processor was busy: runs are suspended
LEAST_MB = 50.0  # a process with torch in it
MOST_MB = 1e7


def refusals(record: Record) -> Iterator[str]:
    """Why a cost cannot be."""
    if record.status == "done":
        yield from _nothing(record)
        yield from _processor(record, "cpu_seconds", "train_seconds")
        yield from _processor(record, "eval_cpu_seconds", "eval_seconds")
        yield from _memory(record)
        yield from _speed(record)
    cost = record.cost
    if (cost.encoding_parameters or 0) > (cost.parameters or 10**12):
        yield f"the encoding has {cost.encoding_parameters} of only {cost.parameters} parameters"


def _nothing(record: Record) -> Iterator[str]:
    names = ("parameters", *("train_seconds",) * (record.config.train.steps > 100))
    for name in names:
        if getattr(record.cost, name) == 0:
            yield f"cost.{name} is 0: a run that is done took something"


def _processor(record: Record, name: str, clock: str) -> Iterator[str]:
    """Seconds of all threads: at most those by the clock on every core; seconds are rounded."""
    spent, passed = getattr(record.cost, name), getattr(record.cost, clock)
    if spent is None or passed is None:
        return
    cores = max(record.env.cores or 1, record.env.threads or 1)
    least, most = passed * LEAST_SHARE if passed > 1 else 0.0, SLACK * passed * cores + 1
    if not least <= spent <= most:
        yield (
            f"cost.{name} is {spent:g}, but {clock} {passed:g} on {cores} core{'s' * (cores > 1)} "
            f"allow {least:.2g} to {most:.4g}"
        )


def _memory(record: Record) -> Iterator[str]:
    """A GPU's counts tensors alone, which hold the parameters at least."""
    cost = record.cost
    least = LEAST_MB if record.config.device == "cpu" else (cost.parameters or 0) * 4 / 2**20
    if cost.peak_memory_mb is not None and not least <= cost.peak_memory_mb <= MOST_MB:
        given = f"cost.peak_memory_mb is {cost.peak_memory_mb:g}"
        yield f"{given}, expected {least:.2g} to {MOST_MB:g}"


def _speed(record: Record) -> Iterator[str]:
    cost, steps = record.cost, record.config.train.steps
    rate, seconds = cost.steps_per_second, cost.train_seconds or 0.0
    rounding = 0.005 * seconds  # the rate has two digits
    if rate is None or seconds <= 1:
        return
    if abs(seconds * rate - steps) > 0.1 * steps + rounding:
        yield f"{rate} steps/s for {seconds} s are not the {steps} steps of the config"
