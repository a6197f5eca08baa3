"""`pezoo bench --dry-run`: estimate the cost of a comparison in a few seconds.

    seconds of a run = steps x step + validations x validation + scorings x scoring + sets

All test lengths are scored once after training, and again in each further mode of the encoding; the
further test sets once. A validation also scores the lengths of the learning curve. Each encoding is
measured on the first task and batch size, and the first encoding on each: a few steps, and some
examples of the shortest length and of the longest that is likely to take a few seconds. Costs of
other lengths follow a power of the length; those of other encodings on other tasks follow the ratio
on the first task.
Not counted: saving, scoring another checkpoint that did best on the training lengths, and the share
that parallel runs take of each other's memory bandwidth.
"""

import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from functools import cache, partial
from heapq import heapreplace
from math import ceil, log
from typing import Any, Self

import click
import numpy as np
import torch

from experiment.config import ConfigError, RunConfig
from harness.perf.timing import clock
from harness.runs import cost
from harness.runs.record import failure_reason
from harness.settings.protocol import sample_count
from harness.training.evaluate import chunk_size, score
from harness.training.trainer import Trainer, start
from leaderboard.text import as_csv

Seconds = np.ndarray  # (2,): on the clock, of the processor (all threads)

BUDGET = 0.5  # seconds of training steps, over all kinds of runs
FEWEST, MOST = 2, 30  # steps of one kind of run
SCORING = 4.0  # seconds that the examples of a length may take


@dataclass(frozen=True)
class Measured:
    """The cost of one kind of run, by its parts."""

    step: Seconds
    validation: Seconds
    scoring: Seconds
    sets: Seconds
    modes: int
    memory_mb: float

    def run(self, config: RunConfig) -> Seconds:
        """Return the seconds of such a run, by the formula above."""
        validations = ceil(config.train.steps / config.eval.every)
        scorings = 1 + self.modes + validations * bool(config.eval.top)
        scored = self.validation * validations + self.scoring * scorings + self.sets
        return self.step * config.train.steps + scored

    def times(self, one: Self, base: Self) -> Self:
        """Return this cost for another encoding: `one` and `base` are both on another task."""
        scoring = one.scoring / base.scoring
        return replace(
            self,
            step=self.step * one.step / base.step,
            validation=self.validation * scoring,
            scoring=self.scoring * scoring,
            sets=self.sets * scoring,
            modes=one.modes,
            memory_mb=self.memory_mb * one.memory_mb / base.memory_mb,
        )


Measure = Callable[[RunConfig], Measured]
Place = tuple[str, int, bool]  # task, batch and whether weights are new
Phases = Mapping[str, Sequence[RunConfig]]  # the runs of each, by name


def forecast(phases: Phases, workers: int, measure: Measure) -> dict[str, Any]:
    """Return totals, and a line per phase, encoding and task; phases run one after another.

    A worker that has finished a run takes the next one of its phase. A line counts its runs and
    describes the longest one.
    """
    lines: dict[tuple[str, str, str], dict[str, Any]] = {}
    wall, memory, total = 0.0, 0.0, np.zeros(2)
    for phase, configs in phases.items():
        free = [0.0] * workers  # when each has finished its runs
        every = [measure(config) for config in configs]
        for config, one in zip(configs, every, strict=True):
            took = one.run(config)
            total += took
            heapreplace(free, free[0] + took[0])
            key = phase, config.encoding, config.task
            line = lines.setdefault(key, _line(*key))
            line["runs"] += 1
            line["device_hours"] += took[0] / 3600
            if took[0] >= line["run_seconds"]:
                line |= {"run_seconds": took[0], "run_cpu_seconds": took[1]}
                line |= {"step_ms": 1000 * one.step[0], "memory_mb": one.memory_mb}
        wall += max(free)
        memory = max(memory, sum(sorted(one.memory_mb for one in every)[-workers:]))
    return {
        "runs": sum(line["runs"] for line in lines.values()),
        "device_hours": total[0] / 3600,
        "cpu_hours": total[1] / 3600,
        "wall_seconds": wall,
        "jobs": workers,
        "device": next(configs[0].device for configs in phases.values()),
        "memory_mb": memory,
        "lines": [*lines.values()],
    }


def _line(phase: str, encoding: str, task: str) -> dict[str, Any]:
    """Return a line without runs; its order is that of the columns."""
    line: dict[str, Any] = {"phase": phase, "encoding": encoding, "task": task, "runs": 0}
    names = "step_ms", "run_seconds", "run_cpu_seconds", "device_hours", "memory_mb"
    return line | dict.fromkeys(names, 0.0)


def measuring(phases: Phases, threads: int) -> Measure:
    """Return a function that gives the cost of a run, and measures as few kinds as possible."""
    first = {}  # run of each kind
    for config in (config for configs in phases.values() for config in configs):
        first.setdefault(_kind(config), config)
    base, place = next(iter(first))
    needed = sum(base == kind[0] or place == kind[1] for kind in first)
    torch.set_num_threads(threads)

    @cache
    def measured(encoding: str, where: Place) -> Measured:
        if encoding != base and where != place and {(base, where), (encoding, place)} <= {*first}:
            return measured(base, where).times(measured(encoding, place), measured(base, place))
        config = first[encoding, where]
        click.echo(f"measuring {config.encoding} on {config.task}", err=True)
        try:
            return measure(config, BUDGET / needed)
        except Exception as error:  # as a run fails
            reason = failure_reason(error)
            if isinstance(error, ValueError) or reason.startswith("out of memory"):
                raise
            what = f"{config.encoding} cannot run on {config.task}"
            raise ConfigError(f"{what}: {reason}") from error

    return lambda config: measured(*_kind(config))


