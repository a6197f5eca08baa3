"""Attention in plain operations: the reference for other kernels, and for other softmaxes."""

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
    """Compute softmax(q k^T scale + bias) v, or use `weights` of the masked logits if not None."""
    logits = q @ k.mT * scale  # (B, H, T, S)
    if bias is not None:
        logits = logits + bias
    if mask is None:
        mask = causal(q.shape[-2], k.shape[-2], q.device)
    logits = logits.masked_fill(~mask, -torch.inf)
    chosen = weights(logits)
    return (logits.softmax(-1) if chosen is None else chosen) @ v


def causal(t: int, s: int, device: torch.device) -> Tensor:
    """Return (1, 1, T, S), True for keys up to the query; the last T of S are queries."""
    return torch.ones(t, s, dtype=torch.bool, device=device).tril(s - t)[None, None]
