"""Draw the training batch of a step; it depends on the seed of the run and the step only."""

from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor

from experiment.config import RunConfig, Train
from harness.data.packed import packed
from harness.data.seeds import generator
from harness.data.sequences import Sequences, to_sequences
from harness.tasks.base import Batch, Task


def training_batch(task: Task, config: RunConfig, step: int) -> tuple[Sequences, int]:
    """Return the training batch of a step, and its length n; for packed rows, the largest.

    Errors: TaskError.
    """
    train = config.train
    draws = generator("train", config.task, config.task_version, config.seed, step)
    choice = length_choice(task, train, step)
    if train.context is None:
        (length,) = choice.draw(draws, 1)
        return to_sequences(_instances(task, config, length, draws), task, config.track), length
    rows = packed(task, partial(choice.draw, draws), train.batch, train.context, draws)
    return rows, choice.lengths[-1]


def _instances(task: Task, config: RunConfig, length: int, draws: torch.Generator) -> Batch:
    """Draw a batch of a length: new instances, or some of a fixed training set."""
    train = config.train
    if not train.samples:
        return task.sample(draws, train.batch, length)
    share = max(1, train.samples // len(task.lengths(*train.lengths)))
    kept = generator("training set", config.task, config.task_version, config.seed, length)
    pool = task.sample(kept, share, length)
    rows = torch.randint(share, (train.batch,), generator=draws)
    return Batch(pool.prompt[rows], pool.target[rows])


@dataclass(frozen=True)
class LengthChoice:
    """Lengths and their relative frequencies; None: uniform."""

    lengths: list[int]
    weights: Tensor | None

    def draw(self, draws: torch.Generator, count: int) -> list[int]:
        """Draw `count` independent lengths."""
        if self.weights is None:
            which = torch.randint(len(self.lengths), (count,), generator=draws)
        else:
            which = torch.multinomial(self.weights, count, replacement=True, generator=draws)
        return [self.lengths[i] for i in which.tolist()]


def length_choice(task: Task, train: Train, step: int) -> LengthChoice:
    """Return the distribution of lengths at a step."""
    low, high = train.lengths
    progress = step / max(train.steps, 1)
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
