"""How long the sequences of a run are, in tokens: in training and in the test."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from harness.data.seeds import generator
from harness.show import plots
from harness.tasks.base import Batch, Task
from harness.training.evaluate import examples
from leaderboard.config import RunConfig

DRAWN = 200  # instances of a length whose instances are too many to list
PARTS = ("whole sequence", "answer", "prompt")


def length_panels(task: Task, config: RunConfig) -> list[str]:
    """A histogram as an SVG for the sequence, its answer (a decoder's with EOS) and its prompt.

    Training: after the curriculum, by the run's draw. Test: the examples of every test length.
    The answers' shares are on a logarithmic axis, as long ones are rare.
    """
    seen = [_batch(task, n) for n in task.lengths(*config.train.lengths)]
    even, ends = config.train.draw == "lengths", int(config.track == "decoder")
    tested = [n for length in config.eval.lengths for n in task.lengths(length, length)]
    test = [examples(task, config, n) for n in tested]
    both = {
        "training": _shares(task, [(one, 1 if even else len(one.prompt)) for one in seen], ends),
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


def _shares(task: Task, batches: Sequence[tuple[Batch, int]], ends: int) -> list[list[float]]:
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
