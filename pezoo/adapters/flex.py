"""FlexAttention, on CUDA.

It has no backward pass on a CPU (torch 2.13), so `attend` requires CUDA; `score_mod` itself runs
anywhere.
"""

from collections.abc import Callable
from functools import cache
from typing import Any

import torch
from torch import Tensor

from pezoo.adapters.eager import causal
from pezoo.kernels.backends import BackendError

ScoreMod = Callable[[Tensor, Tensor, Tensor, Tensor, Tensor], Tensor]


def score_mod(bias: Tensor) -> ScoreMod:
    """Return a bias (B, H, T, S) as a score_mod: score + bias[b, h, i, j]."""

    def add(score: Tensor, b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
        return score + bias[b, h, i, j]

    return add


def attend(
    q: Tensor, k: Tensor, v: Tensor, bias: Tensor | None, mask: Tensor | None, scale: float
) -> Tensor:
    """Compute the same as `eager.attend`. Errors: BackendError without CUDA."""
    if not q.is_cuda:
        raise BackendError("attention flex needs a CUDA device: use sdpa")
    t, s = q.shape[-2], k.shape[-2]
    full = causal(t, s, q.device) if mask is None else mask
    values = q.new_zeros(()) if bias is None else bias
    values = torch.where(full, values, -torch.inf).to(q.dtype)
    values = values.expand(q.shape[0], q.shape[1], t, s)
    out: Tensor = _compiled()(q, k, v, score_mod=score_mod(values), scale=scale)
    return out


@cache
def _compiled() -> Any:
    from torch.nn.attention.flex_attention import flex_attention

    return torch.compile(flex_attention, dynamic=True)
