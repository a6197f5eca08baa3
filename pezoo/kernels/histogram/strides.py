"""The histogram filter with steps of more than one offset, as a plain loop."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import pad

from pezoo.kernels.histogram.reference import Copy, sharpen
from pezoo.vmap import Kernel


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

    Errors: ValueError without a token.

    Source: ours, after Lee 2025, "Position as Probability", Algorithm 1, which has steps of one.
    """
    if not reset.shape[1]:
        shape = tuple(reset.shape)
        raise ValueError(f"reset must be (B, T, C) with at least one token, was {shape}")
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
    stay = 1 - reset
    if copy is not None:
        reset, stay = reset * copy.none, stay * copy.none
    kept, fresh = moves * stay[..., None], moves * reset[..., None]  # (B, T, C, J)
    sources = [None] * t if copy is None else copy.source.unbind(1)
    for i, (k, f, source) in enumerate(zip(kept.unbind(1), fresh.unbind(1), sources, strict=True)):
        h = _Move.apply(h, k, f, None if source is None else source[..., : seen + i + 1])
        h = h if gamma is None else sharpen(h, gamma, eps)
        yield h


class _Move(Kernel):
    """One move without sharpening: h (B, C, L) -> (B, C, L + 2 stride).

        sum_j kept[j] h shifted by step j + fresh (B, C, J) at the steps + source from offset 1

    Written out because autograd pads, copies and adds a tensor for every shift.
    """

    @staticmethod
    def forward(ctx: Any, h: Tensor, kept: Tensor, fresh: Tensor, source: Tensor | None) -> Tensor:
        ctx.save_for_backward(h, kept)
        ctx.tokens = None if source is None else source.shape[-1]
        size = h.shape[-1]
        moved = h.new_zeros(*h.shape[:-1], size + kept.shape[-1] - 1)
        for j, shift in _shifts(kept):
            moved.narrow(-1, shift, size).addcmul_(h, kept[..., j, None])
            moved.select(-1, size // 2 + shift).add_(fresh[..., j])
        if source is not None:
            _from_one(moved, source.shape[-1]).add_(source)
        return moved

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        h, kept = ctx.saved_tensors
        size = h.shape[-1]
        to_h = torch.zeros_like(h)
        to_kept, to_fresh = torch.empty_like(kept), torch.empty_like(kept)
        for j, shift in _shifts(kept):
            g = grad.narrow(-1, shift, size)
            to_h.addcmul_(g, kept[..., j, None])
            to_kept[..., j] = (h * g).sum(-1)
            to_fresh[..., j] = grad.select(-1, size // 2 + shift)
        to_source = None if ctx.tokens is None else _from_one(grad, ctx.tokens)
        return to_h, to_kept, to_fresh, to_source


def steps_of(stride: int) -> list[int]:
    """The steps that a move can take, in the order of their gates: +1, -1, ..., and 0 last.

    >>> steps_of(2)
    [1, -1, 2, -2, 0]
    """
    return [sign * size for size in range(1, stride + 1) for sign in (1, -1)] + [0]


def _shifts(kept: Tensor) -> Iterator[tuple[int, int]]:
    """(j, stride + step j)."""
    stride = kept.shape[-1] // 2
    for j, step in enumerate(steps_of(stride)):
        yield j, stride + step


def _from_one(h: Tensor, tokens: int) -> Tensor:
    """The bins of offsets 1, 2, ..., where the tokens stand."""
    return h.narrow(-1, h.shape[-1] // 2 + 1, tokens)
