"""The histogram scan in Triton, for a GPU: one program computes one cursor of one sample.

A program holds a histogram in registers and reads its neighbours' bins where it wrote them, in the
output of the step before; a barrier between the two keeps its threads together. Sharpening is
computed again in the backward pass, so that only the output is kept.
"""

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor
from torch.autograd.function import once_differentiable

from pezoo.compiling import Kernel
from pezoo.kernels.histogram.reference import grown


class Scan(Kernel):
    """The results of `shares`, eps, 1 -> h (B, T, C, L)."""

    @staticmethod
    def forward(ctx: Any, *args: Any) -> Tensor:
        *inputs, eps, _ = args  # all cursors copy, or none
        # eps as a tensor: a number would be passed as float32
        inputs = [*(x.contiguous() for x in inputs), inputs[0].new_full((1,), eps)]
        start, kept, _, source, gamma, _ = inputs
        b, t, c, j = kept.shape
        first = start.shape[-1]
        last = grown(first, t, j)
        h: Tensor = kept.new_empty(b, t, c, last)
        sizes = t, c, source.shape[-1], first, last, j, gamma.numel() > 0
        _forward[b * c,](*inputs, h, *sizes, triton.next_power_of_2(last))
        ctx.save_for_backward(*inputs, h)
        ctx.sizes = sizes
        return h

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> Any:
        *inputs, h = ctx.saved_tensors
        last = h.shape[-1]
        grads = [torch.zeros_like(x) for x in inputs[:-1]]
        wide = h.new_empty(h.shape[0], h.shape[2], last)
        block = triton.next_power_of_2(last)
        rows = h.shape[0] * h.shape[2]
        _backward[rows,](*inputs, h, grad.contiguous(), wide, *grads, *ctx.sizes, block)
        return *grads, None, None


def _compile(function: Any) -> Any:
    """Compile a kernel when it is launched, for each choice of types and constants."""
    compiled: Any = triton.jit(function)
    return compiled


@_compile
def _span(t, steps, last, moves: tl.constexpr):  # type: ignore[no-untyped-def]
    """Return the first bin that can hold mass after t steps, and the one after the last."""
    margin = moves // 2 * (steps - t)
    return margin, last - margin


@_compile
def _origin(steps, first, moves: tl.constexpr):  # type: ignore[no-untyped-def]
    """Return the bin of offset 0, and the number of tokens before the first."""
    return first // 2 + moves // 2 * steps, first // (moves - 1)


