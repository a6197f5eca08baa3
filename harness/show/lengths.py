"""Histograms of the sequence lengths of a run, in tokens, in training and in the test."""

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

DRAWN = 200  # instances of a length with too many to list
PARTS = ("whole sequence", "answer", "prompt")


def length_panels(task: Task, config: RunConfig) -> list[tuple[str, str]]:
    """Draw histograms of the tokens of the sequence, its answer (with EOS) and its prompt.

    Training: after the curriculum, as the run draws lengths. Test: every length beyond training, or
    every test length if none is. Shares of answers are logarithmic: long answers are rare.
    """
    choice = length_choice(task, config.train, config.train.steps)
    weights = [1.0] * len(choice.lengths) if choice.weights is None else choice.weights.tolist()
    seen = [(_batch(task, n), weight) for n, weight in zip(choice.lengths, weights, strict=True)]
    tested = [n for length in config.eval.lengths for n in task.lengths(length, length)]
    unseen = [n for n in tested if n > config.train.lengths[1]]
    test = [(one := examples(task, config, n), len(one.prompt)) for n in unseen or tested]
    causal = int(config.track == "decoder")
    both = {"training": _shares(task, seen, causal), "test": _shares(task, test, causal)}
    panels = []
    for i, part in enumerate(PARTS):
        shares = {when: found[i] for when, found in both.items()}
        name, label = f"lengths of the {part}", f"tokens of the {part}"
        panels.append((name, plots.histograms(name, shares, label, log=part == "answer")))
    return panels


def _shares(task: Task, batches: Sequence[tuple[Batch, float]], causal: int) -> list[list[float]]:
    """Return the share of sequences, answers and prompts of 0, 1, ... tokens.

    Each batch has a weight. A decoder writes EOS; an encoder does not read the last of the prompt.
    """
    found: list[tuple[Tensor, Tensor, Tensor, Tensor]] = []
    for batch, weight in batches:
        prompt = (batch.prompt != task.vocab.pad).sum(1) - (1 - causal)
        answer = (batch.target != task.vocab.pad).sum(1) + causal
        each = torch.full((len(prompt),), weight / len(prompt), dtype=torch.float64)
        found.append((prompt + answer, answer, prompt, each))
    *tokens, mass = map(torch.cat, zip(*found, strict=True))
    return [torch.bincount(one, mass / mass.sum()).tolist() for one in tokens]


def _batch(task: Task, length: int) -> Batch:
    every = task.instances(length)
    if every is not None:
        return every
    return task.sample(generator("lengths", task.name, task.version, length), DRAWN, length)
