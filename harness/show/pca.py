"""The activations of every layer in two dimensions, at a trained length and at a longer one."""

from collections.abc import Sequence

import torch
from torch import Tensor

from harness.data.seeds import generator
from harness.data.sequences import to_sequences
from harness.model.transformer import Transformer
from harness.show import plots
from harness.show.examples import positions
from harness.show.figures import Figure, Section
from harness.tasks.base import Task
from harness.training.predict import teacher_forced

SEQUENCES = 30
CAPTION = (
    "The output of each layer at every token of {count} sequences of length {seen} ({tokens:,} "
    "tokens, blue dots, seen in training) and of {count} of length {beyond} ({more:,} tokens, "
    "orange discs){empty}. {draw}Both are shown along the first two principal components of the "
    "blue points, not whitened. Orange points far from all blue ones are activations outside the "
    "training distribution (Ruoss et al. 2023, Figure 5). Token accuracy on these sequences{how}: "
    "{right:.3f} at length {seen}, {far:.3f} at length {beyond}."
)


def pca_figure(
    model: Transformer, task: Task, tested: Sequence[int], mode: str | None = None
) -> Figure | None:
    """Draw the embeddings and each layer's output at `tested`, a trained and a longer length.

    Returns None if no length is longer. Errors: PositionError if the encoding cannot represent it.
    """
    if len(tested) < 2:
        return None
    (blue, right), (orange, far) = (activations_of(model, task, n, mode) for n in tested)
    panels = []
    for at, (x, y) in enumerate(zip(blue, orange, strict=True)):
        mean, basis = components(x)
        name = f"layer {at - 1}" if at else "embeddings"
        points = {"seen": (x - mean) @ basis, "longer": (y - mean) @ basis}
        panels.append((name, plots.scatter(name, points)))
    encoder, random = model.track == "encoder", model.encoding.stochastic
    caption = CAPTION.format(
        count=SEQUENCES, seen=tested[0], beyond=tested[1], right=right, far=far,
        tokens=len(blue[0]), more=len(orange[0]),
        empty=", including the empty tokens where the answer is written" if encoder else "",
        draw="All sequences of a length share one draw of positions. " if random else "",
        how="" if encoder else ", given the right answer before each token",
    )  # fmt: skip
    return Figure("Activations: principal components", caption, [Section("", panels)])


@torch.no_grad()
def activations_of(
    model: Transformer, task: Task, length: int, mode: str | None
) -> tuple[list[Tensor], float]:
    """Run the model on SEQUENCES sequences of one length. Errors: PositionError.

    Returns the input of the first layer, then each layer's output, (N, D) at the N tokens, and the
    share of the answers' tokens that are right; a decoder is teacher-forced.
    """
    draws = generator("show", "activations", task.name, task.version, length)
    batch = to_sequences(task.sample(draws, SEQUENCES, length), task, model.track)
    found: list[Tensor] = []
    hooks = [model.blocks[0].register_forward_pre_hook(lambda _, given: found.append(given[0]))]
    for block in model.blocks:
        hooks.append(block.register_forward_hook(lambda _, given, out: found.append(out[0])))
    try:
        out = teacher_forced(model.eval(), batch, length, positions(length), mode)
    finally:
        for hook in hooks:
            hook.remove()
    real = (batch.pos >= 0).expand(len(batch.inputs), -1)
    right = (out == batch.labels)[batch.counted]
    return [x[real] for x in found], right.float().mean().item()


def components(x: Tensor) -> tuple[Tensor, Tensor]:
    """Return the mean (D,) of x (N, D) and its first two principal components (D, 2).

    >>> mean, basis = components(torch.tensor([[0.0, 0, 0], [2, 0, 0], [1, 1, 0], [1, -1, 0]]))
    >>> mean.tolist(), (basis.abs() > 0.5).sum().item()
    ([1.0, 0.0, 0.0], 2)
    """
    mean = x.mean(0)
    _, _, rows = torch.linalg.svd(x - mean, full_matrices=False)
    return mean, rows[:2].T