def _kind(config: RunConfig) -> tuple[str, Place]:
    return config.encoding, (config.task, config.train.batch, config.start is None)


def measure(config: RunConfig, budget: float) -> Measured:
    """Train one kind of run for `budget` seconds, and score a few examples."""
    cost.forget_peak_memory(config.device)
    trainer = start(config)
    step = _step(trainer, budget)
    task, test = trainer.task, config.eval
    cost_of = _example_costs(trainer)

    def scoring(lengths: Sequence[int], most: int | None = None) -> Seconds:
        there = [n for n in lengths if task.lengths(n, n)]
        counts = [most or sample_count(task, test, n) for n in there]
        costs = [count * cost_of(n) for count, n in zip(counts, there, strict=True)]
        return sum(costs, np.zeros(2))

    return Measured(
        step=step * bool(config.train.steps),
        validation=scoring(task.lengths(*config.train.lengths), test.validation_samples)
        + scoring(test.curve_lengths or ()),
        scoring=scoring(test.lengths),
        sets=sum((scoring(one.lengths) for one in test.sets), np.zeros(2)),
        modes=len(trainer.model.encoding.modes),
        memory_mb=cost.peak_memory_mb(config.device),
    )


def _timed(call: Callable[[], object], device: str) -> Seconds:
    began = time.process_time()
    seconds, _ = clock(call, device)
    return np.array([seconds, time.process_time() - began])


def _step(trainer: Trainer, budget: float) -> Seconds:
    """Return the mean of some steps spread over the training, without the first."""
    trainer.advance()  # compiles kernels
    took, count, began = np.zeros(2), 0, time.monotonic()
    while count < FEWEST or (count < MOST and time.monotonic() - began < budget):
        count += 1
        trainer.step = int(trainer.config.train.steps * (0.618 * count % 1))
        took += _timed(trainer.advance, trainer.config.device)
    return took / count


def _example_costs(trainer: Trainer) -> Callable[[int], Seconds]:
    """Return a function from a length to the seconds that scoring one example takes."""
    task, config = trainer.task, trainer.config
    lengths = sorted(n for n in config.eval.lengths if task.lengths(n, n))
    short, *longer = lengths

    def examples(length: int) -> int:
        part = chunk_size(task, config.eval, length)  # scored side by side
        few = max(4, part // 4) if config.device == "cpu" else part  # a CPU gains little from more
        return min(sample_count(task, config.eval, length), part, few)

    def one(length: int) -> Seconds:
        samples = examples(length)
        some = config.replace_eval(samples=samples, min_samples=samples)
        return _timed(partial(score, trainer.model, task, some, length), config.device) / samples

    one(short)  # compiles kernels
    low = one(short)

    def seconds(length: int) -> float:
        """Expect the square of the length."""
        return float(low[0]) * examples(length) * (length / short) ** 2

    # Twice the shortest at least: a power between neighbours says little.
    least = next((n for n in longer if n >= 2 * short), lengths[-1])
    long = max((n for n in longer if n >= least and seconds(n) <= SCORING), default=least)
    high = one(long)
    own = int(config.device == "cpu")  # the processor's time, as the clock counts other work too
    power = max(0.0, log(high[own] / low[own]) / log(long / short)) if long > short else 0.0
    return lambda length: low * (max(length, short) / short) ** power


def render(found: dict[str, Any], form: str) -> str:
    """Format a forecast as "table", "json", "csv" or "markdown"."""
    if form == "json":
        return json.dumps(found, indent=1)
    lines = found["lines"]
    if form == "csv":
        return as_csv([*lines[0]], (line.values() for line in lines)).removesuffix("\n")
    from tabulate import tabulate

    names = [n for n in lines[0] if n != "phase" or any(line[n] for line in lines)]
    heads = [name.replace("_", "\n" if form == "table" else " ") for name in names]
    rows = [[line[name] for name in names] for line in lines]
    style = "github" if form == "markdown" else "simple"
    digits = [{"step_ms": ".1f", "device_hours": ".2f"}.get(name, ".0f") for name in names]
    table = tabulate(rows, heads, style, floatfmt=digits)
    wall = timedelta(seconds=ceil(found["wall_seconds"]))
    notes = [
        f"{found['runs']} runs, {found['device_hours']:.2f} device-hours, {wall} with "
        f"{found['jobs']} at a time, up to {found['memory_mb']:.0f} MB together",
        f"{found['cpu_hours']:.2f} hours of processor time; the clock counts other work too",
        "a rough estimate, from a few steps and examples of each kind; nothing was trained",
    ]
    if any(line["phase"] == "sweep" for line in lines):
        notes.append("the comparison is counted with the sweep's costliest setting")
    return "\n".join([table, "", *notes])
