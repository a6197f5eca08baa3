"""The recurrence of a GRU: what is left once the inputs' products are computed, with noise."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import linear

from pezoo.kernels.installed import installed
from pezoo.spec import unknown

BACKENDS = ("numba", "reference")
UNITS = 8  # numba takes them eight at a time


def gru_recurrence(
    given: Tensor,
    weight: Tensor,
    bias: Tensor,
    state: Tensor,
    noise: Tensor | None = None,
    *,
    backend: str = "auto",
) -> Tensor:
    """The states h (B, T, H) of a GRU after every step, with noise inside the recurrence.

        r, z = sigmoid(g_r + W_r h + b_r), sigmoid(g_z + W_z h + b_z)
        n    = tanh(g_n + r (W_n h + b_n))
        h'   = (1 - z) n + z h + noise

    given (B, T, 3H) holds g_r, g_z and g_n, what the inputs add; weight (3H, H) and bias (3H) are
    torch.nn.GRU's, in the same order; state (B, H) is h before the first step. The noise (B, T, H)
    is a constant: it gets no gradient.

    backend: "reference" is the plain loop, and "numba" is compiled, for a CPU, float32 or float64
    and H >= 8, without second derivatives; "auto" is what `chosen` says. Errors: ValueError for
    a back end that does not exist or cannot run here.

    >>> zero = torch.zeros(3, 1)
    >>> gru_recurrence(torch.zeros(1, 2, 3), zero, zero[:, 0], torch.ones(1, 1))
    tensor([[[0.5000],
             [0.2500]]])
    """
    if chosen(weight, backend) == "reference":
        return recurrence_reference(given, weight, bias, state, noise)
    from pezoo.kernels.gru_numba import recurrence

    return recurrence(given, weight, bias, state, noise)


def recurrence_reference(
    given: Tensor, weight: Tensor, bias: Tensor, state: Tensor, noise: Tensor | None = None
) -> Tensor:
    """`gru_recurrence` as a plain loop: the oracle."""
    rows = []
    for t, (g_r, g_z, g_n) in enumerate(
        zip(*(part.unbind(1) for part in given.chunk(3, -1)), strict=True)
    ):
        h_r, h_z, h_n = linear(state, weight, bias).chunk(3, -1)
        n = torch.addcmul(g_n, (g_r + h_r).sigmoid(), h_n).tanh()
        state = torch.lerp(n, state, (g_z + h_z).sigmoid())
        state = state if noise is None else state + noise[:, t].detach()
        rows.append(state)
    return torch.stack(rows, 1)


def chosen(weight: Tensor, backend: str = "auto") -> str:
    """The back end that runs for a weight (3H, H): numba where it can be, else reference.

    Errors: ValueError for an unknown name, and for numba where it cannot run.
    """
    if backend not in (*BACKENDS, "auto"):
        raise ValueError(unknown("back end", backend, (*BACKENDS, "auto")))
    if backend == "reference":
        return backend
    obstacle = _obstacle(weight)
    if obstacle and backend == "numba":
        raise ValueError(f"back end 'numba' {obstacle}; take 'auto' or 'reference'")
    return "reference" if obstacle else "numba"


def _obstacle(weight: Tensor) -> str:
    """Why numba cannot run; empty if it can."""
    if weight.device.type != "cpu":
        return f"runs on a CPU, was given {weight.device}"
    if weight.dtype not in (torch.float32, torch.float64):
        return f"computes in float32 or float64, was given {weight.dtype}"
    if weight.shape[-1] < UNITS:
        return f"needs at least {UNITS} units, was given {weight.shape[-1]}"
    return "" if installed("numba") else "cannot be imported: pip install numba"
