"""The loops of the numba back end over time: LANES rows at a time, each taken through all steps."""

from __future__ import annotations

import math

from pezoo.kernels.histogram.numba_move import move, shares, store_gates, total, unmove
from pezoo.kernels.histogram.numba_rows import (
    ARRAYS,
    PAD,
    Inputs,
    Lanes,
    Pointer,
    Rows,
    Sizes,
    blank,
    clear,
    coming,
    lines_of,
    load_lines,
    origin,
    span,
    store_lines,
)
from pezoo.kernels.simd.compile import compiled, inline
from pezoo.kernels.simd.functions import UNIT, exp2, log2, log_terms, power_terms
from pezoo.kernels.simd.memory import (
    ask_to_read,
    beyond,
    gather,
    load,
    opened,
    pointer,
    scatter,
    store,
    stream,
)
from pezoo.kernels.simd.vector import LANES, larger, splat

LN2 = math.log(2.0)
BLOCK = 32  # lines that are summed apart: many small numbers after a large one would be lost


@inline
def _sharpen(h: Pointer, low: int, high: int, gamma: Lanes, zero: Lanes) -> Lanes:
    """Lines low..high-1 of h <- h^gamma times a number. Returns the sum of these."""
    terms, top, power = log_terms(zero), zero - math.inf, zero
    for i in range(low * LANES, high * LANES, LANES):
        log = log2(load(h, i), terms)
        store(h, i, log)
        top = larger(log, top)
    terms, gamma = power_terms(zero), gamma * UNIT
    shift = 0 - gamma * top
    for start in range(low, high, BLOCK):
        block = zero
        for i in range(start * LANES, min(start + BLOCK, high) * LANES, LANES):
            one = exp2(shift + gamma * load(h, i), terms)
            store(h, i, one)
            block = block + one
        power = power + block
    return power


