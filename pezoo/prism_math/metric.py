"""Distances from increments: Equations 1 and 2, and which axioms of a metric they keep."""

from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import pad

from pezoo.prism_math.origin import relative_coordinate, same_origin


def learned_distance(increments: Tensor) -> Tensor:
    """|r_l - r_k| between all tokens, from increments (..., T-1) -> (..., T, T) (Equation 1).

    r_t is the running sum of |increment|, the line integral of the jump rate, so that distances are
    symmetric, zero from a token to itself and obey the triangle inequality. Beyond that, Section
    4.2.1 claims that distinct tokens are apart. This holds if no increment is 0: a cursor that
    stays puts two tokens at distance 0 (a pseudometric).

    Deviation: Equation 1 integrates v itself, which is negative where the cursor steps back; |v| is
    what makes it a distance.

    Example: forward, stay, back

        >>> learned_distance(torch.tensor([1.0, 0.0, -1.0]))
        tensor([[0., 1., 1., 2.],
                [1., 0., 0., 1.],
                [1., 0., 0., 1.],
                [2., 1., 1., 0.]])
    """
    r = pad(increments.abs().cumsum(-1), (1, 0))
    return (r[..., :, None] - r[..., None, :]).abs()


def signed_displacement(increments: Tensor, reset: Tensor | None = None) -> Tensor:
    """d(k, l) = r_l - r_k, the increments summed from k to l: (..., T-1) -> (..., T, T) (Eq. 2).

    k is the row. Antisymmetric, and d(k, l) = d(k, m) + d(m, l). Its absolute value is a
    pseudometric: forward and back ends at 0. With resets 0/1 (..., T), r is the coordinate from
    the last reset (`relative_coordinate`), and tokens with different origins have no displacement:
    nan, since Equation 2 is meaningful only for tau(k) = tau(l).

    Example: three steps forward, and a reset at token 2

        >>> signed_displacement(torch.ones(3), torch.tensor([0, 0, 1, 0]))
        tensor([[ 0.,  1., nan, nan],
                [-1.,  0., nan, nan],
                [nan, nan,  0.,  1.],
                [nan, nan, -1.,  0.]])

    Errors: ValueError for resets other than 0 and 1, and for lengths that do not fit.
    """
    if reset is None:
        reset = increments.new_zeros(*increments.shape[:-1], increments.shape[-1] + 1)
    r = relative_coordinate(increments, reset)
    d = r[..., None, :] - r[..., :, None]
    return torch.where(same_origin(reset.to(r.dtype)) == 1, d, torch.nan)


class Axioms(NamedTuple):
    """By how much distances miss each axiom at most (...), and which tokens they cannot tell apart.

    A metric has zeros alone, a pseudometric zeros but in `together`.
    """

    negative: Tensor  # -d(k, l)
    self: Tensor  # |d(k, k)|
    symmetry: Tensor  # |d(k, l) - d(l, k)|
    triangle: Tensor  # d(k, l) - d(k, m) - d(m, l)
    together: Tensor  # the number of pairs k < l with d(k, l) = 0


def metric_axioms(d: Tensor) -> Axioms:
    """Which axioms of a metric distances (..., T, T) keep (Section 4.1): 0 is kept.

        d(k, l) >= 0,   d(k, k) = 0,   d(k, l) = d(l, k),   d(k, l) <= d(k, m) + d(m, l)

    and d(k, l) > 0 for k other than l. Rounding can leave gaps of its own size. In T^3 operations.

    Example: forward and back, as a signed displacement, its absolute value and the distance

        >>> steps = torch.tensor([1.0, -1.0])
        >>> signed = signed_displacement(steps)
        >>> [gap.item() for gap in metric_axioms(signed)]
        [1.0, 0.0, 2.0, 0.0, 1]
        >>> [gap.item() for gap in metric_axioms(signed.abs())]
        [0.0, 0.0, 0.0, 0.0, 1]
        >>> [gap.item() for gap in metric_axioms(learned_distance(steps))]
        [0.0, 0.0, 0.0, 0.0, 0]

    Errors: ValueError for anything but a square of at least one token.
    """
    if d.dim() < 2 or d.shape[-1] != d.shape[-2] or not d.shape[-1]:
        raise ValueError(f"distances must be (..., T, T), were {tuple(d.shape)}")
    over = [d[..., :, m, None] + d[..., None, m, :] for m in range(d.shape[-1])]
    triangle = torch.stack([(d - detour).amax((-2, -1)) for detour in over]).amax(0)
    return Axioms(
        d.clamp(max=0).abs().amax((-2, -1)),
        d.diagonal(dim1=-2, dim2=-1).abs().amax(-1),
        (d - d.mT).abs().amax((-2, -1)),
        triangle.clamp(min=0),
        (d == 0).triu(1).sum((-2, -1)),
    )
