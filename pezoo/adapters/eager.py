"""Attention written out: the oracle of the others, and for encodings that replace softmax."""

from collections.abc import Callable

import torch
from torch import Tensor


def attend(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    bias: Tensor | None,
    mask: Tensor | None,
    scale: float,
    weights: Callable[[Tensor], Tensor | None] = lambda logits: None,
) -> Tensor:
    """softmax(q k^T scale + bias) v, or `weights` of the masked logits where it gives some."""
    logits = q @ k.mT * scale  # (B, H, T, S)
    if bias is not None:
        logits = logits + bias
    if mask is None:
        mask = causal(q.shape[-2], k.shape[-2], q.device)
    logits = logits.masked_fill(~mask, -torch.inf)
    chosen = weights(logits)
    return (logits.softmax(-1) if chosen is None else chosen) @ v


def causal(t: int, s: int, device: torch.device) -> Tensor:
    """(1, 1, T, S) True where the key is not later than the query; the last T of S are queries."""
    return torch.ones(t, s, dtype=torch.bool, device=device).tril(s - t)[None, None]
