"""What a matrix of runs will take, from what one step and one scoring of each kind took.

For a run of S steps that validates every E steps and saves every C of them:

    seconds = S step + ceil(S / E) validation + n scoring + ceil(S / C) saving

n scorings of all test lengths: of the last model, and of the same in each further mode of the
encoding. Where another model did best on the training lengths, it is scored too, and n doubles;
that is seldom and not counted. Of runs that train as one stack, a step is one of all, and the
rest is done for one after the other. torch.compile is counted once for each worker, whose later
runs find what it has compiled. What runs share, as memory bandwidth or a disk, is not in the model:
it is as if each worker were alone.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import ceil

from harness.engine.stack_plan import Job
from harness.settings.protocol import RunConfig

# Encoding, task, batch, runs in a stack: what decides how long a step takes.
Kind = tuple[str, str, int, int]


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
class Compilation:
    """What torch.compile takes in one process: the first size, each further one; the sizes."""

    first: Usage = Usage()
    further: Usage = Usage()
    sizes: frozenset[int] = frozenset()

    @property
    def usage(self) -> Usage:
        return self.first + self.further * (len(self.sizes) - 1) if self.sizes else Usage()


@dataclass(frozen=True)
class Phase:
    """Runs, and the jobs in which workers train them: alone, or several as one stack."""

    configs: Sequence[RunConfig]
    plan: Sequence[Job]

    @property
    def jobs(self) -> list[list[RunConfig]]:
        return [[self.configs[run] for run in job] for job in self.plan]


@dataclass(frozen=True)
class Probe:
    """One kind of job as measured: a training step of all its runs on average over the lengths;
    of one of them the validation set, all test lengths, one checkpoint; the most memory at one
    time, and whether the longest test length was part of that; torch.compile."""

    step: Usage
    validation: Usage
    scoring: Usage
    saving: Usage
    modes: int
    memory_mb: float
    whole: bool
    compilation: Compilation = Compilation()


@dataclass(frozen=True)
class Line:
    """The runs of one encoding and task in one phase; `run` is the costliest single one.

    In a stack that is its share. `stacked` runs are in its stack, and `probe` is theirs.
    """

    phase: str
    encoding: str
    task: str
    runs: int
    stacked: int
    probe: Probe
    run: Usage
    total: Usage


@dataclass(frozen=True)
class Forecast:
    """All lines, and what they come to with `jobs` workers, each of which compiles for itself."""

    lines: tuple[Line, ...]
    device: str
    jobs: int
    wall: float
    memory_mb: float
    compilation: Compilation

    @property
    def runs(self) -> int:
        return sum(line.runs for line in self.lines)

    @property
    def total(self) -> Usage:
        return sum((line.total for line in self.lines), self.compilation.usage * self.jobs)

    @property
    def device_hours(self) -> float:
        """Hours that runs hold a worker: a share of the processor, or on CUDA a GPU."""
        return self.total.seconds / 3600


def kind(runs: Sequence[RunConfig]) -> Kind:
    """Jobs of one kind take equally long for a step."""
    return runs[0].label, runs[0].task, runs[0].train.batch, len(runs)


def usage(runs: Sequence[RunConfig], probe: Probe) -> Usage:
    """One job, by the formula above."""
    steps, evaluation = runs[0].train.steps, runs[0].eval
    measured = ceil(steps / evaluation.every)
    scorings = 1 + probe.modes + (measured if evaluation.top else 0)
    each = (
        probe.validation * measured
        + probe.scoring * scorings
        + probe.saving * ceil(steps / runs[0].train.checkpoint_every)
    )
    return probe.step * steps + each * len(runs)


def forecast(phases: Mapping[str, Phase], probes: Mapping[Kind, Probe], workers: int) -> Forecast:
    """Phases run one after another, each with up to so many jobs at a time, in the order given."""
    lines: list[Line] = []
    compilation = _compilation(probes.values())
    most = max(min(workers, len(phase.plan)) for phase in phases.values())
    wall, peaks = compilation.usage.seconds, [0.0]
    for name, phase in phases.items():
        used = [usage(runs, probes[kind(runs)]) for runs in phase.jobs]
        wall += makespan([one.seconds for one in used], workers)
        memory = sorted((probes[kind(runs)].memory_mb for runs in phase.jobs), reverse=True)
        peaks.append(sum(memory[:workers]))
        lines += _lines(name, phase.jobs, used, probes)
    device = next(config.device for phase in phases.values() for config in phase.configs)
    return Forecast(tuple(lines), device, most, wall, max(peaks), compilation)


def _compilation(probes: Iterable[Probe]) -> Compilation:
    """As measured first, when nothing was compiled; what is compiled knows of no encoding."""
    found = [probe.compilation for probe in probes]
    sizes = frozenset[int]().union(*(one.sizes for one in found))
    return Compilation(found[0].first, found[0].further, sizes)


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
    jobs: Sequence[Sequence[RunConfig]],
    used: Sequence[Usage],
    probes: Mapping[Kind, Probe],
) -> list[Line]:
    together: dict[tuple[str, str], list[int]] = {}
    for index, runs in enumerate(jobs):
        together.setdefault((runs[0].label, runs[0].task), []).append(index)
    lines = []
    for (encoding, task), own in together.items():
        share = {index: used[index] * (1 / len(jobs[index])) for index in own}
        longest = max(own, key=lambda index: share[index].seconds)
        total = sum((used[index] for index in own), Usage())
        runs, stacked = sum(len(jobs[index]) for index in own), len(jobs[longest])
        probe = probes[kind(jobs[longest])]
        lines.append(Line(phase, encoding, task, runs, stacked, probe, share[longest], total))
    return lines
