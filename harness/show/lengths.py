"""How long the sequences of a run are, in tokens: in training and in the test."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from experiment.config import RunConfig
from harness.data.batches import length_choice
from harness.data.seeds import generator
from harness.show import plots
from harness.tasks.base import Batch, Task
from harness.training.evaluate import examples

DRAWN = 200  # instances of a length whose instances are too many to list
PARTS = ("whole sequence", "answer", "prompt")


def length_panels(task: Task, config: RunConfig) -> list[str]:
    """A histogram as an SVG for the sequence, its answer (a decoder's with EOS) and its prompt.

    Training: after the curriculum, by the run's draw. Test: the examples of every length beyond
    training, or of every test length where none is. The answers' shares are on a logarithmic
    axis, as long ones are rare.
    """
    ends = int(config.track == "decoder")
    choice = length_choice(task, config.train, config.train.steps)
    weights = [1.0] * len(choice.lengths) if choice.weights is None else choice.weights.tolist()
    seen = [(_batch(task, n), weight) for n, weight in zip(choice.lengths, weights, strict=True)]
    tested = [n for length in config.eval.lengths for n in task.lengths(length, length)]
    unseen = [n for n in tested if n > config.train.lengths[1]]
    test = [examples(task, config, n) for n in unseen or tested]
    both = {
        "training": _shares(task, seen, ends),
        "test": _shares(task, [(one, len(one.prompt)) for one in test], ends),
    }
    return [
        plots.histograms(
            f"lengths of the {part}",
            {when: shares[i] for when, shares in both.items()},
            f"tokens of the {part}",
            log=part.startswith("answer"),
        )
        for i, part in enumerate(PARTS)
    ]


def _shares(task: Task, batches: Sequence[tuple[Batch, float]], ends: int) -> list[list[float]]:
    """The share of sequences, answers and prompts of 0, 1, ... tokens; batches count as told.

    `ends`: 1 for the EOS of an answer, 0 for an encoder, which reads no symbol that asks either.
    """
    found: list[tuple[Tensor, Tensor, Tensor, Tensor]] = []
    for batch, weight in batches:
        prompt = (batch.prompt != task.vocab.pad).sum(1) - (1 - ends)
        answer = (batch.target != task.vocab.pad).sum(1) + ends
        each = torch.full((len(prompt),), weight / len(prompt), dtype=torch.float64)
        found.append((prompt + answer, answer, prompt, each))
    *tokens, mass = map(torch.cat, zip(*found, strict=True))
    return [torch.bincount(one, mass / mass.sum()).tolist() for one in tokens]


def _batch(task: Task, length: int) -> Batch:
    every = task.instances(length)
    if every is not None:
        return every
    return task.sample(generator("lengths", task.name, task.version, length), DRAWN, length)
