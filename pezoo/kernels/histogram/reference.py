"""The histogram filter of PRISM: one move, sharpening, and the scan as a plain loop.

A histogram holds Pr(offset = d) for d in -P..P, the centre bin is offset 0. The support grows by
one bin on each side with every move, so no mass ever meets an edge: Algorithm 1's clamp is never
needed. One-sided histograms hold d in 0..P, the first bin is offset 0, and the support grows to the
right. (Lee 2025, "Position as Probability", Section 5.1 and Algorithm 1.)
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import pad


class Gates(NamedTuple):
    """Probabilities (B, T, C) of one cursor's move; keep = 1 - incr - decr.

    The reset comes before the move: a cursor that resets goes to offset 0 and then moves.
    """

    reset: Tensor
    incr: Tensor
    decr: Tensor


class Copy(NamedTuple):
    """The copy branch: a cursor takes the position of an earlier token instead of moving.

    none (B, T, C) is Pr(no copy) and source (B, T, C, S) is Pr(take the position of token j) for
    j = 0..S-1 from the start of the sequence; none + sum source = 1. Token j stands at offset
    j + 1, where a cursor stands that only counts.
    """

    none: Tensor
    source: Tensor


def update(h: Tensor, reset: Tensor, incr: Tensor, decr: Tensor, one_sided: bool = False) -> Tensor:
    """One move of every cursor: h (..., L) and gates (...) -> (..., L + 2), one-sided (..., L + 1).

    h'[d] = (1-r) (keep h[d] + incr h[d-1] + decr h[d+1]) + r (sum h) step[d], where step has
    decr, keep, incr at -1, 0, +1 (Algorithm 1, steps 2 and 3). One-sided, what would go to -1 stays
    at 0. Section 5.1's Step 1 says so after a reset; its Step 2 as printed would lose that mass,
    and its matrix would not be row-stochastic.

    >>> h = torch.tensor([1.0])
    >>> update(h, *torch.tensor([0.0, 0.7, 0.1]))
    tensor([0.1000, 0.2000, 0.7000])
    >>> update(h, *torch.tensor([0.0, 0.7, 0.1]), one_sided=True)
    tensor([0.3000, 0.7000])
    """
    reset, incr, decr = reset[..., None], incr[..., None], decr[..., None]
    keep, stay = keep_share(incr, decr), 1 - reset
    wide = pad(h, (2, 2))
    moved = wide[..., 1:-1] * (stay * keep)
    moved = moved + wide[..., :-2] * (stay * incr) + wide[..., 2:] * (stay * decr)
    centre = 1 if one_sided else moved.shape[-1] // 2
    step = torch.cat([decr, keep, incr], -1) * (h.sum(-1, keepdim=True) * reset)
    moved[..., centre - 1 : centre + 2] += step
    if one_sided:
        moved = torch.cat([moved[..., :2].sum(-1, keepdim=True), moved[..., 2:]], -1)
    return moved


def keep_share(incr: Tensor, decr: Tensor) -> Tensor:
    """1 - incr - decr; rounding may take it below zero, and sharpening has no log of that."""
    return (1 - incr - decr).clamp(min=0)


def sharpen(h: Tensor, gamma: Tensor, eps: float) -> Tensor:
    """(h + eps)^gamma, normalised over the last axis; gamma (...) broadcasts (Section 5.1, step 3).

    Computed as softmax(gamma log(h + eps)), which is the same and cannot overflow.
    """
    return torch.softmax(gamma[..., None] * torch.log(h + eps), -1)


def scan(
    gates: Gates,
    gamma: Tensor | None,
    state: Tensor | None = None,
    eps: float = 1e-8,
    copy: Copy | None = None,
    one_sided: bool = False,
) -> Tensor:
    """`histogram_scan` as a plain loop over time: the oracle."""
    b, t, c = gates.reset.shape
    h = gates.reset.new_ones(b, c, 1) if state is None else state
    seen = h.shape[-1] - 1 if one_sided else h.shape[-1] // 2
    rows = []
    for step in range(t):
        reset, incr, decr = (gate[:, step] for gate in gates)
        h = update(h, reset, incr, decr, one_sided)
        if copy is not None:
            h = h * copy.none[:, step, :, None]
            source = copy.source[:, step, :, : seen + step + 1]
            centre = 0 if one_sided else h.shape[-1] // 2
            h = h + pad(source, (centre + 1, h.shape[-1] - centre - 1 - source.shape[-1]))
        h = h if gamma is None else sharpen(h, gamma, eps)
        margin = t - 1 - step
        rows.append(pad(h, (0 if one_sided else margin, margin)))
    return torch.stack(rows, 1)
