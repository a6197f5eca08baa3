"""The spectral scan with a handwritten backward pass, in plain torch.

Sequential in time: what one step needs stays in the cache, and of the large arrays only the output
and its gradient pass through memory. A complex number is two planes, the real parts (R, F) and the
imaginary parts, R = B C, so that every product runs over contiguous numbers.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from pezoo.kernels.members import Kernel


def scan(
    reset: Tensor, moves: Tensor, table: Tensor, state: Tensor, copied: Tensor | None
) -> Tensor:
    """The same as `scan_reference`, without a second derivative; moves carries Pr(no copy)."""
    phi: Tensor = _Scan.apply(reset, moves, table, state, copied)
    return phi


class _Scan(Kernel):
    @staticmethod
    def forward(
        ctx: Any, reset: Tensor, moves: Tensor, table: Tensor, state: Tensor, copied: Tensor | None
    ) -> Tensor:
        out = reset.new_empty(*reset.shape, table.shape[1])
        rows = _planes(out).unbind()
        more = None if copied is None else _planes(copied).unbind()
        phi = _planes(state[:, None])[0].flatten(1, 2).contiguous()  # (2, R, F)
        waves = _waves(table)
        for t, (r, stay, p) in enumerate(_gates(reset, moves)):
            phi = _times(torch.bmm(p, waves), _mix(phi, r, stay), 1)
            now = phi.view(rows[t].shape)
            if more is not None:
                now += more[t]
            rows[t].copy_(now)
        ctx.save_for_backward(reset, moves, table, state, out)
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        reset, moves, table, state, out = ctx.saved_tensors
        d_reset, d_moves = torch.empty_like(reset), torch.empty_like(moves)
        d_state, waves = torch.empty_like(state), _waves(table)
        d_waves = torch.zeros_like(waves)
        d_copied = torch.empty_like(out) if ctx.needs_input_grad[4] else None
        start, grads = _planes(state[:, None])[0], _planes(grad).unbind()
        lasts = [start, *_planes(out).unbind()]
        g = start.new_zeros(start.shape).flatten(1, 2)
        for t, (r, stay, p) in reversed([*enumerate(_gates(reset, moves))]):
            g.view(start.shape).add_(grads[t])
            if d_copied is not None:
                _planes(d_copied)[t].copy_(g.view(start.shape))
            last = lasts[t].flatten(1, 2)
            d_m = _times(_mix(last, r, stay), g, -1)
            d_u = _times(torch.bmm(p, waves), g, -1)
            lost = (d_u[0] - (d_u * last).sum(0)).sum(-1)
            d_reset[:, t] = lost.view(reset[:, t].shape)
            d_moves[:, t] = torch.bmm(d_m, waves.mT).sum(0).view(moves[:, t].shape)
            if ctx.needs_input_grad[2]:
                d_waves.baddbmm_(p.mT, d_m)
            g = d_u.mul_(stay)
        _planes(d_state[:, None])[0].copy_(g.view(start.shape))
        return d_reset, d_moves, torch.cat([*d_waves], 1), d_state, d_copied


def _gates(reset: Tensor, moves: Tensor) -> Iterable[tuple[Tensor, Tensor, Tensor]]:
    """r (R, 1), 1 - r, and for both planes the moves (2, R, J), token by token."""
    r = reset.transpose(0, 1).flatten(1)[..., None]
    p = moves.transpose(0, 1).flatten(1, 2)[:, None].expand(-1, 2, -1, -1)
    return zip(r.unbind(), (1 - r).unbind(), p.unbind(), strict=True)


def _waves(table: Tensor) -> Tensor:
    """(J, 2F) -> (2, J, F)."""
    return torch.stack(table.chunk(2, -1))


def _planes(rows: Tensor) -> Tensor:
    """(B, T, C, 2F) seen as (T, 2, B, C, F)."""
    return rows.view(*rows.shape[:-1], 2, -1).permute(1, 3, 0, 2, 4)


def _mix(phi: Tensor, r: Tensor, stay: Tensor) -> Tensor:
    """u = (1-r) phi + r."""
    u = phi * stay
    u[0] += r
    return u


def _times(a: Tensor, b: Tensor, sign: int) -> Tensor:
    """Planes (2, R, F) of a b for sign 1 and of conj(a) b for sign -1."""
    (a_re, a_im), (b_re, b_im) = a.unbind(), b.unbind()
    product = a_re * b
    re, im = product.unbind()
    re.addcmul_(a_im, b_im, value=-sign)
    im.addcmul_(a_im, b_re, value=sign)
    return product
