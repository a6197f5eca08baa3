"""The histogram filter with steps of more than one offset, as a plain loop."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor
from torch.nn.functional import pad

from pezoo.kernels.histogram.reference import Copy, sharpen


def strided_scan(
    reset: Tensor,
    moves: Tensor,
    gamma: Tensor | None,
    state: Tensor | None = None,
    eps: float = 1e-8,
    copy: Copy | None = None,
) -> Tensor:
    """The histograms after every token: reset (B, T, C), moves (B, T, C, J) -> (B, T, C, L).

        h <- sharpen(none sum_s Pr(step s) shift_s((1 - r) h + r [offset 0]) + source)

    moves are the chances of the steps +1, -1, +2, -2, ..., 0, J = 2 stride + 1 of them. gamma,
    state, copy and eps are those of `histogram_scan`, with the same result at stride 1. The support
    grows by `stride` bins on each side with every token: L = L0 + 2 stride T.

    >>> strided_scan(torch.zeros(1, 1, 1), torch.tensor([[[[0.1, 0.2, 0.3, 0.0, 0.4]]]]), None)
    tensor([[[[0.0000, 0.2000, 0.4000, 0.1000, 0.3000]]]])

    Source: ours, after Lee 2025, "Position as Probability", Algorithm 1, which has steps of one.
    """
    rows = list(strided_steps(reset, moves, gamma, state, eps, copy))
    size = rows[-1].shape[-1]
    return torch.stack([pad(h, ((size - h.shape[-1]) // 2,) * 2) for h in rows], 1)


def strided_steps(
    reset: Tensor,
    moves: Tensor,
    gamma: Tensor | None,
    state: Tensor | None,
    eps: float,
    copy: Copy | None,
) -> Iterator[Tensor]:
    """The same token by token: (B, C, L0 + 2 stride (i + 1)) after token i."""
    b, t, c = reset.shape
    stride = moves.shape[-1] // 2
    h = reset.new_ones(b, c, 1) if state is None else state
    seen = h.shape[-1] // 2 // stride
    for i in range(t):
        h = _moved(h, reset[:, i, :, None], moves[:, i], stride)
        if copy is not None:
            source = copy.source[:, i, :, : seen + i + 1]
            first = h.shape[-1] // 2 + 1  # token 0 stands at offset 1
            source = pad(source, (first, h.shape[-1] - first - source.shape[-1]))
            h = h * copy.none[:, i, :, None] + source
        h = h if gamma is None else sharpen(h, gamma, eps)
        yield h


def _moved(h: Tensor, reset: Tensor, moves: Tensor, stride: int) -> Tensor:
    """h (B, C, L), reset (B, C, 1), moves (B, C, J) -> (B, C, L + 2 stride)."""
    origin = pad(reset.new_ones(1), (h.shape[-1] // 2,) * 2)
    wide = pad(h * (1 - reset) + origin * reset, (2 * stride,) * 2)
    size = h.shape[-1] + 2 * stride
    moved = wide.narrow(-1, stride, size) * moves[..., -1:]  # step 0 comes last
    for s in range(1, stride + 1):
        for step, chance in ((s, 2 * s - 2), (-s, 2 * s - 1)):
            there = wide.narrow(-1, stride - step, size)
            moved = torch.addcmul(moved, there, moves[..., chance, None])
    return moved
