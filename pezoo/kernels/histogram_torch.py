"""The histogram scan with a handwritten backward pass, in plain torch.

Time and bins lead, so that a shift is a slice and a gate multiplies a contiguous row; at step t
only the bins that can hold mass are touched. Values and gradients equal `scan_reference`.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from pezoo.kernels.histogram import Copy, Gates, _keep, scan_reference


def scan(
    gates: Gates,
    gamma: Tensor | None,
    state: Tensor | None,
    eps: float,
    copy: Copy | None,
    one_sided: bool,
) -> Tensor:
    """As `scan_reference`, without a second derivative; copies and one side take its loop."""
    if copy is not None or one_sided:
        return scan_reference(gates, gamma, state, eps, copy, one_sided)
    b, _, c = gates.reset.shape
    reset, incr, decr = (g.transpose(0, 1).reshape(-1, b * c) for g in gates)  # (T, R)
    keep = _keep(incr, decr)
    moves = torch.stack([decr, keep, incr], 1)  # (T, 3, R)
    start = reset.new_ones(1, b * c) if state is None else state.reshape(b * c, -1).T
    rows = None if gamma is None else gamma.repeat(b)
    h: Tensor = _Scan.apply(  # type: ignore[no-untyped-call]
        reset, moves, rows, start, eps
    )
    return h.view(*h.shape[:2], b, c).permute(2, 0, 3, 1)


class _Scan(torch.autograd.Function):
    """reset (T, R), moves (T, 3, R), gamma (R) or None, start (L0, R) -> (T, L, R)."""

    @staticmethod
    def forward(
        ctx: Any, reset: Tensor, moves: Tensor, gamma: Tensor | None, start: Tensor, eps: float
    ) -> Tensor:
        steps, first = reset.shape[0], start.shape[0]
        size = first + 2 * steps
        h = reset.new_zeros(steps, size, reset.shape[1])
        log = None if gamma is None else torch.zeros_like(h)
        stay, jump = moves * (1 - reset)[:, None], moves * reset[:, None]
        previous = start
        for t in range(steps):
            now = _live(h, t)
            _move(previous, stay[t], jump[t], now)
            if gamma is not None and log is not None:
                torch.log(now + eps, out=_live(log, t))
                torch.softmax(_live(log, t) * gamma, 0, out=now)
            previous = now
        ctx.save_for_backward(reset, moves, gamma, start, h, log)
        return h

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        reset, moves, gamma, start, h, log = ctx.saved_tensors
        stay = moves * (1 - reset)[:, None]
        d_stay, d_jump = torch.empty_like(moves), torch.empty_like(moves)
        d_gamma: Tensor | None = None
        carry: Tensor | None = None
        for t in reversed(range(reset.shape[0])):
            g = _live(grad, t)
            g = g if carry is None else g + carry
            if gamma is not None:
                now, lg = _live(h, t), _live(log, t)
                g = (g - (g * now).sum(0)) * now
                d_gamma = (g * lg).sum(0) if d_gamma is None else d_gamma + (g * lg).sum(0)
                g = g * torch.exp(-lg) * gamma
            previous = _live(h, t - 1) if t else start
            n, centre = previous.shape[0], previous.shape[0] // 2
            for i in range(3):
                torch.sum(g[i : i + n] * previous, 0, out=d_stay[t, i])
            d_jump[t] = g[centre : centre + 3]
            if t or ctx.needs_input_grad[3]:
                carry = g[:n] * stay[t, 0]
                carry.addcmul_(g[1 : n + 1], stay[t, 1]).addcmul_(g[2:], stay[t, 2])
                # The reset moves the whole mass, so every bin shares the gradient at the centre.
                jump = moves[t] * reset[t]
                carry += (g[centre : centre + 3] * jump).sum(0)
        d_reset = ((d_jump - d_stay) * moves).sum(1)
        d_moves = d_stay * (1 - reset)[:, None] + d_jump * reset[:, None]
        return d_reset, d_moves, d_gamma, carry if ctx.needs_input_grad[3] else None, None


def _live(x: Tensor, t: int) -> Tensor:
    """The bins of x[t] that can hold mass after step t: a margin shrinks by one bin a step."""
    margin = x.shape[0] - 1 - t
    return x[t, margin : x.shape[1] - margin]


def _move(h: Tensor, stay: Tensor, jump: Tensor, out: Tensor) -> None:
    """out (L + 2, R), zero at first, from h (L, R): bin d gets from d+1, d, d-1."""
    n, centre = h.shape[0], h.shape[0] // 2
    for i in range(3):
        out[i : i + n].addcmul_(h, stay[i])
    out[centre : centre + 3].addcmul_(h.sum(0), jump)
