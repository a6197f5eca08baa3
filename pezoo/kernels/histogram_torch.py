"""The histogram scan with a handwritten backward pass, in plain torch.

Time and bins lead, so that a shift is a slice and a gate multiplies a contiguous row; at step t
only the bins that can hold mass are touched. One-sided, a step is computed with a bin for offset
-1, which is then folded into bin 0.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from pezoo.kernels.histogram import Copy, Gates, _keep
from pezoo.kernels.members import Kernel


def scan(
    gates: Gates,
    gamma: Tensor | None,
    state: Tensor | None,
    eps: float,
    copy: Copy | None,
    one_sided: bool,
) -> Tensor:
    """The same as `scan_reference`, without a second derivative."""
    b, t, c = gates.reset.shape
    reset, incr, decr = (g.transpose(0, 1).reshape(t, 1, b * c) for g in gates)
    moves = torch.cat([decr, _keep(incr, decr), incr], 1)  # (T, 3, R)
    source = None
    if copy is not None:
        moves = moves * copy.none.transpose(0, 1).reshape(t, 1, b * c)
        source = copy.source.permute(1, 3, 0, 2).reshape(t, -1, b * c)
    start = reset.new_ones(1, b * c) if state is None else state.reshape(b * c, -1).T
    rows = None if gamma is None else gamma.repeat(b)
    h: Tensor = _Scan.apply(moves * (1 - reset), moves * reset, source, rows, start, eps, one_sided)
    return h.view(*h.shape[:2], b, c).permute(2, 0, 3, 1)


class _Scan(Kernel):
    """stay, jump (T, 3, R), source (T, S, R) or None, gamma (R) or None, start (L0, R) -> (T, L, R)

    stay and jump are the shares of mass that go by -1, 0, 1 from where they are and from offset 0.
    """

    @staticmethod
    def forward(
        ctx: Any, stay: Tensor, jump: Tensor, source: Tensor | None, gamma: Tensor | None,
        start: Tensor, eps: float, one_sided: bool,
    ) -> Tensor:  # fmt: skip
        steps, first = stay.shape[0], start.shape[0]
        h = stay.new_zeros(steps, first + (1 if one_sided else 2) * steps, stay.shape[2])
        log = None if gamma is None else torch.zeros_like(h)
        previous = start
        for t in range(steps):
            now = _live(h, t, one_sided)
            _move(previous, stay[t], jump[t], now, one_sided)
            if source is not None:
                shares = source[t, : _sources(first, t, one_sided)]
                zero = _zero(now, one_sided)
                now[zero + 1 : zero + 1 + shares.shape[0]] += shares
            if gamma is not None and log is not None:
                torch.log(now + eps, out=_live(log, t, one_sided))
                torch.softmax(_live(log, t, one_sided) * gamma, 0, out=now)
                now /= now.sum(0)  # softmax adds in order, and loses what is small
            previous = now
        ctx.save_for_backward(stay, jump, source, gamma, start, h, log)
        ctx.one_sided = one_sided
        return h

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> Any:
        stay, jump, source, gamma, start, h, log = ctx.saved_tensors
        d_stay, d_jump = torch.empty_like(stay), torch.empty_like(jump)
        d_source = None if source is None else torch.zeros_like(source)
        d_gamma = None if gamma is None else torch.zeros_like(gamma)
        carry: Tensor | None = None
        for t in reversed(range(stay.shape[0])):
            g = _live(grad, t, ctx.one_sided)
            g = g if carry is None else g + carry
            if gamma is not None and d_gamma is not None:
                now, lg = _live(h, t, ctx.one_sided), _live(log, t, ctx.one_sided)
                g = (g - (g * now).sum(0)) * now
                d_gamma += (g * lg).sum(0)
                g = g * torch.exp(-lg) * gamma
            if d_source is not None:
                zero = _zero(g, ctx.one_sided)
                live = d_source[t, : _sources(start.shape[0], t, ctx.one_sided)]
                live[:] = g[zero + 1 : zero + 1 + live.shape[0]]
            previous = _live(h, t - 1, ctx.one_sided) if t else start
            wanted = t > 0 or ctx.needs_input_grad[4]
            carry = _back(
                g, previous, stay[t], jump[t], d_stay[t], d_jump[t], ctx.one_sided, wanted
            )
        return d_stay, d_jump, d_source, d_gamma, carry, None, None


def _live(x: Tensor, t: int, one_sided: bool) -> Tensor:
    """The bins of x[t] that can hold mass after step t: a margin shrinks by one bin a step."""
    margin = x.shape[0] - 1 - t
    return x[t, 0 if one_sided else margin : x.shape[1] - margin]


def _zero(h: Tensor, one_sided: bool) -> int:
    """The bin of offset 0 in h (L, R)."""
    return 0 if one_sided else h.shape[0] // 2


def _sources(first: int, t: int, one_sided: bool) -> int:
    """How many tokens there are at step t, after a state of `first` bins."""
    return (first - 1 if one_sided else first // 2) + t + 1


def _move(h: Tensor, stay: Tensor, jump: Tensor, out: Tensor, one_sided: bool) -> None:
    """out, zero at first, from h (L, R): bin d gets from d+1, d, d-1."""
    n, zero = h.shape[0], _zero(h, one_sided)
    wide = out.new_zeros(n + 2, out.shape[1]) if one_sided else out
    for i in range(3):
        wide[i : i + n].addcmul_(h, stay[i])
    wide[zero : zero + 3].addcmul_(h.sum(0), jump)
    if one_sided:
        out.copy_(wide[1:])
        out[0] += wide[0]


def _back(
    g: Tensor, h: Tensor, stay: Tensor, jump: Tensor, d_stay: Tensor, d_jump: Tensor,
    one_sided: bool, wanted: bool,
) -> Tensor | None:  # fmt: skip
    """Through `_move`: the gradient g of out -> d_stay and d_jump, and that of h if wanted."""
    n, zero = h.shape[0], _zero(h, one_sided)
    g = torch.cat([g[:1], g]) if one_sided else g
    for i in range(3):
        torch.sum(g[i : i + n] * h, 0, out=d_stay[i])
    torch.mul(g[zero : zero + 3], h.sum(0), out=d_jump)
    if not wanted:
        return None
    d_h = g[:n] * stay[0]
    d_h.addcmul_(g[1 : n + 1], stay[1]).addcmul_(g[2:], stay[2])
    # The reset moves the whole mass, so every bin shares the gradient at the centre.
    d_h += (g[zero : zero + 3] * jump).sum(0)
    return d_h
