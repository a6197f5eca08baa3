"""A few steps of each kind of run, measured: what `forecast` predicts a matrix from."""

from __future__ import annotations

import io
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from math import ceil, log

import torch
from safetensors.torch import save

from harness import cost, heap
from harness.config import RunConfig, Train
from harness.engine.local import fork_server
from harness.evaluate import Score, chunk_size, sample_count, score, validate
from harness.forecast import Kind, Probe, Usage, kind
from harness.matrix import check_device
from harness.seeds import generator
from harness.tasks.base import Task
from harness.train import Trainer, draw_length, start

_REPEATS = 3  # timed steps per length, after one that is not timed
_SEARCH = 5000  # steps to look through for one that draws a wanted length
_PATIENCE = 20.0  # seconds that scoring one chunk may be expected to take


def probes(
    configs: Sequence[RunConfig], threads: int, report: Callable[[str], None]
) -> dict[Kind, Probe]:
    """One measurement per kind, each in a process like a worker's, with as many threads.

    Errors: ConfigError where this machine does not have the runs' device.
    """
    check_device(configs[0].device)
    found: dict[Kind, Probe] = {}
    with ProcessPoolExecutor(
        1, fork_server(), _ignore_interrupts, max_tasks_per_child=1
    ) as process:
        for config in configs:
            if kind(config) not in found:
                report(f"measuring {config.label} on {config.task}")
                found[kind(config)] = process.submit(_probe, config, threads).result()
    return found


def _ignore_interrupts() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def _probe(config: RunConfig, threads: int) -> Probe:
    torch.set_num_threads(threads)
    return probe(config)


def probe(config: RunConfig) -> Probe:
    """What steps, validation, scoring and a checkpoint of this run take here."""
    heap.keep()
    cost.forget_peak_memory(config.device)
    trainer = start(config)
    step = _step(trainer)
    scoring, whole = _scoring(trainer)
    validation = _timed(lambda: validate(trainer.model, trainer.task, config))
    saving = _timed(lambda: _save(trainer))
    memory = cost.peak_memory_mb(config.device)
    modes = len(trainer.model.encoding.modes)
    return Probe(step, validation, scoring, saving, modes, memory, whole)


def _step(trainer: Trainer) -> Usage:
    """A training step, averaged over the lengths that the whole run draws.

    Steps of the shortest, a middle and the longest length are timed; the lengths between follow
    the straight lines through them.
    """
    task, train = trainer.task, trainer.config.train
    shares = length_shares(task, train)
    lengths = sorted(shares)
    nodes = sorted({lengths[0], lengths[len(lengths) // 2], lengths[-1]}, reverse=True)
    times = {length: _step_of(trainer, length) for length in nodes}
    parts = (_between(times, length) * share for length, share in shares.items())
    return sum(parts, Usage())


def length_shares(task: Task, train: Train) -> dict[int, float]:
    """Which share of a run's steps has which length, with the curriculum."""
    low, high = train.lengths
    ends = [(stage.until, stage.max) for stage in train.curriculum] + [(1.0, high)]
    shares: dict[int, float] = {}
    began = 0.0
    for until, longest in sorted(ends):
        lengths = task.lengths(low, min(high, longest)) or task.lengths(low, high)[:1]
        for length in lengths:
            shares[length] = shares.get(length, 0.0) + max(0.0, until - began) / len(lengths)
        began = max(began, until)
    return {length: share for length, share in shares.items() if share > 0}


def _step_of(trainer: Trainer, length: int) -> Usage:
    """A few steps of this length, on average; the first of them is not counted."""
    steps = _steps_with(trainer, length)
    trainer.step = next(steps)
    trainer.advance()
    used = Usage()
    for _ in range(_REPEATS):
        trainer.step = next(steps)
        used += _timed(trainer.advance)
    return used * (1 / _REPEATS)


def _steps_with(trainer: Trainer, length: int) -> Iterator[int]:
    """Step numbers at which this run trains on that length; one of them again and again if rare."""
    config = trainer.config
    found = []
    for at in range(_SEARCH):
        step = (config.train.steps // 2 + at) % config.train.steps
        draws = generator("train", config.task, config.task_version, config.seed, step)
        if draw_length(trainer.task, config.train, step, draws) == length:
            found.append(step)
            yield step
    while True:
        yield from found or [config.train.steps // 2]


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
    used = _timed(lambda: scores.append(score(trainer.model, task, one, length)))
    return used, scores[0].status


def _between(times: dict[int, Usage], length: int) -> Usage:
    """Linear between the measured lengths around this one."""
    below = max(n for n in times if n <= length)
    above = min(n for n in times if n >= length)
    if below == above:
        return times[below]
    share = (length - below) / (above - below)
    return times[below] * (1 - share) + times[above] * share


def _power(times: dict[int, Usage], length: int) -> Usage:
    """The power law through the two measured lengths; with one of them, the square."""
    low, high = min(times), max(times)

    def at(first: float, last: float) -> float:
        grown = high > low and first > 0 and last > 0
        power = log(last / first) / log(high / low) if grown else 2.0
        return first * (length / low) ** power

    return Usage(at(times[low].seconds, times[high].seconds), at(times[low].cpu, times[high].cpu))


def _timed(call: Callable[[], object]) -> Usage:
    wall, cpu = time.perf_counter(), time.process_time()
    call()
    return Usage(time.perf_counter() - wall, time.process_time() - cpu)


def _save(trainer: Trainer) -> None:
    """What a checkpoint costs but for the disk."""
    save({k: v.detach().cpu().contiguous() for k, v in trainer.model.state_dict().items()})
    torch.save(trainer.optimiser.state_dict(), io.BytesIO())
