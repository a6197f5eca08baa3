"""The histogram scan in Triton, for a GPU: one program takes one cursor of one sample through time.

A program holds a histogram in registers and reads its neighbours' bins where it wrote them, in the
output of the step before; a barrier between the two keeps its threads together. Sharpening is
computed again in the backward pass, so that only the output is kept.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor
from torch.autograd.function import once_differentiable

from pezoo.kernels.histogram.reference import Copy
from pezoo.vmap import Kernel


def scan(
    reset: Tensor,
    moves: Tensor,
    gamma: Tensor | None,
    state: Tensor | None,
    eps: float,
    copy: Copy | None,
    one_sided: bool,
) -> Tensor:
    """The same as `reference.scan`, without a second derivative."""
    b, t, c = reset.shape
    moves, reset = moves[..., [1, 2, 0]], reset[..., None]  # steps -1, 0, 1
    new = moves.new_ones
    source = new(b, t, c, 0)
    if copy is not None:
        moves, source = moves * copy.none[..., None], copy.source
    powers = new(0) if gamma is None else gamma.expand(b, c)
    start = new(b, c, 1) if state is None else state
    h: Tensor = _Scan.apply(
        moves * (1 - reset), moves * reset, source, powers, start, eps, one_sided
    )
    return h


class _Scan(Kernel):
    """stay, jump (B, T, C, 3), source (B, T, C, S), gamma (B, C) or empty, start (B, C, L0) -> h.

    stay and jump are the shares of mass that go by -1, 0, 1 from where they are and from offset 0.
    """

    by_rows = True

    @staticmethod
    def forward(ctx: Any, *args: Any) -> Tensor:
        *inputs, eps, one_sided = args
        # eps as a tensor: a number would be passed as float32
        inputs = [*(x.contiguous() for x in inputs), inputs[0].new_full((1,), eps)]
        stay, _, source, gamma, start, _ = inputs
        b, t, c, _ = stay.shape
        first = start.shape[-1]
        last = first + (1 if one_sided else 2) * t
        h: Tensor = stay.new_empty(b, t, c, last)
        sizes = t, c, source.shape[-1], first, last, one_sided, gamma.numel() > 0
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
    """Compiled when it is launched, for each choice of types and constants."""
    compiled: Any = triton.jit(function)
    return compiled


@_compile
def _span(t, steps, last, one_sided: tl.constexpr):  # type: ignore[no-untyped-def]
    """The first bin that can hold mass after t steps, and the one after the last."""
    margin = steps - t
    return (0 if one_sided else margin), last - margin


@_compile
def _step(  # type: ignore[no-untyped-def]
    d, before, low, high, stay, jump, source, sources, zero, seen, one_sided: tl.constexpr
):
    """The move and the copy: bins d of the new and of the old histogram, and the old one's mass.

    `before` points at the old histogram, whose bins low..high-1 can hold mass.
    """
    here = tl.load(before + d, mask=(d >= low) & (d < high), other=0.0)
    left = tl.load(before + d - 1, mask=(d > low) & (d <= high), other=0.0)
    right = tl.load(before + d + 1, mask=(d + 1 >= low) & (d + 1 < high), other=0.0)
    down, keep, up = tl.load(stay), tl.load(stay + 1), tl.load(stay + 2)
    mass = tl.sum(here, 0)
    new = down * right + keep * here + up * left
    new += tl.where(d == zero, tl.load(jump + 1), 0.0) * mass
    new += tl.where(d == zero + 1, tl.load(jump + 2), 0.0) * mass
    below = tl.load(jump) * mass
    if one_sided:  # what would go below offset 0 stays there
        new += tl.where(d == 0, below + down * here, 0.0)
    else:
        new += tl.where(d == zero - 1, below, 0.0)
    token = d - zero - 1
    count = tl.minimum(sources, seen)
    new += tl.load(source + token, mask=(token >= 0) & (token < count), other=0.0)
    return new, here, mass


@_compile
def _forward(  # type: ignore[no-untyped-def]
    stay, jump, source, gamma, start, eps, out, steps, cursors, sources, first, last,
    one_sided: tl.constexpr, sharp: tl.constexpr, block: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0).to(tl.int64)
    d = tl.arange(0, block)
    seen = first - 1 if one_sided else first // 2
    zero = 0 if one_sided else seen + steps
    at = row // cursors * steps * cursors + row % cursors
    low, high = _span(0, steps, last, one_sided)
    before = start + row * first - low
    for t in range(steps):
        new, _, _ = _step(
            d, before, low, high, stay + at * 3, jump + at * 3, source + at * sources, sources,
            zero, seen + t + 1, one_sided,
        )  # fmt: skip
        low, high = _span(t + 1, steps, last, one_sided)
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
def _step_back(  # type: ignore[no-untyped-def]
    d, g, here, mass, wide, stay, jump, d_stay, d_jump, zero, last, one_sided: tl.constexpr
):
    """The gradient of the old histogram's bins d, and of the move's shares.

    g is that of the new bins, before sharpening. `wide` is where threads see each other's.
    """
    tl.store(wide + d, g, mask=d < last)
    tl.debug_barrier()
    below = tl.maximum(d - 1, 0) if one_sided else d - 1
    g_left = tl.load(wide + below, mask=(below >= 0) & (below < last), other=0.0)
    g_right = tl.load(wide + d + 1, mask=d + 1 < last, other=0.0)
    tl.debug_barrier()  # before the next step writes there
    # Each new bin got from its neighbours; bin d gave down to d - 1, up to d + 1.
    tl.store(d_stay, tl.sum(g_left * here, 0))
    tl.store(d_stay + 1, tl.sum(g * here, 0))
    tl.store(d_stay + 2, tl.sum(g_right * here, 0))
    origin = tl.where(d == zero, 1.0, 0.0)
    share = 0.0
    for k in tl.static_range(3):
        got = tl.sum(origin * (g_left if k == 0 else g if k == 1 else g_right), 0)
        tl.store(d_jump + k, got * mass)
        share += got * tl.load(jump + k)
    down, keep, up = tl.load(stay), tl.load(stay + 1), tl.load(stay + 2)
    return share + down * g_left + keep * g + up * g_right


@_compile
def _backward(  # type: ignore[no-untyped-def]
    stay, jump, source, gamma, start, eps, out, grad, wide,
    d_stay, d_jump, d_source, d_gamma, d_start, steps, cursors, sources, first, last,
    one_sided: tl.constexpr, sharp: tl.constexpr, block: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0).to(tl.int64)
    d = tl.arange(0, block)
    seen = first - 1 if one_sided else first // 2
    zero = 0 if one_sided else seen + steps
    wide += row * last
    carry = tl.zeros([block], dtype=out.dtype.element_ty)
    power = tl.zeros([block], dtype=out.dtype.element_ty)
    at = row // cursors * steps * cursors + row % cursors + (steps - 1) * cursors
    for i in range(steps):
        t = steps - 1 - i
        low, high = _span(t + 1, steps, last, one_sided)
        live = (d >= low) & (d < high)
        g = tl.load(grad + at * last + d, mask=live, other=0.0) + carry
        low, high = _span(t, steps, last, one_sided)
        before = out + (at - cursors) * last
        if t == 0:
            before = start + row * first - low
        new, here, mass = _step(
            d, before, low, high, stay + at * 3, jump + at * 3, source + at * sources, sources,
            zero, seen + t + 1, one_sided,
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
        carry = _step_back(
            d, g, here, mass, wide, stay + at * 3, jump + at * 3, d_stay + at * 3, d_jump + at * 3,
            zero, last, one_sided,
        )  # fmt: skip
        carry = tl.where((d >= low) & (d < high), carry, 0.0)
        at -= cursors
    low, high = _span(0, steps, last, one_sided)
    tl.store(d_start + row * first + d - low, carry, mask=(d >= low) & (d < high))
    if sharp:
        tl.store(d_gamma + row, tl.sum(power, 0))
