"""A few steps of each kind of run, measured: what `forecast` predicts a matrix from."""

from __future__ import annotations

import io
import os
import signal
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from math import ceil, log
from tempfile import TemporaryDirectory
from typing import Any

import torch
from safetensors.torch import save

from harness.dry_step import mean_step, timed
from harness.engine.local import fork_server
from harness.engine.stack_plan import Job
from harness.engine.stack_speed import advice, stackable
from harness.forecast import Kind, Phase, Probe, Usage, kind
from harness.runs import cost, heap
from harness.settings.protocol import RunConfig
from harness.settings.request import check_device
from harness.training.evaluate import Score, chunk_size, sample_count, score, validate
from harness.training.trainer import Trainer, start

_PATIENCE = 20.0  # seconds that scoring one chunk may be expected to take

Report = Callable[[str], None]


def measured(
    phases: Mapping[str, Phase], threads: int, choose: bool, report: Report
) -> tuple[dict[str, Phase], dict[Kind, Probe]]:
    """One measurement per kind, each in a process like a worker's, with as many threads.

    Of the phases' stacks those remain that can be stacked, and with `choose` those that are faster
    than their runs alone.
    Errors: ConfigError where this machine does not have the runs' device.
    """
    check_device(next(run.device for phase in phases.values() for run in phase.configs))
    with (
        ProcessPoolExecutor(1, fork_server(), _ignore_interrupts, max_tasks_per_child=1) as process,
        TemporaryDirectory() as graphs,
    ):

        def submit(work: Callable[..., Any], runs: Sequence[RunConfig]) -> Any:
            return process.submit(_worker, work, runs, threads, graphs).result()

        bench = _Bench(submit, choose, report)
        settled = {name: bench.settle(phase) for name, phase in phases.items()}
    return settled, bench.found


class _Bench:
    """What was measured of the kinds seen so far."""

    def __init__(self, submit: Callable[..., Any], choose: bool, report: Report) -> None:
        self.submit, self.choose, self.report = submit, choose, report
        self.found: dict[Kind, Probe] = {}
        self.stacks: dict[tuple[str, str], bool] = {}

    def settle(self, phase: Phase) -> Phase:
        """The phase with the stacks that are to be; all kinds in it are measured."""
        plan: list[Job] = []
        for job in phase.plan:
            stacked = self._measure([phase.configs[run] for run in job])
            plan += [job] if stacked else [(run,) for run in job]
        return Phase(phase.configs, plan)

    def _measure(self, runs: Sequence[RunConfig]) -> bool:
        """Whether these are one job; if not, they were measured apart."""
        if kind(runs) in self.found:
            return True
        first = runs[0]
        if len(runs) > 1 and not self._stacks(runs):
            self._measure(runs[:1])
            return False
        together = f", {len(runs)} as one stack" if len(runs) > 1 else ""
        self.report(f"measuring {first.label} on {first.task}{together}")
        self.found[kind(runs)] = self.submit(probe, runs)
        return True

    def _stacks(self, runs: Sequence[RunConfig]) -> bool:
        name = runs[0].label, runs[0].task
        if name not in self.stacks:
            self.stacks[name], words = self.submit(advice if self.choose else stackable, runs)
            self.report(f"{runs[0].label} · {runs[0].task}: {words}")
        return self.stacks[name]


def _ignore_interrupts() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def _worker(
    work: Callable[[Sequence[RunConfig]], Any],
    runs: Sequence[RunConfig],
    threads: int,
    graphs: str,
) -> Any:
    os.environ["TORCHINDUCTOR_CACHE_DIR"] = graphs  # nothing that was compiled before
    torch.set_num_threads(threads)
    return work(runs)


def probe(runs: Sequence[RunConfig]) -> Probe:
    """What steps, validation, scoring and a checkpoint of these runs take here, as one stack."""
    config = runs[0]
    heap.keep()
    cost.forget_peak_memory(config.device)
    trainers = [start(run) for run in runs]
    trainer = trainers[0]
    step, compilation = mean_step(trainers)
    scoring, whole = _scoring(trainer)
    validation = timed(lambda: validate(trainer.model, trainer.task, config))
    saving = timed(lambda: _save(trainer))
    memory = cost.peak_memory_mb(config.device)
    modes = len(trainer.model.encoding.modes)
    return Probe(step, validation, scoring, saving, modes, memory, whole, compilation)


def _scoring(trainer: Trainer) -> tuple[Usage, bool]:
    """Every test length once, and whether the longest was measured.

    One chunk is scored at the shortest length and at the longest that seems bearable; between
    and beyond them the time of a chunk is taken to grow as a power of its length.
    """
    task, config = trainer.task, trainer.config
    lengths = [length for length in config.eval.lengths if task.lengths(length, length)]
    if not lengths:
        return Usage(), True
    low = min(lengths)
    _chunk(trainer, low)  # the first may compile a kernel
    times = {low: _chunk(trainer, low)[0]}
    bearable = [n for n in lengths if times[low].cpu * (n / low) ** 2 <= _PATIENCE]
    high = max(bearable, default=low)
    if high > low:
        times[high], status = _chunk(trainer, high)
        if status == "cannot represent":  # which costs nothing; nor do the other unseen lengths
            del times[high]
            lengths = [n for n in lengths if n <= config.train.lengths[1]] or [low]
            high = max(lengths)
    parts = (
        _power(times, n) * ceil(sample_count(task, config, n) / chunk_size(task, n))
        for n in lengths
    )
    return sum(parts, Usage()), high == max(lengths)


def _chunk(trainer: Trainer, length: int) -> tuple[Usage, str]:
    """Scoring one chunk of a test length, and the score's status."""
    task, config = trainer.task, trainer.config
    count = min(sample_count(task, config, length), chunk_size(task, length))
    few = config.eval.model_copy(update={"samples": count, "min_samples": count})
    one = config.model_copy(update={"eval": few})
    scores: list[Score] = []
    used = timed(lambda: scores.append(score(trainer.model, task, one, length)))
    return used, scores[0].status


def _power(times: dict[int, Usage], length: int) -> Usage:
    """The power law through the two measured lengths; with one of them, the square."""
    low, high = min(times), max(times)

    def at(first: float, last: float) -> float:
        grown = high > low and first > 0 and last > 0
        power = log(last / first) / log(high / low) if grown else 2.0
        return first * (length / low) ** power

    return Usage(at(times[low].seconds, times[high].seconds), at(times[low].cpu, times[high].cpu))


def _save(trainer: Trainer) -> None:
    """What a checkpoint costs but for the disk."""
    save({k: v.detach().cpu().contiguous() for k, v in trainer.model.state_dict().items()})
    torch.save(trainer.optimiser.state_dict(), io.BytesIO())
