"""The activations of every layer in two dimensions, at a trained length and at a longer one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from harness.data.seeds import generator
from harness.data.sequences import to_sequences
from harness.model.transformer import Transformer
from harness.show import plots
from harness.show.examples import positions
from harness.show.figures import Figure, Section
from harness.tasks.base import Task
from harness.training.evaluate import teacher_forced

SEQUENCES = 30
CAPTION = (
    "The output of each layer at every token of {count} sequences of length {0.length} "
    "({0.tokens:,} tokens, blue dots, seen in training) and of {count} of length {1.length} "
    "({1.tokens:,} tokens, orange discs){empty}. {draw}Both are shown along the first two "
    "principal components of the blue points, not whitened. Orange points far from all blue ones "
    "are activations outside the training distribution (Ruoss et al. 2023, Figure 5). Token "
    "accuracy on these sequences{how}: {0.accuracy:.3f} at length {0.length}, {1.accuracy:.3f} at "
    "length {1.length}."
)


@dataclass(frozen=True)
class Hidden:
    """A model on all sequences of one length.

    layers: the input of the first layer, then each layer's output, (N, D) at the N tokens.
    accuracy: the share of the answers' tokens that are right; a decoder is teacher-forced.
    """

    length: int
    layers: list[Tensor]
    accuracy: float

    @property
    def tokens(self) -> int:
        return len(self.layers[0])


def pca_figure(
    model: Transformer, task: Task, tested: Sequence[int], mode: str | None = None
) -> Figure | None:
    """Draw the embeddings and each layer's output at `tested`, a trained and a longer length.

    Returns None if no length is longer. Errors: PositionError if the encoding cannot represent it.
    """
    if len(tested) < 2:
        return None
    seen, beyond = (activations_of(model, task, length, mode) for length in tested)
    panels = []
    for at, (x, y) in enumerate(zip(seen.layers, beyond.layers, strict=True)):
        mean, basis = components(x)
        name = "embeddings" if at == 0 else f"layer {at - 1}"
        panels.append(
            (name, plots.scatter(name, {"seen": (x - mean) @ basis, "longer": (y - mean) @ basis}))
        )
    encoder = model.track == "encoder"
    caption = CAPTION.format(
        seen,
        beyond,
        count=SEQUENCES,
        empty=", including the empty tokens where the answer is written" if encoder else "",
        draw="All sequences of a length share one draw of positions. "
        if model.encoding.stochastic
        else "",
        how="" if encoder else ", given the right answer before each token",
    )
    return Figure("Activations: principal components", caption, [Section("", panels)])


@torch.no_grad()
def activations_of(model: Transformer, task: Task, length: int, mode: str | None) -> Hidden:
    """Run the model on SEQUENCES sequences of one length. Errors: PositionError."""
    draws = generator("show", "activations", task.name, task.version, length)
    batch = to_sequences(task.sample(draws, SEQUENCES, length), task, model.track)
    found: list[Tensor] = []
    blocks = list(model.blocks)
    hooks = [blocks[0].register_forward_pre_hook(lambda _, given: found.append(given[0]))]
    for block in blocks:
        hooks.append(block.register_forward_hook(lambda _, given, out: found.append(out[0])))
    try:
        out = teacher_forced(model.eval(), batch, length, positions(length), mode)
    finally:
        for hook in hooks:
            hook.remove()
    real = (batch.pos >= 0).expand(len(batch.inputs), -1)
    right = (out == batch.labels)[batch.counted]
    return Hidden(length, [x[real] for x in found], right.float().mean().item())


def components(x: Tensor) -> tuple[Tensor, Tensor]:
    """Return the mean (D,) of x (N, D) and its first two principal components (D, 2).

    >>> mean, basis = components(torch.tensor([[0.0, 0, 0], [2, 0, 0], [1, 1, 0], [1, -1, 0]]))
    >>> mean.tolist(), (basis.abs() > 0.5).sum().item()
    ([1.0, 0.0, 0.0], 2)
    """
    mean = x.mean(0)
    _, _, rows = torch.linalg.svd(x - mean, full_matrices=False)
    return mean, rows[:2].T
