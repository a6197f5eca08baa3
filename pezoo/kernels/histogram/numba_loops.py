"""The loops of the numba back end over time: LANES rows at a time, each taken through all steps."""

from __future__ import annotations

import math

from pezoo.kernels.histogram.numba_move import move, shares, store_gates, total, unmove
from pezoo.kernels.histogram.numba_rows import (
    PAD,
    Array,
    Inputs,
    Lanes,
    Rows,
    Sizes,
    blank,
    coming,
    load_lines,
    origin,
    part,
    span,
    store_lines,
)
from pezoo.kernels.simd.compile import compiled, inline
from pezoo.kernels.simd.functions import UNIT, exp2, log2, log_terms, power_terms
from pezoo.kernels.simd.memory import ask_to_read, gather, load, scatter, store, stream
from pezoo.kernels.simd.vector import LANES, larger, splat

LN2 = math.log(2.0)
BLOCK = 32  # lines that are summed apart: many small numbers after a large one would be lost


@inline
def _sharpen(h: Array, low: int, high: int, gamma: Lanes, zero: Lanes) -> Lanes:
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
    g: Array, h: Array, x: Array, low: int, high: int, mean: Lanes, gamma: Lanes, zero: Lanes,
    out: Array, at: Array, skip: int
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
def forward(x: Inputs, eps: float, size: Sizes, out: Array, rows: Rows, scratch: Array) -> None:
    """The histograms of the rows -> out (B T C L)."""
    for first in range(0, rows.row.size, LANES):
        scratch[:] = 0
        # Two copies: with both ways in one loop numba counts references to arrays at every step.
        if size.streamed:
            _forward(x, eps, size, out, part(rows, first), scratch, True)
        else:
            _forward(x, eps, size, out, part(rows, first), scratch, False)


@inline
def _forward(
    x: Inputs, eps: float, size: Sizes, out: Array, rows: Rows, scratch: Array, streamed: bool
) -> None:
    low, high = span(0, size)
    load_lines(x.start, rows.start, 0, scratch[0], low, high)
    mass, step = total(scratch[0], low, high), size.cursors * size.last
    zero = 0 * splat(eps, mass)
    gamma = gather(x.gamma, rows.row, 0) if x.gamma.size else zero
    floor = zero + eps if x.gamma.size else zero
    factor = zero + 1  # what the lines have to be multiplied with
    for t in range(size.steps):
        old, new, stage = scratch[t % 2], scratch[1 - t % 2], scratch[2]
        stay, jump, kept = shares(x, rows.gate, t * size.cursors)
        stay = stay[0] * factor, stay[1] * factor, stay[2] * factor
        mass = move(old, new, x, rows, t, size, (stay, jump, kept), mass, floor)
        low, high = span(t + 1, size)
        if x.gamma.size:
            sound = mass + load(new, origin(t, size)[0] * LANES)
            power = _sharpen(new, low, high, gamma, zero)
            factor = 1 / power + 0 * sound  # log2 gives numbers for NaNs, which must not be lost
            mass = zero + 1
        skip = low - PAD
        if streamed:
            store_lines(new, low, high, stage, rows.own, skip, factor)
            start = rows.out[0] + t * step
            for i in range(0, size.last * LANES, LANES):
                stream(out, start + i, load(stage, i))
        else:
            blank(out, rows.out, t * step, skip, high - PAD, size)
            store_lines(new, low, high, out, rows.out, t * step + skip, factor)


@compiled
def backward(
    x: Inputs, eps: float, size: Sizes, out: Array, grad: Array, d: Inputs, rows: Rows,
    scratch: Array,
) -> None:  # fmt: skip
    """Gradients of the inputs of the rows -> d, from what `forward` gave and its gradient."""
    for first in range(0, rows.row.size, LANES):
        scratch[:] = 0
        _backward(x, eps, size, out, grad, d, part(rows, first), scratch)


@inline
def _recall(
    x: Inputs, size: Sizes, out: Array, grad: Array, t: int, rows: Rows, h: Array, g: Array
) -> None:  # fmt: skip
    """The histogram after t steps -> h, its gradient -> g."""
    step = size.cursors * size.last
    low, high = span(t, size)
    if t == 0:
        load_lines(x.start, rows.start, 0, h, low, high)
        g[:] = 0
        return
    skip = (t - 1) * step + low - PAD
    load_lines(out, rows.out, skip, h, low, high)
    load_lines(grad, rows.out, skip, g, low, high)


@inline
def _backward(
    x: Inputs, eps: float, size: Sizes, out: Array, grad: Array, d: Inputs, rows: Rows,
    scratch: Array,
) -> None:  # fmt: skip
    """What was sharpened is computed again from the step before: it is not kept."""
    zero = 0 * splat(eps, load(scratch[0], 0))
    gamma = gather(x.gamma, rows.row, 0) if x.gamma.size else zero
    floor = zero + eps if x.gamma.size else zero
    raw, d_gamma, mean, last = scratch[4], zero, zero, size.steps % 2
    low, high = span(size.steps, size)
    _recall(x, size, out, grad, size.steps, rows, scratch[last], scratch[2 + last])
    for i in range(low * LANES, high * LANES, LANES):
        mean = mean + load(scratch[last], i) * load(scratch[2 + last], i)
    for t in range(size.steps - 1, -1, -1):
        now, old, g, before = (
            scratch[1 - t % 2],
            scratch[t % 2],
            scratch[3 - t % 2],
            scratch[2 + t % 2],
        )
        gate = t * size.cursors
        _recall(x, size, out, grad, t, rows, old, before)
        was_low, was_high = span(t, size)
        mass = zero + 1 if t and x.gamma.size else total(old, was_low, was_high)
        ahead = (t - 2) * size.cursors * size.last + was_low + 1 - PAD
        shared = shares(x, rows.gate, gate)
        if x.gamma.size:
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
    store_lines(scratch[2], low, high, d.start, rows.start, 0, zero + 1)
    if x.gamma.size:
        scatter(d.gamma, rows.row, 0, d_gamma)
