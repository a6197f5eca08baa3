"""What a matrix of runs will take, from what one step and one scoring of each kind took.

For a run of S steps that validates every E steps and saves every C of them:

    seconds = S step + ceil(S / E) validation + n scoring + ceil(S / C) saving

n scorings of all test lengths: of the last model, and of the same in each further mode of the
encoding. Where another model did best on the training lengths, it is scored too, and n doubles;
that is seldom and not counted. What runs share, as memory bandwidth or a disk, is not in the model:
it is as if each worker were alone.
"""

from __future__ import annotations

import heapq
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import ceil

from harness.config import RunConfig

Kind = tuple[str, str, int]  # encoding, task, batch: what decides how long a step takes


@dataclass(frozen=True)
class Usage:
    """Seconds on the clock, and of the processor (all threads)."""

    seconds: float = 0.0
    cpu: float = 0.0

    def __add__(self, other: Usage) -> Usage:
        return Usage(self.seconds + other.seconds, self.cpu + other.cpu)

    def __mul__(self, times: float) -> Usage:
        return Usage(self.seconds * times, self.cpu * times)


@dataclass(frozen=True)
class Probe:
    """One kind of run as measured: a training step on average over the lengths, the validation
    set, all test lengths, one checkpoint; the most memory at one time, and whether the longest
    test length was part of that."""

    step: Usage
    validation: Usage
    scoring: Usage
    saving: Usage
    modes: int
    memory_mb: float
    whole: bool


@dataclass(frozen=True)
class Line:
    """The runs of one encoding and task in one phase; `run` is the costliest single one."""

    phase: str
    encoding: str
    task: str
    runs: int
    probe: Probe
    run: Usage
    total: Usage


@dataclass(frozen=True)
class Forecast:
    """All lines, and what they come to with `jobs` runs at a time."""

    lines: tuple[Line, ...]
    device: str
    jobs: int
    wall: float
    memory_mb: float

    @property
    def runs(self) -> int:
        return sum(line.runs for line in self.lines)

    @property
    def total(self) -> Usage:
        return sum((line.total for line in self.lines), Usage())

    @property
    def device_hours(self) -> float:
        """Hours that runs hold a worker: a share of the processor, or on CUDA a GPU."""
        return self.total.seconds / 3600


def kind(config: RunConfig) -> Kind:
    """Runs of one kind take equally long for a step."""
    return config.label, config.task, config.train.batch


def run_usage(config: RunConfig, probe: Probe) -> Usage:
    """One run, by the formula above."""
    steps, evaluation = config.train.steps, config.eval
    measured = ceil(steps / evaluation.every)
    scorings = 1 + probe.modes + (measured if evaluation.top else 0)
    return (
        probe.step * steps
        + probe.validation * measured
        + probe.scoring * scorings
        + probe.saving * ceil(steps / config.train.checkpoint_every)
    )


def forecast(
    phases: Mapping[str, Sequence[RunConfig]], probes: Mapping[Kind, Probe], jobs: int
) -> Forecast:
    """Phases run one after another, each with up to `jobs` runs at a time, in the order given."""
    lines: list[Line] = []
    wall, peaks = 0.0, [0.0]
    for phase, configs in phases.items():
        usages = [run_usage(config, probes[kind(config)]) for config in configs]
        wall += makespan([usage.seconds for usage in usages], jobs)
        memory = sorted((probes[kind(config)].memory_mb for config in configs), reverse=True)
        peaks.append(sum(memory[:jobs]))
        lines += _lines(phase, configs, usages, probes)
    device = next(config.device for configs in phases.values() for config in configs)
    return Forecast(tuple(lines), device, jobs, wall, max(peaks))


def makespan(seconds: Sequence[float], jobs: int) -> float:
    """When the last run ends, where the next in line goes to the worker that is free first.

    >>> makespan([3, 3, 2, 2], 2), makespan([1, 1, 4], 2)
    (5.0, 5.0)
    """
    free = [0.0] * max(1, min(jobs, len(seconds)))
    for one in seconds:
        heapq.heappush(free, heapq.heappop(free) + one)
    return max(free)


def _lines(
    phase: str,
    configs: Sequence[RunConfig],
    usages: Sequence[Usage],
    probes: Mapping[Kind, Probe],
) -> list[Line]:
    together: dict[tuple[str, str], list[int]] = {}
    for index, config in enumerate(configs):
        together.setdefault((config.label, config.task), []).append(index)
    lines = []
    for (encoding, task), own in together.items():
        longest = max(own, key=lambda index: usages[index].seconds)
        total = sum((usages[index] for index in own), Usage())
        probe = probes[kind(configs[longest])]
        lines.append(Line(phase, encoding, task, len(own), probe, usages[longest], total))
    return lines
