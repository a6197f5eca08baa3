"""Logits become the probabilities of cursors' moves."""

from __future__ import annotations

import torch
from torch import Tensor

from pezoo.kernels.installed import installed
from pezoo.spec import unknown

BACKENDS = ("numba", "reference")


def probabilities(
    logits: Tensor, noise: Tensor | None, scale: float, *, backend: str = "auto"
) -> tuple[Tensor, Tensor]:
    """logits (..., 1 + J), noise like them or None -> reset (...) and moves (..., J).

    Of x = scale logits + noise, reset is the sigmoid of the first number and moves the softmax of
    the others. The noise is a constant: it gets no gradient.

    backend: "reference" is torch's operations, and "numba" one loop, for float32 and float64 on a
    CPU, without second derivatives; "auto" is numba where it can run. A loop is faster, because the
    last axis is short. Errors: ValueError for a back end that does not exist or cannot run here.

    >>> probabilities(torch.zeros(1, 3), None, 1.0)
    (tensor([0.5000]), tensor([[0.5000, 0.5000]]))
    """
    if backend not in (*BACKENDS, "auto"):
        raise ValueError(unknown("back end", backend, (*BACKENDS, "auto")))
    fits = logits.device.type == "cpu" and logits.dtype in (torch.float32, torch.float64)
    fits = fits and installed("numba")
    if backend == "numba" and not fits:
        raise ValueError(
            "back end 'numba' computes in float32 or float64 on a CPU where numba is installed, "
            f"was given {logits.dtype} on {logits.device}; take 'auto' or 'reference'"
        )
    if fits and backend != "reference":
        from pezoo.kernels.gates_numba import probabilities as fused

        return fused(logits, noise, scale)
    x = logits * scale if noise is None else logits * scale + noise.detach()
    return x[..., 0].sigmoid(), x[..., 1:].softmax(-1)
