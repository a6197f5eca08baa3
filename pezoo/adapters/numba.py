"""Attention of narrow heads on a CPU: `pezoo.kernels.attention`.

`pezoo.adapters.attend` uses torch where `takes` is False: for a few queries over many keys
(decoding), long sequences of wide heads and half precision.
"""

import torch
from torch import Tensor

from pezoo.base import Pairs
from pezoo.kernels.backends import BackendError, missing

QUERIES = 4  # the kernel takes them four at a time
KEYS = 512  # for any width, and more while a head's keys are
NUMBERS = 1 << 14  # which the first-level cache about holds


def takes(q: Tensor, k: Tensor) -> bool:
    """Return True if the kernel is faster than torch for these sizes."""
    keys, width = k.shape[-2:]
    whole = q.dtype in (torch.float32, torch.float64)
    short = keys <= KEYS or keys * width <= NUMBERS
    return whole and q.shape[-2] >= QUERIES and short


def attend(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    bias: Tensor | Pairs | None,
    mask: Tensor | None,
    scale: float,
) -> Tensor:
    """Compute the same as `eager.attend`. Errors: BackendError without numba or a CPU."""
    if obstacle := missing("numba", q.device.type):
        raise BackendError(f"attention numba {obstacle}; use sdpa")
    from pezoo.kernels.attention.numba import attend

    return attend(q, k, v, bias, mask, scale)
