"""The histogram filter of PRISM: one move, sharpening, and the scan over time.

A histogram holds Pr(offset = d) for d in -P..P, the centre bin is offset 0. The support grows by
one bin on each side with every move, so no mass ever meets an edge: Algorithm 1's clamp is never
needed. (Lee 2025, "Position as Probability", Section 5.1 and Algorithm 1.)
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


def update(h: Tensor, reset: Tensor, incr: Tensor, decr: Tensor) -> Tensor:
    """One move of every cursor: h (..., L) and gates (...) -> (..., L + 2).

    h'[d] = (1-r) (keep h[d] + incr h[d-1] + decr h[d+1]) + r (sum h) step[d], where step has
    decr, keep, incr at -1, 0, +1 (Algorithm 1, steps 2 and 3).

    >>> h = torch.tensor([1.0])
    >>> update(h, *torch.tensor([0.0, 0.7, 0.1]))
    tensor([0.1000, 0.2000, 0.7000])
    """
    reset, incr, decr = reset[..., None], incr[..., None], decr[..., None]
    keep, stay = _keep(incr, decr), 1 - reset
    wide = pad(h, (2, 2))
    moved = wide[..., 1:-1] * (stay * keep)
    moved = moved + wide[..., :-2] * (stay * incr) + wide[..., 2:] * (stay * decr)
    centre = moved.shape[-1] // 2
    step = torch.cat([decr, keep, incr], -1) * (h.sum(-1, keepdim=True) * reset)
    moved[..., centre - 1 : centre + 2] += step
    return moved


def _keep(incr: Tensor, decr: Tensor) -> Tensor:
    """1 - incr - decr; rounding may take it below zero, and sharpening has no log of that."""
    return (1 - incr - decr).clamp(min=0)


def sharpen(h: Tensor, gamma: Tensor, eps: float) -> Tensor:
    """(h + eps)^gamma, normalised over the last axis; gamma (...) broadcasts (Section 5.1, step 3).

    Computed as softmax(gamma log(h + eps)), which is the same and cannot overflow.
    """
    return torch.softmax(gamma[..., None] * torch.log(h + eps), -1)


def histogram_scan(
    gates: Gates,
    gamma: Tensor | None,
    state: Tensor | None = None,
    eps: float = 1e-8,
    backend: str = "fast",
) -> Tensor:
    """The histograms after every token: gates (B, T, C) -> (B, T, C, L).

    gamma (C,) sharpens after each move; None never sharpens. state (B, C, L0) is the histogram
    before the first token and must sum to one; None starts at offset 0. L = L0 + 2 T; before its
    last step a histogram is zero outside the bins that it can have reached. backend "reference"
    is the plain loop, "fast" the same with a handwritten backward pass.
    """
    if backend == "reference":
        return scan_reference(gates, gamma, state, eps)
    from pezoo.kernels import histogram_fast

    return histogram_fast.scan(gates, gamma, state, eps)


def scan_reference(
    gates: Gates, gamma: Tensor | None, state: Tensor | None = None, eps: float = 1e-8
) -> Tensor:
    """`histogram_scan` as a plain loop over time: the oracle."""
    b, t, c = gates.reset.shape
    h = gates.reset.new_ones(b, c, 1) if state is None else state
    support = h.shape[-1] + 2 * t
    rows = []
    for reset, incr, decr in zip(*(gate.unbind(1) for gate in gates), strict=True):
        h = update(h, reset, incr, decr)
        h = h if gamma is None else sharpen(h, gamma, eps)
        margin = (support - h.shape[-1]) // 2
        rows.append(pad(h, (margin, margin)))
    return torch.stack(rows, 1)
