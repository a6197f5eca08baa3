"""The activations of every layer in two dimensions, at a trained length and at a longer one."""

from __future__ import annotations

import torch
from torch import Tensor

from harness.data.seeds import generator
from harness.data.sequences import lay_out
from harness.model.transformer import Transformer
from harness.settings.protocol import RunConfig
from harness.show import plots
from harness.show.examples import lengths, positions
from harness.show.figures import Figure, Section
from harness.tasks.base import Task
from pezoo.base import PositionError

SEQUENCES = 30
CAPTION = (
    "What the layers hand on, at all tokens of 30 sequences of length {0} (blue, seen in training) "
    "and of {1} (orange). The two principal components are those of the blue points, not whitened, "
    "and serve for both. Orange points far from all blue ones are activations that training has "
    "never met (Ruoss et al. 2023, Figure 5)."
)


def pca_figure(
    model: Transformer, task: Task, config: RunConfig, mode: str | None = None
) -> Figure | None:
    """One panel for the embeddings and one for each layer; None where no length is longer."""
    tested = lengths(task, config)
    if len(tested) < 2:
        return None
    try:
        seen, beyond = (activations_of(model, task, length, mode) for length in tested)
    except PositionError:
        return None
    panels = []
    for at, (x, y) in enumerate(zip(seen, beyond, strict=True)):
        mean, basis = components(x)
        name = "embeddings" if at == 0 else f"layer {at - 1}"
        both = {"seen": (x - mean) @ basis, "longer": (y - mean) @ basis}
        panels.append((name, plots.scatter(f"Activations: {name}", both)))
    section = Section("", "", "", [panels], [], 0)
    return Figure("Activations: principal components", CAPTION.format(*tested), [section])


@torch.no_grad()
def activations_of(model: Transformer, task: Task, length: int, mode: str | None) -> list[Tensor]:
    """(N, D) of the N tokens of all sequences: what the first layer reads, then what each gives.

    Errors: PositionError.
    """
    draws = generator("show", "activations", task.name, task.version, length)
    batch = lay_out(task.sample(draws, SEQUENCES, length), task, model.track)
    found: list[Tensor] = []
    blocks = list(model.blocks)
    hooks = [blocks[0].register_forward_pre_hook(lambda _, given: found.append(given[0]))]
    for block in blocks:
        hooks.append(block.register_forward_hook(lambda _, given, out: found.append(out[0])))
    try:
        scale = torch.tensor([length])
        model.eval()(batch.inputs, batch.pos, scale=scale, generator=positions(length), mode=mode)
    finally:
        for hook in hooks:
            hook.remove()
    real = (batch.pos >= 0).expand(len(batch.inputs), -1)
    return [x[real] for x in found]


def components(x: Tensor) -> tuple[Tensor, Tensor]:
    """The mean (D,) of x (N, D), and its first two principal components (D, 2).

    >>> mean, basis = components(torch.tensor([[0.0, 0, 0], [2, 0, 0], [1, 1, 0], [1, -1, 0]]))
    >>> mean.tolist(), (basis.abs() > 0.5).sum().item()
    ([1.0, 0.0, 0.0], 2)
    """
    mean = x.mean(0)
    _, _, rows = torch.linalg.svd(x - mean, full_matrices=False)
    return mean, rows[:2].T
