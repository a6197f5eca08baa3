"""A training step, averaged over the lengths that a whole run draws, from a few that are timed."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence

from harness.data.buckets import bucket
from harness.data.seeds import generator
from harness.data.sequences import join
from harness.forecast import Compilation, Usage
from harness.settings.protocol import Train
from harness.tasks.base import Task
from harness.training.stack import Stack
from harness.training.trainer import Trainer, draw_length

_REPEATS = 3  # timed steps per length, after one that is not timed
_SEARCH = 5000  # steps to look through for one that draws a wanted length
_RARE = 0.01  # of the commonest length's share: lengths that are not looked for


def mean_step(trainers: Sequence[Trainer]) -> tuple[Usage, Compilation]:
    """A step of one trainer, or of several as one stack; and what torch.compile took.

    Steps of the shortest, a middle and the longest length are timed; the lengths between follow
    the straight lines through them. The length of a stack is the longest that its members draw.
    Errors: those of `harness.training.stack.Stack`.
    """
    task, train = trainers[0].task, trainers[0].config.train
    shares = length_shares(task, train, len(trainers))
    usual = max(shares.values()) * _RARE
    shares = {length: share for length, share in shares.items() if share >= usual}
    lengths = sorted(shares)
    nodes = sorted({lengths[0], lengths[len(lengths) // 2], lengths[-1]}, reverse=True)
    stack = Stack(trainers) if len(trainers) > 1 else None
    advance = stack.advance if stack else trainers[0].advance
    pairs = {length: _step_of(trainers, advance, length) for length in nodes}
    if stack:
        stack.write_back()
    times = {length: step for length, (step, _) in pairs.items()}
    parts = (_between(times, length) * share for length, share in shares.items())
    step = sum(parts, Usage()) * (1 / sum(shares.values()))
    first = {length: more for length, (_, more) in pairs.items()}
    return step, _compilation(trainers[0], first, lengths)


def length_shares(task: Task, train: Train, members: int = 1) -> dict[int, float]:
    """Which share of a run's steps has which length, with the curriculum.

    For several members: the longest of what each of them draws. Of n lengths, the i-th is that with
    probability (i^m - (i - 1)^m) / n^m.
    """
    low, high = train.lengths
    ends = [(stage.until, stage.max) for stage in train.curriculum] + [(1.0, high)]
    shares: dict[int, float] = {}
    began = 0.0
    for until, longest in sorted(ends):
        lengths = task.lengths(low, min(high, longest)) or task.lengths(low, high)[:1]
        for i, length in enumerate(lengths):
            chance = ((i + 1) / len(lengths)) ** members - (i / len(lengths)) ** members
            shares[length] = shares.get(length, 0.0) + max(0.0, until - began) * chance
        began = max(began, until)
    return {length: share for length, share in shares.items() if share > 0}


def timed(call: Callable[[], object]) -> Usage:
    """What a call takes."""
    wall, cpu = time.perf_counter(), time.process_time()
    call()
    return Usage(time.perf_counter() - wall, time.process_time() - cpu)


def _step_of(
    trainers: Sequence[Trainer], advance: Callable[[], object], length: int
) -> tuple[Usage, Usage]:
    """A step of this length, on average over a few; and what the first of them took more."""
    steps = _steps_with(trainers, length)

    def step() -> Usage:
        number = next(steps)
        for trainer in trainers:
            trainer.step = number
        return timed(advance)

    first = step()
    usual = sum((step() for _ in range(_REPEATS)), Usage()) * (1 / _REPEATS)
    return usual, first + usual * -1


def _steps_with(trainers: Sequence[Trainer], length: int) -> Iterator[int]:
    """Step numbers at which the longest drawn is that; one of them again and again if rare."""
    steps = trainers[0].config.train.steps
    found = []
    for at in range(min(_SEARCH, steps)):
        step = (steps // 2 + at) % steps
        if max(_drawn(trainer, step) for trainer in trainers) == length:
            found.append(step)
            yield step
    while True:
        yield from found or [steps // 2]


def _drawn(trainer: Trainer, step: int) -> int:
    config = trainer.config
    draws = generator("train", config.task, config.task_version, config.seed, step)
    return draw_length(trainer.task, config.train, step, draws)


def _between(times: dict[int, Usage], length: int) -> Usage:
    """Linear between the measured lengths around this one."""
    below = max(n for n in times if n <= length)
    above = min(n for n in times if n >= length)
    if below == above:
        return times[below]
    share = (length - below) / (above - below)
    return times[below] * (1 - share) + times[above] * share


def _compilation(trainer: Trainer, first: dict[int, Usage], lengths: Sequence[int]) -> Compilation:
    """From what the first steps took more, the longest length's before the others'."""
    if not trainer.config.train.compile:
        return Compilation()
    seen: dict[int, Usage] = {}
    for length, more in first.items():
        seen.setdefault(_size(trainer, length), more)
    begin, *others = seen.values()
    mean = sum(others, Usage()) * (1 / max(1, len(others)))
    return Compilation(begin, mean, frozenset(_size(trainer, length) for length in lengths))


def _size(trainer: Trainer, length: int) -> int:
    """The size that a batch of this length is padded to."""
    sample = trainer.task.sample(generator("size", length), 1, length)
    return bucket(join(sample, trainer.task.vocab).ids.shape[1] - 1)
