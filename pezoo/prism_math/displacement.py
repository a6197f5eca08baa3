"""How far a cursor moves between two tokens: Equations 3 to 6 and where they part.

h_t is the histogram before token t moves the cursor. Between k and l lie the n = l - k tokens
k..l-1. One path has the resets R_t and increments Δ_t of these tokens, and Algorithm 1 says
z_{t+1} = (1 - R_t) z_t + Δ_t: reset first, then the move of the same token. Unrolled,

    z_l = z_k prod_{t=k}^{l-1} (1 - R_t) + D*,   D* = sum_t Δ_t prod_{u=t+1}^{l-1} (1 - R_u).

D* is the sum in Equation 5, so that Algorithm 1 and Equation 5 agree, including the product's
start at u = t+1: the increment of the token that resets counts. Three laws follow:

    path_displacement    of D*, Equation 4; Equation 3 without resets
    joint_displacement   of z_l - z_k along one path; it is D* if no reset fired, else D* - z_k
    displacement         Equation 6: of z_l - z'_k with z'_k drawn afresh from h_k

Section 5.1.1 says that Equation 6 equals Equation 4 exactly. With q = prod (1 - Pr(reset)), the
probability of no reset, it is true only in part:

    Equation 6 = joint law    if and only if z_k is certain or q = 0
    Equation 6 = Equation 4   if and only if z_k = 0 for certain, or z_k is certain and q = 1

Equation 6 is at most q away from the joint law in total variation, and between two cursors with
gates of their own, such as a query's and a key's, it is exact: given the text these are
independent. docs/findings/prism-displacement.md has the proof and numbers. All this is without
sharpening: sharpened histograms are not the marginals of any such path.
"""

import torch
from torch import Tensor
from torch.nn.functional import pad

from pezoo.prism_math._checks import check_gates, check_probability
from pezoo.prism_math.transition import transition_matrix


def displacement(h_from: Tensor, h_to: Tensor) -> Tensor:
    """Pr(D = d) between two histograms (..., L) -> (..., 2L - 1), d from -(L-1) (Equation 6).

    The cross-correlation sum_i h_from[i] h_to[i + d]: it treats the two histograms as independent.
    Both hold the same offsets.

    Example: from offset 0 or 1 at even odds to offset 1, the displacement is 0 or 1

        >>> displacement(torch.tensor([0.5, 0.5]), torch.tensor([0.0, 1.0]))
        tensor([0.0000, 0.5000, 0.5000])

    Errors: ValueError for histograms of different lengths.
    """
    size = h_from.shape[-1]
    if h_to.shape[-1] != size:
        raise ValueError(
            f"both histograms must hold the same offsets, were given {size} and {h_to.shape[-1]} "
            "bins; pad the shorter one on both sides"
        )
    wide = pad(h_to, (size - 1, size - 1))
    return torch.stack(
        [(h_from * wide[..., d : d + size]).sum(-1) for d in range(2 * size - 1)], -1
    )


def path_displacement(incr: Tensor, decr: Tensor, reset: Tensor | None = None) -> Tensor:
    """Pr(D* = d), d from -n, for the gates (..., n) of n tokens -> (..., 2n + 1) (Equation 4).

    Without `reset`, Equation 3. In n matrix products instead of 6^n paths: D* is where a cursor
    ends that starts at offset 0.

    Example: the second of two certain steps forward resets, so that only it counts

        >>> path_displacement(torch.ones(2), torch.zeros(2), torch.tensor([0.0, 1.0]))
        tensor([0., 0., 0., 1., 0.])

    Errors: ValueError for gates that are no probabilities or differ in shape.
    """
    reset = torch.zeros_like(incr) if reset is None else reset
    check_gates(reset, incr, decr)
    return _walk(incr.new_ones(*incr.shape[:-1], 1), reset, incr, decr)


def joint_displacement(
    h_from: Tensor, incr: Tensor, decr: Tensor, reset: Tensor | None = None
) -> Tensor:
    """Pr(z_l - z_k = d) along one path, for z_k from h_from (..., L) and gates (..., n).

    -> (..., 2S - 1) with S = L + 2n, d from -(S-1): the layout of `displacement` on h_l and the
    padded h_k, whose claim to be this law it checks (Section 5.1.1). Each start walks on its own.

    Example: without a reset the start does not matter, and one step forward is d = 1

        >>> law = joint_displacement(torch.tensor([0.5, 0.0, 0.5]), torch.ones(1), torch.zeros(1))
        >>> law.tolist()
        [0.0, 0.0, 0.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0]

    Errors: ValueError for gates or a histogram that are no probabilities, and for an even L.
    """
    reset = torch.zeros_like(incr) if reset is None else reset
    check_gates(reset, incr, decr)
    check_probability("h_from", h_from)
    size, n = h_from.shape[-1], incr.shape[-1]
    if size % 2 == 0:
        raise ValueError(f"h_from must hold offsets -P..P, an odd number, was given {size} bins")
    start = torch.eye(size, dtype=incr.dtype, device=incr.device).expand(*incr.shape[:-1], -1, -1)
    ends = _walk(start, *(gate[..., None, :] for gate in (reset, incr, decr)))  # (..., L, S)
    law = displacement(pad(start, (n, n)), ends)  # (..., L, 2S - 1)
    return (h_from[..., None] * law).sum(-2)


def _walk(h: Tensor, reset: Tensor, incr: Tensor, decr: Tensor) -> Tensor:
    """h (..., L) moved by gates (..., n), one token after the other -> (..., L + 2n)."""
    for gates in zip(reset.unbind(-1), incr.unbind(-1), decr.unbind(-1), strict=True):
        matrix = transition_matrix(*gates, (h.shape[-1] - 1) // 2)
        h = (h[..., None, :] @ matrix)[..., 0, :]
    return h
