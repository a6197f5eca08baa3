"""The training batch of a step, from the run's seed and the step alone."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor

from experiment.config import RunConfig, Train
from harness.data.packed import packed
from harness.data.seeds import generator
from harness.data.sequences import Sequences, lay_out
from harness.tasks.base import Batch, Task


def sequences_of(task: Task, config: RunConfig, step: int) -> tuple[Sequences, int]:
    """The training batch of a step before anything is drawn for a model, and its length.

    That of packed rows is the longest one there may be. Errors: TaskError.
    """
    train = config.train
    draws = generator("train", config.task, config.task_version, config.seed, step)
    if train.context is None:
        length = draw_length(task, train, step, draws)
        return lay_out(_instances(task, config, length, draws), task, config.track), length

    choice = length_choice(task, train, step)
    closed = train.borders == "closed"
    longest = choice.lengths[-1]
    rows = packed(task, partial(choice.draw, draws), train.batch, train.context, closed, draws)
    return rows, longest


def _instances(task: Task, config: RunConfig, length: int, draws: torch.Generator) -> Batch:
    """A batch of that length: new instances, or some of the run's training set."""
    train = config.train
    if not train.samples:
        return task.sample(draws, train.batch, length)
    share = max(1, train.samples // len(task.lengths(*train.lengths)))
    kept = generator("training set", config.task, config.task_version, config.seed, length)
    pool = task.sample(kept, share, length)
    rows = torch.randint(share, (train.batch,), generator=draws)
    return Batch(pool.prompt[rows], pool.target[rows])


def draw_length(task: Task, train: Train, step: int, draws: torch.Generator) -> int:
    """One length for a batch, of those that the task has and the curriculum allows."""
    return length_choice(task, train, step).draw(draws, 1)[0]


@dataclass(frozen=True)
class LengthChoice:
    """Lengths, and how likely each is, in proportion; None: equally likely."""

    lengths: list[int]
    weights: Tensor | None

    def draw(self, draws: torch.Generator, count: int) -> list[int]:
        """So many independent ones."""
        if self.weights is None:
            which = torch.randint(len(self.lengths), (count,), generator=draws)
        else:
            which = torch.multinomial(self.weights, count, replacement=True, generator=draws)
        return [self.lengths[i] for i in which.tolist()]


def length_choice(task: Task, train: Train, step: int) -> LengthChoice:
    """What the lengths of a step are drawn from."""
    low, high = train.lengths
    progress = step / train.steps
    stage = next((s for s in train.curriculum if progress < s.until), None)
    lengths = task.lengths(low, min(high, stage.max) if stage else high)
    lengths = lengths or task.lengths(low, high)[:1]
    if train.draw == "lengths":
        return LengthChoice(lengths, None)
    weights = [_weight(task, length, train.draw) for length in lengths]
    return LengthChoice(lengths, torch.tensor(weights, dtype=torch.float64))


def _weight(task: Task, length: int, draw: str) -> float:
    if draw == "shares":
        return task.share(length)
    listed = task.instances(length)
    return 0.0 if listed is None else float(len(listed.prompt))
