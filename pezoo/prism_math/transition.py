"""The matrix of one move."""

import torch
from torch import Tensor

from pezoo.prism_math._checks import check_gates
from pezoo.spec import choice

SUPPORTS = ("symmetric", "one_sided")
EDGES = ("grow", "clamp", "drop")


def transition_matrix(
    reset: Tensor,
    incr: Tensor,
    decr: Tensor,
    reach: int,
    *,
    support: str = "symmetric",
    edge: str = "grow",
) -> Tensor:
    """The row-stochastic M_t with h_{t+1} = h_t M_t (Section 5.1.2).

        M[i, j] = (1 - reset) step(j - i) + reset step(j), step(-1, 0, 1) = decr, keep, incr

    for offsets i before and j after the move: a reset goes to offset 0 and then steps. Gates (...)
    -> (..., rows, columns). `support` names the offsets, `edge` what a step beyond them does:

        support    edge   rows             columns
        symmetric  grow   -reach..reach    -(reach+1)..reach+1   the default, as in `update`
        symmetric  clamp  -reach..reach    the same              Algorithm 1: stays at the edge
        one_sided  grow   0..reach         0..reach+1            a step below 0 stays at 0
        one_sided  clamp  0..reach         the same
        one_sided  drop   0..reach         the same              Section 5.1 as printed

    With "drop" a step out of range without a reset is lost, since Section 5.1 sets h[-1] = h[P] =
    0: row 0 sums to 1 - (1 - reset) decr and the last row to 1 - (1 - reset) incr, so M is then
    not row-stochastic, against Section 5.1.2. A decrement right after a reset stays at 0 (Section
    5.1, reset branch). All other rows sum to 1.

    Example: at reset 0, incr 0.7, decr 0.1

        >>> gates = torch.tensor([0.0, 0.7, 0.1])
        >>> transition_matrix(*gates, reach=0)
        tensor([[0.1000, 0.2000, 0.7000]])
        >>> transition_matrix(*gates, reach=1, support="one_sided", edge="clamp")
        tensor([[0.3000, 0.7000],
                [0.1000, 0.9000]])

    Errors: ValueError for gates that are no probabilities, reach < 0, unknown support or edge.
    """
    check_gates(reset, incr, decr)
    if reach < 0:
        raise ValueError(f"reach must be at least 0, was given {reach}")
    moved, jumped = _routes(reach, support, edge, reset)
    step = torch.stack([decr, 1 - incr - decr, incr], -1)  # (..., 3)
    stay = torch.einsum("...s,sij->...ij", step, moved)
    jump = torch.einsum("...s,sj->...j", step, jumped)
    return (1 - reset)[..., None, None] * stay + reset[..., None, None] * jump[..., None, :]


def _routes(reach: int, support: str, edge: str, like: Tensor) -> tuple[Tensor, Tensor]:
    """0/1 tables of where steps lead: without a reset (3, rows, columns), with (3, columns)."""
    choice("support", support, SUPPORTS)
    choice("edge", edge, EDGES)
    first = -reach if support == "symmetric" else 0
    low = first - 1 if (support, edge) == ("symmetric", "grow") else first
    high = reach + 1 if edge == "grow" else reach
    moved = like.new_zeros(3, reach - first + 1, high - low + 1)
    jumped = like.new_zeros(3, high - low + 1)
    for s, step in enumerate((-1, 0, 1)):
        jumped[s, min(max(step, low), high) - low] = 1
        for row, offset in enumerate(range(first, reach + 1)):
            target = offset + step
            if edge != "drop" or low <= target <= high:
                moved[s, row, min(max(target, low), high) - low] = 1
    return moved, jumped