@inline
def _unsharpen(
    g: Pointer, h: Pointer, x: Pointer, low: int, high: int, mean: Lanes, gamma: Lanes, zero: Lanes,
    out: Pointer, at: Pointer, skip: int
) -> Lanes:  # fmt: skip
    """g, the gradient of the sharpened h -> that of x, which was sharpened. Returns dgamma.

    dx = gamma (g - mean) h / x and dgamma = sum (g - mean) h log x; mean = sum g h.
    Meanwhile it asks for out[at + skip], which is read next.
    """
    terms, d_gamma = log_terms(zero), zero
    for i in range(low * LANES, high * LANES, LANES):
        if i & LANES:
            ask_to_read(out, coming(at, skip, (i - low * LANES) // (2 * LANES)))
        inner, mass = (load(g, i) - mean) * load(h, i), load(x, i)
        d_gamma = d_gamma + inner * log2(mass, terms)
        store(g, i, inner * (gamma / mass))
    return d_gamma * (LN2 * UNIT)


@compiled
def forward(
    x: Inputs, eps: float, size: Sizes, out: int, rows: Rows, count: int, scratch: int
) -> None:
    """The histograms of that many rows -> out (B T C L). Tensors come as addresses."""
    for first in range(0, count, LANES):
        lines = pointer(scratch, eps)
        clear(lines, ARRAYS * lines_of(size))
        _forward(opened(x, eps, 0), eps, size, pointer(out, eps), opened(rows, first, first), lines)


@inline
def _forward(
    x: Inputs, eps: float, size: Sizes, out: Pointer, rows: Rows, scratch: Pointer
) -> None:
    low, high = span(0, size)
    load_lines(x.start, rows.start, 0, scratch, low, high)
    mass, step, long = total(scratch, low, high), size.cursors * size.last, lines_of(size)
    zero = 0 * splat(eps, mass)
    gamma = gather(x.gamma, rows.row, 0) if size.sharpened else zero
    floor = zero + eps if size.sharpened else zero
    factor = zero + 1  # what the lines have to be multiplied with
    for t in range(size.steps):
        old, new = beyond(scratch, t % 2 * long), beyond(scratch, (1 - t % 2) * long)
        stay, jump, kept = shares(x, rows.gate, t * size.cursors)
        stay = stay[0] * factor, stay[1] * factor, stay[2] * factor
        mass = move(old, new, x, rows, t, size, (stay, jump, kept), mass, floor)
        low, high = span(t + 1, size)
        if size.sharpened:
            sound = mass + load(new, origin(t, size)[0] * LANES)
            power = _sharpen(new, low, high, gamma, zero)
            factor = 1 / power + 0 * sound  # log2 gives numbers for NaNs, which must not be lost
            mass = zero + 1
        skip = low - PAD
        if size.streamed:
            stage = beyond(scratch, 2 * long)
            store_lines(new, low, high, stage, rows.own, skip, factor)
            start = rows.out[0] + t * step
            for i in range(0, size.last * LANES, LANES):
                stream(out, start + i, load(stage, i))
        else:
            blank(out, rows.out, t * step, skip, high - PAD, size)
            store_lines(new, low, high, out, rows.out, t * step + skip, factor)


@compiled
def backward(
    x: Inputs, eps: float, size: Sizes, out: int, grad: int, d: Inputs, rows: Rows, count: int,
    scratch: int,
) -> None:  # fmt: skip
    """Gradients of the inputs of the rows -> d, from what `forward` gave and its gradient."""
    for first in range(0, count, LANES):
        lines, both = pointer(scratch, eps), (pointer(out, eps), pointer(grad, eps))
        clear(lines, ARRAYS * lines_of(size))
        _backward(
            opened(x, eps, 0),
            eps,
            size,
            *both,
            opened(d, eps, 0),
            opened(rows, first, first),
            lines,
        )


@inline
def _recall(
    x: Inputs, size: Sizes, out: Pointer, grad: Pointer, t: int, rows: Rows, h: Pointer, g: Pointer
) -> None:  # fmt: skip
    """The histogram after t steps -> h, its gradient -> g."""
    step = size.cursors * size.last
    low, high = span(t, size)
    if t == 0:
        load_lines(x.start, rows.start, 0, h, low, high)
        clear(g, lines_of(size))
        return
    skip = (t - 1) * step + low - PAD
    load_lines(out, rows.out, skip, h, low, high)
    load_lines(grad, rows.out, skip, g, low, high)


@inline
def _backward(
    x: Inputs, eps: float, size: Sizes, out: Pointer, grad: Pointer, d: Inputs, rows: Rows,
    scratch: Pointer,
) -> None:  # fmt: skip
    """What was sharpened is computed again from the step before: it is not kept."""
    zero, long = 0 * splat(eps, load(scratch, 0)), lines_of(size)
    gamma = gather(x.gamma, rows.row, 0) if size.sharpened else zero
    floor = zero + eps if size.sharpened else zero
    raw, d_gamma, mean, last = beyond(scratch, 4 * long), zero, zero, size.steps % 2
    low, high = span(size.steps, size)
    now, g = beyond(scratch, last * long), beyond(scratch, (2 + last) * long)
    _recall(x, size, out, grad, size.steps, rows, now, g)
    for i in range(low * LANES, high * LANES, LANES):
        mean = mean + load(now, i) * load(g, i)
    for t in range(size.steps - 1, -1, -1):
        now, old = beyond(scratch, (1 - t % 2) * long), beyond(scratch, t % 2 * long)
        g, before = beyond(scratch, (3 - t % 2) * long), beyond(scratch, (2 + t % 2) * long)
        gate = t * size.cursors
        _recall(x, size, out, grad, t, rows, old, before)
        was_low, was_high = span(t, size)
        mass = zero + 1 if t and size.sharpened else total(old, was_low, was_high)
        ahead = (t - 2) * size.cursors * size.last + was_low + 1 - PAD
        shared = shares(x, rows.gate, gate)
        if size.sharpened:
            move(old, raw, x, rows, t, size, shared, mass, floor)
            d_gamma = d_gamma + _unsharpen(
                g, now, raw, low, high, mean, gamma, zero, grad, rows.out, ahead
            )
        place, count = origin(t, size)
        skip = gate * size.sources
        store_lines(g, place + 1, place + 1 + count, d.source, rows.source, skip, zero + 1)
        if size.one_sided:
            store(g, (PAD - 1) * LANES, load(g, PAD * LANES))
        low, high = was_low, was_high
        d_stay, d_jump, mean = unmove(
            g, old, low, high, place, shared, mass, before, out, rows.out, ahead
        )
        store_gates(x, rows.gate, gate, d_stay, d_jump, d)
    store_lines(beyond(scratch, 2 * long), low, high, d.start, rows.start, 0, zero + 1)
    if size.sharpened:
        scatter(d.gamma, rows.row, 0, d_gamma)
