"""The histogram filter of PRISM: one move, sharpening, and the scan as a plain loop.

A histogram holds Pr(offset = d) for d in -P..P; the centre bin is offset 0. The support grows by
the largest step on each side with every move, so that Algorithm 1's clamp is never needed.
(Lee 2025, "Position as Probability", Section 5.1 and Algorithm 1.)
"""

from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import pad


class Copy(NamedTuple):
    """The copy branch: a cursor takes the position of an earlier token instead of moving.

    none (B, T, C) is Pr(no copy) and source (B, T, C, S) is Pr(take the position of token j) for
    j = 0..S-1 from the start of the sequence; none + sum source = 1. Token j has offset j + 1, as a
    cursor that only counts.
    """

    none: Tensor
    source: Tensor


def steps_of(stride: int) -> list[int]:
    """Return the steps of a move in the order of their probabilities: +1, -1, ..., and 0 last.

    >>> steps_of(2)
    [1, -1, 2, -2, 0]
    """
    return [sign * size for size in range(1, stride + 1) for sign in (1, -1)] + [0]


def update(h: Tensor, reset: Tensor, moves: Tensor) -> Tensor:
    """Move every cursor once: h (..., L) -> (..., L + J - 1).

        h'[d] = (1 - r) sum_s p_s h[d - s] + r p_d sum h

    reset r (...) comes before the move: a cursor that resets goes to offset 0 and then moves. moves
    p (..., J) are the probabilities of the steps +1, -1 and 0 (Algorithm 1, steps 2 and 3: incr,
    decr and keep), or of more steps, in the order of `steps_of`; negative ones, from rounding,
    count as 0.

    >>> h, reset, moves = torch.tensor([1.0]), torch.tensor(0.0), torch.tensor([0.7, 0.1, 0.2])
    >>> update(h, reset, moves)
    tensor([0.1000, 0.2000, 0.7000])
    """
    reach = moves.shape[-1] // 2
    steps, moves = steps_of(reach), moves.clamp(min=0)
    stay, jump = 1 - reset, reset * h.sum(-1)
    size = h.shape[-1] + 2 * reach
    wide, moved = pad(h, (2 * reach, 2 * reach)), h.new_zeros(*h.shape[:-1], size)
    for step, share in zip(steps, moves.unbind(-1), strict=True):
        there = wide.narrow(-1, reach - step, size)
        moved = moved + there * (stay * share)[..., None]
    order = sorted(range(len(steps)), key=steps.__getitem__)
    fresh = moves[..., order] * jump[..., None]  # from step -reach to step reach
    return moved + pad(fresh, (size // 2 - reach, size // 2 - reach))


def sharpen(h: Tensor, gamma: Tensor, eps: float) -> Tensor:
    """Return (h + eps)^gamma, normalised over the last axis (Section 5.1, step 3).

    gamma (...) broadcasts. Computed as softmax(gamma log(h + eps)), which cannot overflow.
    """
    return torch.softmax(gamma[..., None] * torch.log(h + eps), -1)


def scan(
    reset: Tensor,
    moves: Tensor,
    gamma: Tensor | None,
    state: Tensor | None = None,
    eps: float = 1e-8,
    copy: Copy | None = None,
) -> Tensor:
    """Compute `histogram_scan` as a plain loop over time: the oracle."""
    b, t, c, j = moves.shape
    h = reset.new_ones(b, c, 1) if state is None else state
    seen = tokens_seen(h.shape[-1], j)
    rows = []
    for step in range(t):
        h = update(h, reset[:, step], moves[:, step])
        if copy is not None:
            h = h * copy.none[:, step, :, None]
            source = copy.source[:, step, :, : seen + step + 1]
            left = h.shape[-1] // 2 + 1
            h = h + pad(source, (left, h.shape[-1] - left - source.shape[-1]))
        h = h if gamma is None else sharpen(h, gamma, eps)
        rows.append(h)
    return torch.stack([_widen(h, rows[-1].shape[-1]) for h in rows], 1)


def _widen(h: Tensor, size: int) -> Tensor:
    """Pad the bins with zeros on both sides."""
    left = (size - h.shape[-1]) // 2
    return pad(h, (left, left))


def grown(bins: int, tokens: int, moves: int) -> int:
    """Return the number of bins after so many tokens.

    >>> grown(1, 3, 3), grown(1, 3, 5)
    (7, 13)
    """
    return bins + (moves - 1) * tokens


def tokens_seen(bins: int, moves: int) -> int:
    """Return the number of tokens that a histogram of so many bins has seen.

    >>> tokens_seen(7, 3), tokens_seen(13, 5)
    (3, 3)
    """
    return bins // (moves - 1)
