"""Attention as the adapters compute it, seen as a kernel: its back ends side by side.

softmax(q k^T scale + bias) v over causally masked keys. A head of eight or sixteen features is too
narrow for a matrix product to pay on a CPU: there most of the time goes into moving the logits, and
a loop that keeps them in the first-level cache is faster (`pezoo perf --kernel attention`).
"""

from __future__ import annotations

from importlib import import_module

from torch import Tensor

from pezoo.kernels.installed import installed
from pezoo.spec import unknown

BACKENDS = ("numba", "reference", "sdpa")


def attention(
    q: Tensor, k: Tensor, v: Tensor, bias: Tensor | None = None, *, backend: str = "reference"
) -> Tensor:
    """Causal attention: q, k (B, H, T, K), v (B, H, T, V), bias like (B, H, T, T) -> (B, H, T, V).

    Logits are divided by sqrt(K). Errors: ValueError for an unknown back end.

    >>> import torch
    >>> attention(torch.zeros(1, 1, 2, 1), torch.ones(1, 1, 2, 1), torch.tensor([[[[2.0], [4.0]]]]))
    tensor([[[[2.],
              [3.]]]])
    """
    if backend not in BACKENDS:
        raise ValueError(unknown("back end", backend, BACKENDS))
    module = import_module(f"pezoo.adapters.{'eager' if backend == 'reference' else backend}")
    out: Tensor = module.attend(q, k, v, bias, None, q.shape[-1] ** -0.5)
    return out


def backends() -> list[str]:
    """The back ends that can run here; numba is for a CPU."""
    return [name for name in BACKENDS if name != "numba" or installed("numba")]


def cost(b: int, h: int, t: int, k: int, biased: bool = False, item: int = 4) -> tuple[int, int]:
    """(flops, bytes) of one forward and backward pass over B, H, T and K features, fused.

    Per pair of a query and a key that it sees, T (T + 1) / 2 of them: forward 2K for the logit, 2K
    for the sum and 4 for the softmax; backward 2K for the logit again, 8K for the gradients of
    weights, q, k and v, and 5. Bytes are the least that must move through memory: q, k, v and the
    output are read or written twice, their gradients once, a bias is read twice and its gradient
    written once.

    >>> cost(1, 1, 2, 8)
    (363, 768)
    """
    pairs = b * h * t * (t + 1) // 2
    moved = b * h * t * (12 * k + (3 * t if biased else 0))
    return pairs * (14 * k + 9), moved * item
