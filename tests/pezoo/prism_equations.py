"""Equations of PRISM's paper as functions: oracles of the code that trains.

    learned_distance     distances from increments                  Equation 1
    transition_matrix    M_t, the matrix of one move                Section 5.1.2
    displacement         how far a cursor moves, by histograms      Equation 6
    sharpen_repeatedly   n sharpenings in a row                     Appendix A.2.1

Gates are those of one cursor. h_t is its histogram before token t moves it. Between tokens k and l
Algorithm 1 resets first and then moves, z_{t+1} = (1 - R_t) z_t + Δ_t, so that

    z_l = z_k prod_{t=k}^{l-1} (1 - R_t) + D*,   D* = sum_t Δ_t prod_{u=t+1}^{l-1} (1 - R_u)

Equations 4 and 5 are the law of D*. z_l - z_k is D* if no reset fires, and D* - z_k otherwise.
Equation 6 draws z_k afresh for the difference. It equals the law of z_l - z_k if and only if z_k is
certain or a reset is, and it is exact between a query's and a key's cursor, which are independent
given the text. docs/findings/prism-displacement.md has the proof.
"""

import torch
from torch import Tensor
from torch.nn.functional import pad


def learned_distance(increments: Tensor) -> Tensor:
    """Return |r_l - r_k| between all tokens: increments (..., T-1) -> (..., T, T) (Equation 1).

    r_t is the running sum of |increment|. This is a pseudometric: tokens between which the cursor
    stays are at distance 0, against Section 4.2.1.

    Deviation: Equation 1 integrates v itself, which is negative where the cursor steps back; |v|
    makes it a distance.
    """
    r = pad(increments.abs().cumsum(-1), (1, 0))
    return (r[..., :, None] - r[..., None, :]).abs()


def transition_matrix(reset: Tensor, incr: Tensor, decr: Tensor, reach: int) -> Tensor:
    """Return the row-stochastic M_t with h_{t+1} = h_t M_t (Section 5.1.2).

        M[i, j] = (1 - reset) step(j - i) + reset step(j),   step(-1, 0, 1) = decr, keep, incr

    Rows are the offsets -reach..reach before the move, columns -(reach+1)..reach+1 after it. A
    reset goes to offset 0 and then steps. Gates (...) -> (..., 2 reach + 1, 2 reach + 3).

    Deviation: Section 5.1 drops steps beyond the first and last offset, with which M_t is not
    row-stochastic; here the support grows.
    """
    step = torch.stack([decr, 1 - incr - decr, incr], -1)  # (..., 3)
    size = 2 * reach + 1
    moved = torch.stack([pad(torch.eye(size), (s, 2 - s)) for s in range(3)]).to(step)
    stay = torch.einsum("...s,sij->...ij", step, moved)
    jump = pad(step, (reach, reach))[..., None, :]
    return (1 - reset)[..., None, None] * stay + reset[..., None, None] * jump


def displacement(h_from: Tensor, h_to: Tensor) -> Tensor:
    """Return Pr(D = d) between two histograms, (..., L) -> (..., 2L - 1) (Equation 6).

    d runs from -(L-1). The cross-correlation sum_i h_from[i] h_to[i + d] treats the histograms as
    independent. Both hold the same offsets.
    """
    size = h_from.shape[-1]
    windows = pad(h_to, (size - 1, size - 1)).unfold(-1, size, 1)  # (..., 2L - 1, L)
    return (h_from[..., None, :] * windows).sum(-1)


def sharpen_repeatedly(h: Tensor, gamma: Tensor, times: int) -> Tensor:
    """Return p_n(i) = p_0(i)^(gamma^n) / sum_j p_0(j)^(gamma^n): (..., L), gamma (...) -> (..., L).

    Equal to `times` calls of `pezoo.kernels.histogram.sharpen` at eps = 0 (Appendix A.2.1). With
    eps > 0 no bin falls below (eps / (1 + eps))^gamma of the largest.
    """
    return torch.softmax(gamma[..., None] ** times * torch.log(h), -1)
