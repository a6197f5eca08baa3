"""The random numbers of a step, drawn for the whole batch before the forward pass.

Shapes follow `pezoo.base.Encoding.draw`: (B|1, T, ...) has an entry for each row and token, (n,)
and () serve the whole batch. So a part of a batch has the random numbers of the whole batch.
"""

from collections.abc import Mapping

import torch
from torch import Tensor

Drawn = Mapping[str, Tensor]
DROPOUT = "dropout"  # (B, T, 2 layers + 1, D) bool, True where a number is kept


def dropout_masks(
    size: tuple[int, int, int], layers: int, last: int, p: float, generator: torch.Generator
) -> Tensor:
    """Draw masks for x of `size` (B, T, D): after the attention and after the MLP of each layer.

    In the last layer, only masks of the `last` tokens are drawn. One of the embeddings follows.
    """
    b, t, d = size
    masks = torch.ones(2 * layers + 1, b, t, d, dtype=torch.bool, device=generator.device)
    for number, mask in enumerate(masks):
        columns = last if number in (2 * layers - 2, 2 * layers - 1) else t
        kept = torch.empty(b, columns, d, dtype=torch.bool, device=generator.device)
        mask[:, t - columns :] = kept.bernoulli_(1 - p, generator=generator)
    return masks.permute(1, 2, 0, 3)


def rows(drawn: Drawn, first: int, stop: int) -> Drawn:
    """Return the random numbers of some of the B rows."""
    return {n: x[first:stop] if x.dim() > 1 and len(x) > 1 else x for n, x in drawn.items()}


def moved(drawn: Drawn, device: str) -> Drawn:
    """Move to a device; to CUDA, from pinned memory and without synchronising."""
    cuda = device.startswith("cuda")
    return {
        name: (x.pin_memory() if cuda and not x.is_cuda else x).to(device, non_blocking=cuda)
        for name, x in drawn.items()
    }
