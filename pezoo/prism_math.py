"""What PRISM's paper says about its histograms, as functions: for tests, plots and readers.

Nothing here runs in training. Gates are those of `pezoo.kernels.histogram.Gates` for one cursor.
"""

import torch
from torch import Tensor


def transition_matrix(reset: Tensor, incr: Tensor, decr: Tensor, reach: int) -> Tensor:
    """The row-stochastic M_t with h_{t+1} = h_t M_t (Section 5.1.2).

    Gates (...) -> (..., L, L + 2) with L = 2 reach + 1: rows are offsets -reach..reach before the
    move, columns offsets -(reach+1)..reach+1 after it, so that no row needs clamping.
    """
    size = 2 * reach + 1
    step = torch.stack([decr, 1 - incr - decr, incr], -1)  # (..., 3)
    matrix = step.new_zeros(*step.shape[:-1], size, size + 2)
    for row in range(size):
        matrix[..., row, row : row + 3] += (1 - reset)[..., None] * step
        matrix[..., row, reach : reach + 3] += reset[..., None] * step
    return matrix


def displacement(h_from: Tensor, h_to: Tensor) -> Tensor:
    """Pr(D = d) between two histograms (..., L) -> (..., 2L - 1), d from -(L-1) (Equation 6).

    The cross-correlation sum_i h_from[i] h_to[i + d]: it treats the two histograms as independent.
    """
    size = h_from.shape[-1]
    wide = torch.nn.functional.pad(h_to, (size - 1, size - 1))
    return torch.stack(
        [(h_from * wide[..., d : d + size]).sum(-1) for d in range(2 * size - 1)], -1
    )


def learned_distance(increments: Tensor) -> Tensor:
    """|r_l - r_k| between all tokens, from increments (..., T-1) -> (..., T, T) (Equation 1).

    r_t is the running sum of |increment|, the line integral of the jump rate, so that distances are
    symmetric, zero from a token to itself and obey the triangle inequality.
    """
    r = torch.nn.functional.pad(increments.abs().cumsum(-1), (1, 0))
    return (r[..., :, None] - r[..., None, :]).abs()
