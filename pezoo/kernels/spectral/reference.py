"""The characteristic function of a cursor's position, token by token, as a plain loop.

A histogram h over offsets, seen through sinusoids, is its characteristic function
phi(w) = sum_d h[d] e^{iwd}. A move convolves h, so it multiplies phi; a reset mixes h with a point
at 0, so it mixes phi with 1. The update of pezoo.kernels.histogram without sharpening therefore is
one complex linear recurrence for each frequency, without bins and without an end of the support:

    phi_t(w) = none_t M_t(w) ((1 - r_t) phi_{t-1}(w) + r_t) + copied_t(w),   phi_0 = 1
    M_t(w) = sum_j p_t(j) e^{i s_j w}

F is the number of frequencies and J that of steps; a row of 2F holds the F real parts, then the F
imaginary parts.
"""

import torch
from torch import Tensor

from pezoo.functional import spread


def scan(
    reset: Tensor, moves: Tensor, table: Tensor, state: Tensor, copied: Tensor | None, every: int
) -> Tensor:
    """Compute `spectral_scan` as a plain loop over time: the oracle.

    table (J, 2F) is e^{i s_j w_m}; moves include Pr(no copy), which is a factor of M. copied
    (B, T, n, 2F) is for cursors 0, every, 2 every, ...
    """
    copied = None if copied is None else spread(copied, every, reset.shape[2], 0.0)
    phi, factors = as_complex(state), as_complex(table)
    rows = []
    for t in range(reset.shape[1]):
        stay = 1 - reset[:, t, :, None]
        multiplier = (moves[:, t, :, :, None] * factors).sum(2)  # (B, C, F)
        phi = multiplier * (stay * phi + (1 - stay))
        if copied is not None:
            phi = phi + as_complex(copied[:, t])
        rows.append(torch.cat([phi.real, phi.imag], -1))
    return torch.stack(rows, 1)


def as_complex(row: Tensor) -> Tensor:
    """Convert (..., 2F) real to (..., F) complex."""
    return torch.complex(*row.chunk(2, -1))