@_compile
def _step(j: tl.constexpr, moves: tl.constexpr):  # type: ignore[no-untyped-def]
    """Return the step of move j: +1, -1, +2, -2, ..., 0."""
    return 0 if j == moves - 1 else (j // 2 + 1) * (1 - 2 * (j % 2))


@_compile
def _move(  # type: ignore[no-untyped-def]
    d, before, low, high, kept, fresh, source, sources, zero, seen,
    moves: tl.constexpr,
):  # fmt: skip
    """Move and copy: return bins d of the new and the old histogram, and the old one's mass.

    `before` points at the old histogram, whose bins low..high-1 can hold mass.
    """
    here = tl.load(before + d, mask=(d >= low) & (d < high), other=0.0)
    mass = tl.sum(here, 0)
    new = tl.zeros_like(here)
    for j in tl.static_range(moves):
        step = _step(j, moves)
        start, share = d - step, tl.load(kept + j)
        there = tl.load(before + start, mask=(start >= low) & (start < high), other=0.0)
        new += share * there + tl.where(d == zero + step, tl.load(fresh + j), 0.0) * mass
    token = d - zero - 1
    count = tl.minimum(sources, seen)
    new += tl.load(source + token, mask=(token >= 0) & (token < count), other=0.0)
    return new, here, mass


@_compile
def _forward(  # type: ignore[no-untyped-def]
    start, kept, fresh, source, gamma, eps, out, steps, cursors, sources, first, last,
    moves: tl.constexpr, sharp: tl.constexpr, block: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0).to(tl.int64)
    d = tl.arange(0, block)
    zero, seen = _origin(steps, first, moves)
    at = row // cursors * steps * cursors + row % cursors
    low, high = _span(0, steps, last, moves)
    before = start + row * first - low
    for t in range(steps):
        new, _, _ = _move(
            d, before, low, high, kept + at * moves, fresh + at * moves, source + at * sources,
            sources, zero, seen + t + 1, moves,
        )  # fmt: skip
        low, high = _span(t + 1, steps, last, moves)
        live = (d >= low) & (d < high)
        if sharp:
            power = tl.where(live, tl.load(gamma + row) * tl.log(new + tl.load(eps)), -float("inf"))
            power = tl.exp(power - tl.max(power, 0))
            new = power / tl.sum(power, 0)
        before = out + at * last
        tl.store(before + d, tl.where(live, new, 0.0), mask=d < last)
        tl.debug_barrier()  # the next step reads what other threads wrote
        at += cursors


@_compile
def _unmove(  # type: ignore[no-untyped-def]
    d, g, here, mass, wide, kept, fresh, d_kept, d_fresh, zero, last,
    moves: tl.constexpr,
):  # fmt: skip
    """Compute the gradients of the old histogram's bins d, and of the move's shares.

    g is that of the new bins, before sharpening. `wide` is where threads see each other's.
    """
    tl.store(wide + d, g, mask=d < last)
    tl.debug_barrier()
    carry = tl.zeros_like(g)
    for j in tl.static_range(moves):
        end = d + _step(j, moves)
        there = tl.load(wide + end, mask=(end >= 0) & (end < last), other=0.0)
        tl.store(d_kept + j, tl.sum(there * here, 0))
        got = tl.sum(tl.where(d == zero, there, 0.0), 0)
        tl.store(d_fresh + j, got * mass)
        carry += tl.load(kept + j) * there + tl.load(fresh + j) * got
    tl.debug_barrier()  # before the next step writes to `wide`
    return carry


@_compile
def _backward(  # type: ignore[no-untyped-def]
    start, kept, fresh, source, gamma, eps, out, grad, wide,
    d_start, d_kept, d_fresh, d_source, d_gamma, steps, cursors, sources, first, last,
    moves: tl.constexpr, sharp: tl.constexpr, block: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0).to(tl.int64)
    d = tl.arange(0, block)
    zero, seen = _origin(steps, first, moves)
    wide += row * last
    carry = tl.zeros([block], dtype=out.dtype.element_ty)
    power = tl.zeros([block], dtype=out.dtype.element_ty)
    at = row // cursors * steps * cursors + row % cursors + (steps - 1) * cursors
    for i in range(steps):
        t = steps - 1 - i
        low, high = _span(t + 1, steps, last, moves)
        live = (d >= low) & (d < high)
        g = tl.load(grad + at * last + d, mask=live, other=0.0) + carry
        low, high = _span(t, steps, last, moves)
        before = out + (at - cursors) * last
        if t == 0:
            before = start + row * first - low
        new, here, mass = _move(
            d, before, low, high, kept + at * moves, fresh + at * moves, source + at * sources,
            sources, zero, seen + t + 1, moves,
        )  # fmt: skip
        if sharp:
            h = tl.load(out + at * last + d, mask=live, other=0.0)
            g = (g - tl.sum(g * h, 0)) * h
            new = tl.where(live, new + tl.load(eps), 1.0)
            power += g * tl.log(new)
            g = g * tl.load(gamma + row) / new
        g = tl.where(live, g, 0.0)
        token = d - zero - 1
        used = (token >= 0) & (token < tl.minimum(sources, seen + t + 1))
        tl.store(d_source + at * sources + token, g, mask=used)
        carry = _unmove(
            d, g, here, mass, wide, kept + at * moves, fresh + at * moves, d_kept + at * moves,
            d_fresh + at * moves, zero, last, moves,
        )  # fmt: skip
        carry = tl.where((d >= low) & (d < high), carry, 0.0)
        at -= cursors
    low, high = _span(0, steps, last, moves)
    tl.store(d_start + row * first + d - low, carry, mask=(d >= low) & (d < high))
    if sharp:
        tl.store(d_gamma + row, tl.sum(power, 0))
