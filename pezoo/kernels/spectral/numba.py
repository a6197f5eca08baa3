"""The spectral scan compiled for a CPU: one pass over memory forward, one backward.

The innermost loops run over frequencies, which are contiguous and become vector instructions; one
row's scratch stays in the first-level cache. Backward computes the multipliers again instead of
keeping them. Runs on one thread.

Indices are spelled out and helpers inlined, because slices and calls for every row are slower.
"""

from typing import Any, cast

import numba
import numpy as np
from torch import Tensor
from torch.autograd.function import once_differentiable

from pezoo.compiling import Kernel
from pezoo.kernels.simd.compile import Function, compiled

# Sums may be reordered, so that they become vectors; infinities and NaNs stay what they are.
FAST = {"reassoc", "contract", "nsz"}


def _compile(function: Function) -> Function:
    """Compile a function on its first call, and cache it on disk."""
    return compiled(function, fastmath=FAST)


def _inline(function: Function) -> Function:
    """Compile a function into its caller."""
    return cast(Function, numba.njit(nogil=True, fastmath=FAST, inline="always")(function))


def scan(
    reset: Tensor, moves: Tensor, table: Tensor, state: Tensor, copied: Tensor | None, every: int
) -> Tensor:
    """Compute `reference.scan`, without a second derivative."""
    phi: Tensor = _Scan.apply(reset, moves, table, state, copied, every)
    return phi


class _Scan(Kernel):
    @staticmethod
    def forward(
        ctx: Any, reset: Tensor, moves: Tensor, table: Tensor, state: Tensor,
        copied: Tensor | None, every: int,
    ) -> Tensor:  # fmt: skip
        out = reset.new_empty(*reset.shape, table.shape[1])
        more = out.new_empty(0, 0, 0, 0) if copied is None else copied
        _forward(every, *_arrays(reset, moves, table, state, more, out))
        ctx.save_for_backward(reset, moves, table, state, out)
        ctx.copied = more.shape, every
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        reset, moves, table, state, out = ctx.saved_tensors
        d_reset, d_moves = reset.new_empty(reset.shape), moves.new_empty(moves.shape)
        d_state = state.new_zeros(state.shape)
        # Sums over a batch of rows, then over batches: float32 loses less than in one long sum.
        d_table = table.new_zeros(reset.shape[0] if ctx.needs_input_grad[2] else 0, *table.shape)
        copying, (shape, every) = ctx.needs_input_grad[4], ctx.copied
        d_copied = out.new_empty(shape if copying else (0, 0, 0, 0))
        given = _arrays(grad, reset, moves, table, state, out)
        _backward(every, *given, *_arrays(d_reset, d_moves, d_table, d_state, d_copied))
        return d_reset, d_moves, d_table.sum(0), d_state, d_copied if copying else None, None


def _arrays(*tensors: Tensor) -> list[np.ndarray[Any, Any]]:
    return [tensor.detach().contiguous().numpy() for tensor in tensors]


@_inline
def _multiplier(moves: Any, table: Any, b: int, t: int, c: int, m: Any) -> None:
    """m (2F) = sum_j p_j e^{i s_j w}."""
    width = m.shape[0]
    p = moves[b, t, c, 0]
    for f in range(width):
        m[f] = p * table[0, f]
    for j in range(1, moves.shape[3]):
        p = moves[b, t, c, j]
        for f in range(width):
            m[f] += p * table[j, f]


@_compile
def _forward(
    every: int, reset: Any, moves: Any, table: Any, state: Any, copied: Any, out: Any
) -> None:
    size, steps, cursors, width = out.shape
    half, one = width // 2, out.dtype.type(1)  # a plain 1 would turn float32 into float64
    u, m = np.empty(width, out.dtype), np.empty(width, out.dtype)
    for b in range(size):
        for t in range(steps):
            for c in range(cursors):
                r = reset[b, t, c]
                stay = one - r
                if t == 0:
                    for f in range(width):
                        u[f] = stay * state[b, c, f]
                else:
                    for f in range(width):
                        u[f] = stay * out[b, t - 1, c, f]
                _multiplier(moves, table, b, t, c, m)
                for f in range(half):
                    re, im = u[f] + r, u[half + f]
                    out[b, t, c, f] = m[f] * re - m[half + f] * im
                    out[b, t, c, half + f] = m[f] * im + m[half + f] * re
                n = c // every
                if c % every == 0 and n < copied.shape[2]:
                    for f in range(width):
                        out[b, t, c, f] += copied[b, t, n, f]


@_compile
def _backward(
    every: int, grad: Any, reset: Any, moves: Any, table: Any, state: Any, out: Any,
    d_reset: Any, d_moves: Any, d_table: Any, d_state: Any, d_copied: Any,
) -> None:  # fmt: skip
    size, steps, cursors, width = out.shape
    g, last = np.empty(width, out.dtype), np.empty(width, out.dtype)
    m = np.empty(width, out.dtype)
    for b in range(size):
        for t in range(steps - 1, -1, -1):
            for c in range(cursors):
                for f in range(width):
                    g[f] = grad[b, t, c, f] + d_state[b, c, f]
                n = c // every
                if c % every == 0 and n < d_copied.shape[2]:
                    for f in range(width):
                        d_copied[b, t, n, f] = g[f]
                if t == 0:
                    for f in range(width):
                        last[f] = state[b, c, f]
                else:
                    for f in range(width):
                        last[f] = out[b, t - 1, c, f]
                _multiplier(moves, table, b, t, c, m)
                d_reset[b, t, c] = _step_back(reset[b, t, c], g, last, m, d_state, b, c)
                _to_moves(m, moves, table, b, t, c, d_moves, d_table)


@_inline
def _step_back(r: Any, g: Any, last: Any, m: Any, d_state: Any, b: int, c: int) -> Any:
    """From the gradient g of M u, write M's into m, phi_{t-1}'s into d_state; return r's."""
    half = m.shape[0] // 2
    stay, d_r = m.dtype.type(1) - r, m.dtype.type(0)
    for f in range(half):
        g_re, g_im, m_re, m_im = g[f], g[half + f], m[f], m[half + f]
        re, im = last[f], last[half + f]
        u_re, u_im = stay * re + r, stay * im
        h_re, h_im = m_re * g_re + m_im * g_im, m_re * g_im - m_im * g_re  # the gradient of u
        d_r += h_re - h_re * re - h_im * im
        d_state[b, c, f], d_state[b, c, half + f] = stay * h_re, stay * h_im
        m[f], m[half + f] = u_re * g_re + u_im * g_im, u_re * g_im - u_im * g_re
    return d_r


@_inline
def _to_moves(
    d_m: Any, moves: Any, table: Any, b: int, t: int, c: int, d_moves: Any, d_table: Any
) -> None:
    """Compute the gradients of the moves and, if needed, of the table from that of M."""
    width = d_m.shape[0]
    for j in range(moves.shape[3]):
        d_p = d_m.dtype.type(0)
        for f in range(width):
            d_p += d_m[f] * table[j, f]
        d_moves[b, t, c, j] = d_p
        if d_table.size:
            p = moves[b, t, c, j]
            for f in range(width):
                d_table[b, j, f] += p * d_m[f]
