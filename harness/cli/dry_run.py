"""`pezoo bench --dry-run`: what a comparison will take, from a few steps of each kind of run.

    seconds of a run = steps x step + validations x validation + scorings x scoring + sets

All test lengths are scored once after training, and again in each further mode of the encoding; the
further test sets once. A validation scores the lengths of the learning curve, too.
Each encoding, task and batch size is measured once, in a process like a worker's.
Not counted: what torch.compile adds to the first steps, saving, scoring another model that did best
on the training lengths, and what runs share (memory bandwidth, a GPU, a disk).
"""

from __future__ import annotations

import json
import signal
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from heapq import heapreplace
from math import ceil
from typing import Any

import click
import numpy as np
import torch

from experiment.config import RunConfig
from harness.engine.local import fork_server
from harness.perf.report import as_csv
from harness.perf.timing import clock
from harness.runs import cost, heap
from harness.runs.record import failure_reason
from harness.settings.counts import sample_count
from harness.training.evaluate import chunk_size, score, validate
from harness.training.trainer import Trainer, start

Seconds = np.ndarray  # (2,): on the clock, of the processor (all threads)

_PLACES, _IN_A_ROW = 8, 4  # steps are measured in so many places of the training
_PATIENCE = 20.0  # seconds of steps, or of scoring: longer test lengths are then extrapolated


@dataclass(frozen=True)
class Measured:
    """One kind of run."""

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


Took = tuple[Measured, Seconds]
Measure = Callable[[RunConfig], Measured]
Phases = Mapping[str, Sequence[RunConfig]]  # the runs of each, by name


def forecast(phases: Phases, workers: int, measure: Measure) -> dict[str, Any]:
    """Totals, and a line per phase, encoding and task; phases run one after another.

    A worker that has finished a run takes the next one of its phase.
    """
    lines: list[dict[str, Any]] = []
    wall, memory, total = 0.0, 0.0, np.zeros(2)
    for phase, configs in phases.items():
        found: dict[tuple[str, str], list[Took]] = {}
        free = [0.0] * workers  # when each has finished its runs
        for config in configs:
            one = measure(config)
            took = one.run(config)
            found.setdefault((config.label, config.task), []).append((one, took))
            heapreplace(free, free[0] + took[0])
        lines += [_line(phase, *name, runs) for name, runs in found.items()]
        every = [run for runs in found.values() for run in runs]
        total += sum(took for _, took in every)
        wall += max(free)
        memory = max(memory, sum(sorted(one.memory_mb for one, _ in every)[-workers:]))
    hours = total / 3600
    return {
        "runs": sum(line["runs"] for line in lines),
        "device_hours": hours[0],
        "cpu_hours": hours[1],
        "wall_seconds": wall,
        "jobs": workers,
        "device": next(configs[0].device for configs in phases.values()),
        "memory_mb": memory,
        "lines": lines,
    }


def _line(phase: str, encoding: str, task: str, runs: Sequence[Took]) -> dict[str, Any]:
    """Describe the longest run, and count all."""
    one, took = max(runs, key=lambda run: run[1][0])
    return {
        "phase": phase,
        "encoding": encoding,
        "task": task,
        "runs": len(runs),
        "step_ms": 1000 * one.step[0],
        "run_seconds": took[0],
        "run_cpu_seconds": took[1],
        "device_hours": sum(took[0] for _, took in runs) / 3600,
        "memory_mb": one.memory_mb,
    }


@contextmanager
def measuring(threads: int) -> Iterator[Measure]:
    """Yield a function that measures a run, each kind of run once."""
    known: dict[object, Measured] = {}
    with ProcessPoolExecutor(
        1, fork_server(), signal.signal, (signal.SIGINT, signal.SIG_IGN), max_tasks_per_child=1
    ) as process:

        def measure(one: RunConfig) -> Measured:
            kind = one.label, one.task, one.train.batch
            if kind not in known:
                click.echo(f"measuring {one.label} on {one.task}", err=True)
                try:
                    known[kind] = process.submit(_measure, one, threads).result()
                except RuntimeError as error:  # of torch, as where memory is short
                    raise click.UsageError(
                        f"{one.label} on {one.task} cannot be measured: {failure_reason(error)}"
                    ) from error
            return known[kind]

        yield measure


def _measure(one: RunConfig, threads: int) -> Measured:
    torch.set_num_threads(threads)
    cost.forget_peak_memory(one.device)
    heap.keep()
    trainer = start(one)
    step = _step(trainer)
    model, task = trainer.model, trainer.task
    validation = _timed(lambda: validate(model, task, one), one.device)
    scoring = _scoring(trainer, one)
    curve = {n: seconds for n, seconds in scoring.items() if n in (one.eval.curve_lengths or ())}
    sets = [one.replace_eval(set=s.name, lengths=s.lengths) for s in one.eval.sets]
    return Measured(
        step=step,
        validation=validation + _sum(curve),
        scoring=_sum(scoring),
        sets=sum((_sum(_scoring(trainer, own)) for own in sets), np.zeros(2)),
        modes=len(model.encoding.modes),
        memory_mb=cost.peak_memory_mb(one.device),
    )


def _timed(call: Callable[[], object], device: str) -> Seconds:
    began = time.process_time()
    seconds, _ = clock(call, device)
    return np.array([seconds, time.process_time() - began])


def _step(trainer: Trainer) -> Seconds:
    """The mean step of a second round, once the first has compiled what there is to compile.

    Steps are spread over the training, so that their lengths are drawn as it draws them; where
    patience ends, those of its end alone.
    """
    steps = trainer.config.train.steps
    row = min(_IN_A_ROW, steps)

    def take() -> int:
        began = time.monotonic()
        for done, place in enumerate(reversed(range(_PLACES))):
            if done and time.monotonic() - began > _PATIENCE:
                return done * row
            trainer.step = (steps - row) * place // (_PLACES - 1)
            for _ in range(row):
                trainer.advance()
        return _PLACES * row

    take()
    taken: list[int] = []
    took = _timed(lambda: taken.append(take()), trainer.config.device)
    return took / taken[0]


def _scoring(trainer: Trainer, config: RunConfig) -> dict[int, Seconds]:
    """Every test length once, by a chunk of each; when patience ends, growing as length²."""
    task = trainer.task

    def chunk(length: int, samples: int) -> Seconds:
        one = config.replace_eval(samples=samples, min_samples=samples)
        return _timed(lambda: score(trainer.model, task, one, length), config.device)

    found: dict[int, Seconds] = {}
    took, last = np.zeros(2), 0
    for length in sorted(n for n in config.eval.lengths if task.lengths(n, n)):
        samples = sample_count(task, config.eval, length)
        part = min(samples, chunk_size(task, config.eval, length))
        if not last:
            chunk(length, part)  # compiles kernels
        if _sum(found)[0] < _PATIENCE:
            took, last = chunk(length, part) / part, length  # of one instance
        found[length] = took * (length / last) ** 2 * samples
    return found


def _sum(found: Mapping[int, Seconds]) -> Seconds:
    return sum(found.values(), np.zeros(2))


def render(found: dict[str, Any], form: str) -> str:
    """A forecast as "table", "json", "csv" or "markdown"."""
    if form == "json":
        return json.dumps(found, indent=1)
    lines = found["lines"]
    if form == "csv":
        return as_csv(lines)
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
        "nothing was trained: measured here, on a few steps and scored chunks of each kind",
    ]
    if any(line["phase"] for line in lines):
        notes.append("the comparison is counted with the sweep's costliest cell")
    return "\n".join([table, "", *notes])
