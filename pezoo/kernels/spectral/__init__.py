"""The characteristic function of a cursor's position over time, by any back end."""

from collections.abc import Callable
from importlib import import_module

import torch
from torch import Tensor

from pezoo.functional import full_precision, spread
from pezoo.kernels.backends import choose

Copied = tuple[Tensor, Tensor]  # none (B, T, n) and copied (B, T, n, 2F)


def spectral_scan(
    reset: Tensor,
    moves: Tensor,
    angles: Tensor,
    state: Tensor | None = None,
    *,
    copy: Copied | None = None,
    every: int = 1,
    backend: str = "auto",
) -> Tensor:
    """Return the characteristic functions after every token, (B, T, C, 2F): F cosines, F sines.

    reset (B, T, C) is Pr(reset), moves (B, T, C, J) the probabilities of the steps s_j, and angles
    (J, F) the products s_j w_m: the steps may be any real numbers, learned ones too. state
    (B, C, 2F) is the row before the first token; None starts at offset 0. copy is Pr(no copy)
    (B, T, n) and what is copied, sum_k source_t(k) e^{iw(k+1)}, as rows (B, T, n, 2F), for the n
    cursors that copy: numbers 0, every, 2 every, ...

    backend: "reference" is the plain loop, "numba" is compiled for a CPU, and "parallel" is a
    parallel scan over time for devices with many cores; "auto" is what `pezoo.kernels.backends`
    chooses. Only "reference" has second derivatives.

    >>> reset, moves = torch.zeros(1, 1, 1), torch.tensor([[[[0.7, 0.1, 0.2]]]])
    >>> angles = torch.tensor([[1.0], [-1.0], [0.0]]) * torch.pi / 2
    >>> spectral_scan(reset, moves, angles)  # 0.7 i - 0.1 i + 0.2
    tensor([[[[0.2000, 0.6000]]]])

    Errors: ValueError for shapes that do not match, no token, dtypes that differ or are neither
    float32 nor float64, and for a back end that is unknown or cannot run here.

    Source: Lee 2025, "Position as Probability", Algorithms 1 and 2 at gamma = 1, with the sum over
    bins before the scan instead of after it.
    """
    _check(reset, moves, angles, state, copy, every)
    name = choose("spectral", reset, backend)
    with full_precision(reset.device.type):
        table = torch.cat([angles.cos(), angles.sin()], -1)  # (J, 2F)
        if state is None:
            state = torch.cat([torch.ones_like(angles[0]), torch.zeros_like(angles[0])])
            state = state.expand(reset.shape[0], reset.shape[2], -1)
        copied = None
        if copy is not None:
            none, copied = copy
            none = spread(none, every, reset.shape[2], 1.0)
            moves = moves * none[..., None]  # the same factor of M
        scan: Callable[..., Tensor] = import_module(f"pezoo.kernels.spectral.{name}").scan
        return scan(reset, moves, table, state, copied, every)


def _check(
    reset: Tensor,
    moves: Tensor,
    angles: Tensor,
    state: Tensor | None,
    copy: Copied | None,
    every: int,
) -> None:
    if reset.dim() != 3 or angles.dim() != 2:
        raise ValueError(
            f"reset must be (B, T, C) and angles (J, F), "
            f"were {tuple(reset.shape)} and {tuple(angles.shape)}"
        )
    (b, t, c), (j, f) = reset.shape, angles.shape
    if t < 1 or j < 1:
        raise ValueError(f"a scan needs at least one token and one step, got {t} and {j}")
    expected = {"moves": (moves, (b, t, c, j)), "angles": (angles, (j, f))}
    if state is not None:
        expected["state"] = state, (b, c, 2 * f)
    if copy is not None:
        n = min(copy[0].shape[-1], -(-c // every))
        expected |= {"none": (copy[0], (b, t, n)), "copied": (copy[1], (b, t, n, 2 * f))}
    if reset.dtype not in (torch.float32, torch.float64):
        raise ValueError(f"reset must be float32 or float64, got {reset.dtype}: convert it first")
    for name, (tensor, shape) in expected.items():
        if tensor.shape != shape:
            raise ValueError(f"{name} must be {shape}, got {tuple(tensor.shape)}")
        if tensor.dtype != reset.dtype:
            raise ValueError(f"{name} must be {reset.dtype} as reset is, got {tensor.dtype}")
