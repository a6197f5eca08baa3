"""Build batches of rows that differ in length.

A ragged tensor is a pair: tokens (B, N), and a mask (B, N) of the tokens that are part of the row.
Parts are concatenated with their masks, and `ragged_batch` closes the gaps at the end.
"""

import torch
from torch import Tensor

from harness.tasks.base import Batch

Ragged = tuple[Tensor, Tensor]


def dense(tokens: Tensor) -> Ragged:
    """Return tokens that are all part of their rows."""
    return tokens, torch.ones_like(tokens, dtype=torch.bool)


def column(like: Tensor, token: int) -> Ragged:
    """Return one token for every row of `like` (B, ...)."""
    return dense(torch.full((len(like), 1), token, device=like.device))


def concatenate(*parts: Ragged, dim: int = 1) -> Ragged:
    """Concatenate tokens and masks from left to right."""
    tokens, kept = zip(*parts, strict=True)
    return torch.cat(tokens, dim), torch.cat(kept, dim)


def pack(tokens: Tensor, keep: Tensor, width: int, pad: int, *, right: bool = False) -> Tensor:
    """(B, width): the tokens (B, N) to keep, side by side from the left or up to the right.

    >>> pack(torch.tensor([[7, 8, 9]]), torch.tensor([[True, False, True]]), 4, pad=0)
    tensor([[7, 9, 0, 0]])
    """
    first = width - keep.sum(1, keepdim=True) if right else 0
    place = torch.where(keep, keep.cumsum(1) - 1 + first, width)  # dropped tokens go to `width`
    packed = torch.full((len(tokens), width + 1), pad, device=tokens.device)
    return packed.scatter(1, place, tokens)[:, :width]


def ragged_batch(prompt: Ragged, target: Ragged, pad: int, widths: tuple[int, int]) -> Batch:
    """Pack prompts to the right and targets to the left of tensors that are so many tokens wide."""
    return Batch(pack(*prompt, widths[0], pad, right=True), pack(*target, widths[1], pad))
