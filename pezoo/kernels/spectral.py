"""The characteristic function of a cursor's position, token by token.

A histogram h over offsets, seen through sinusoids, is its characteristic function
phi(w) = sum_d h[d] e^{iwd}. A move convolves h, so it multiplies phi; a reset mixes h with a point
at 0, so it mixes phi with 1. The update of pezoo.kernels.histogram without sharpening therefore is
one complex linear recurrence for each frequency, without bins and without an end of the support:

    phi_t(w) = none_t M_t(w) ((1 - r_t) phi_{t-1}(w) + r_t) + copied_t(w),   phi_0 = 1
    M_t(w) = sum_j p_t(j) e^{i s_j w}

F is the number of frequencies and J that of steps; a row of 2F holds the F real parts, then the F
imaginary parts.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from importlib import import_module
from typing import Any

import torch
from torch import Tensor

from pezoo.kernels.installed import installed
from pezoo.spec import unknown

Copied = tuple[Tensor, Tensor]  # none (B, T, C) and copied (B, T, C, 2F)

BACKENDS = ("numba", "parallel", "reference", "torch")


def spectral_scan(
    reset: Tensor,
    moves: Tensor,
    angles: Tensor,
    state: Tensor | None = None,
    *,
    copy: Copied | None = None,
    backend: str = "auto",
) -> Tensor:
    """The characteristic functions after every token, (B, T, C, 2F): F cosines, then F sines.

    reset (B, T, C) is Pr(reset), moves (B, T, C, J) the probabilities of the steps s_j, and angles
    (J, F) the products s_j w_m: the steps may be any real numbers, learned ones too. state
    (B, C, 2F) is the row before the first token; None starts at offset 0. copy is Pr(no copy)
    (B, T, C) and what is copied, sum_k source_t(k) e^{iw(k+1)}, as rows (B, T, C, 2F).

    backend: "reference" is the plain loop; "torch" the same with a handwritten backward pass,
    "parallel" a parallel scan over time, and "numba" a fused loop on a CPU, if numba is installed.
    "auto" is what `chosen` says. Only "reference" has second derivatives.

    >>> reset, moves = torch.zeros(1, 1, 1), torch.tensor([[[[0.7, 0.1, 0.2]]]])
    >>> angles = torch.tensor([[1.0], [-1.0], [0.0]]) * torch.pi / 2
    >>> spectral_scan(reset, moves, angles)  # 0.7 i - 0.1 i + 0.2
    tensor([[[[0.2000, 0.6000]]]])

    Errors: ValueError for shapes that do not fit, no token, types that differ or are neither
    float32 nor float64, and what `chosen` raises. ImportError for "numba" without numba.

    Source: Lee 2025, "Position as Probability", Algorithms 1 and 2 at gamma = 1, whose sum over
    the bins is carried out before the scan instead of after it.
    """
    _check(reset, moves, angles, state, copy)
    name = chosen(reset, backend)
    with _full_precision(reset.device.type):
        table = torch.cat([angles.cos(), angles.sin()], -1)  # (J, 2F)
        if state is None:
            state = torch.cat([torch.ones_like(angles[0]), torch.zeros_like(angles[0])])
            state = state.expand(reset.shape[0], reset.shape[2], -1)
        if name == "reference":
            return scan_reference(reset, moves, table, state, copy)
        copied = None
        if copy is not None:
            none, copied = copy
            moves = moves * none[..., None]  # the same factor of M
        scan: Callable[..., Tensor] = import_module(f"pezoo.kernels.spectral_{name}").scan
        return scan(reset, moves, table, state, copied)


def scan_reference(
    reset: Tensor, moves: Tensor, table: Tensor, state: Tensor, copy: Copied | None
) -> Tensor:
    """`spectral_scan` as a plain loop over time: the oracle. table (J, 2F) is e^{i s_j w_m}."""
    phi, factors = _complex(state), _complex(table)
    rows = []
    for t in range(reset.shape[1]):
        stay = 1 - reset[:, t, :, None]
        multiplier = (moves[:, t, :, :, None] * factors).sum(2)  # (B, C, F)
        phi = multiplier * (stay * phi + (1 - stay))
        if copy is not None:
            none, copied = copy
            phi = none[:, t, :, None] * phi + _complex(copied[:, t])
        rows.append(torch.cat([phi.real, phi.imag], -1))
    return torch.stack(rows, 1)


def chosen(reset: Tensor, backend: str = "auto") -> str:
    """The back end that `spectral_scan` runs for tensors of this kind.

    "auto" is parallel on anything but a CPU; on a CPU it is numba where that can be imported, else
    torch. Errors: ValueError for an unknown name, and for numba elsewhere than on a CPU.
    """
    if backend == "auto":
        if reset.device.type != "cpu":
            return "parallel"
        return "numba" if installed("numba") else "torch"
    if backend not in BACKENDS:
        raise ValueError(unknown("back end", backend, (*BACKENDS, "auto")))
    if backend == "numba" and reset.device.type != "cpu":
        raise ValueError(f"numba runs on a CPU, was given {reset.device}: take parallel")
    return backend


def backends() -> list[str]:
    """The back ends that can run here; numba is optional."""
    return [name for name in BACKENDS if name != "numba" or installed("numba")]


def cost(b: int, t: int, c: int, f: int, j: int = 3, itemsize: int = 4) -> tuple[int, int]:
    """(flops, bytes) of one forward and backward pass over B, T, C, F and J steps, fused.

    Per token, cursor and frequency, a complex product being 6 flops: forward 4J for M, 3 for
    u = (1-r) phi + r, 6 for M u; backward 2 to add the carried gradient, 4J + 3 to have M and u
    again, 6 for each of their gradients, 4J for the moves', 5 for the reset's, 2 to carry on:
    12J + 33 together. Bytes are the least that must move through memory: the output is written
    once and read once and its gradient read once; reset and moves are read twice, their gradients
    written once. Copying, learned steps and the state are not counted.

    >>> cost(64, 22, 32, 32)
    (99483648, 36765696)
    """
    rows = b * t * c
    return rows * f * (12 * j + 33), rows * itemsize * (3 * 2 * f + 3 * (1 + j))


def _full_precision(device: str) -> AbstractContextManager[Any]:
    """Without autocast, where the device has one: its products would be rounded to bfloat16."""
    available = torch.amp.is_autocast_available(device)
    return torch.autocast(device, enabled=False) if available else nullcontext()


def _complex(row: Tensor) -> Tensor:
    """(..., 2F) real -> (..., F) complex."""
    return torch.complex(*row.chunk(2, -1))


def _check(
    reset: Tensor, moves: Tensor, angles: Tensor, state: Tensor | None, copy: Copied | None
) -> None:
    if reset.dim() != 3 or angles.dim() != 2:
        raise ValueError(
            f"reset must be (B, T, C) and angles (J, F), "
            f"were {tuple(reset.shape)} and {tuple(angles.shape)}"
        )
    (b, t, c), (j, f) = reset.shape, angles.shape
    if t < 1 or j < 1:
        raise ValueError(f"a scan needs at least one token and one step, was given {t} and {j}")
    expected = {"moves": (moves, (b, t, c, j)), "angles": (angles, (j, f))}
    if state is not None:
        expected["state"] = state, (b, c, 2 * f)
    if copy is not None:
        expected |= {"none": (copy[0], (b, t, c)), "copied": (copy[1], (b, t, c, 2 * f))}
    if reset.dtype not in (torch.float32, torch.float64):
        raise ValueError(f"reset must be float32 or float64, was {reset.dtype}: convert it first")
    for name, (tensor, shape) in expected.items():
        if tensor.shape != shape:
            raise ValueError(f"{name} must be {shape}, was {tuple(tensor.shape)}")
        if tensor.dtype != reset.dtype:
            raise ValueError(f"{name} must be {reset.dtype} as reset is, was {tensor.dtype}")
