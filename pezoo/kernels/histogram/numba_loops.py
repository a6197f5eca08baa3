"""The loops of the numba back end: all cursors of a sample take a step before any takes the next.

So memory is read and written in its order. A row is one cursor of one sample, number b C + c.

A histogram is copied to scratch that stays in the first-level cache, in vectors of LANES bins.
Bin d is number d + margin there; `low` and `high` are numbers too, of the bins that can hold mass.
Vectors may reach past `high`: what they write there is zero, is made zero, or is never read.
"""

import math
from typing import Any, NamedTuple

from pezoo.kernels.simd.compile import compiled, inline
from pezoo.kernels.simd.functions import UNIT, exp2, log2, log_terms, power_terms
from pezoo.kernels.simd.vector import (
    LANES,
    beyond,
    highest,
    larger,
    load,
    opened,
    pointer,
    splat,
    store,
    total,
)

LN2 = math.log(2.0)
BLOCK = 4 * LANES  # columns of the table that are summed at once
ARRAYS = 4  # in the scratch, of one number for each bin; and one more for each cursor
Pointer = Any  # to float32 or float64: an array would have its references counted
Lanes = Any  # a Vector
Number = Any


class Inputs(NamedTuple):
    """Inputs of the scan, or their gradients: addresses, and pointers once `opened`."""

    start: Pointer  # (B C L0)
    kept: Pointer  # (B T C J)
    fresh: Pointer  # (B T C J)
    source: Pointer  # (B T n S) of the cursors that copy
    gamma: Pointer  # (B C), read where it sharpens


class Sizes(NamedTuple):
    steps: int
    cursors: int
    moves: int  # J
    copying: int  # n, cursors 0, every, 2 every, ...; 0 without a copy branch
    every: int
    sources: int  # S
    first: int  # L0
    last: int  # L
    width: int  # of the table, a multiple of BLOCK; 0 without one
    sharpened: bool


def scratch_size(size: Sizes) -> int:
    """Return the size of the loops' scratch memory."""
    width: int = size.last + 2 * (size.moves // 2 + LANES)
    return (ARRAYS + size.cursors) * width


@inline
def margin_of(size: Sizes) -> int:
    """Return the margin around the bins, so that shifts and vectors need no edge case."""
    return size.moves // 2 + LANES


@inline
def width_of(size: Sizes) -> int:
    return size.last + 2 * margin_of(size)


@inline
def zero_of(size: Sizes) -> int:
    """Return the bin of offset 0."""
    return margin_of(size) + size.last // 2


@inline
def span(t: int, size: Sizes) -> tuple[int, int]:
    """Return the bins that can hold mass after t steps."""
    reach = size.first // 2 + size.moves // 2 * t
    return zero_of(size) - reach, zero_of(size) + reach + 1


@inline
def step_of(j: int, size: Sizes) -> int:
    """Return the step of move j: +1, -1, +2, -2, ..., 0."""
    if j == size.moves - 1:
        return 0
    return -(j // 2 + 1) if j & 1 else j // 2 + 1


@inline
def cursors_of(b: int, first: int, end: int, size: Sizes) -> tuple[int, int]:
    """Return the cursors of sample b among rows first..end-1."""
    start = b * size.cursors
    return max(first - start, 0), min(end - start, size.cursors)


@inline
def sources_of(place: int, t: int, size: Sizes) -> tuple[int, int]:
    """Return where the shares copied at step t start, and their number: 0 if nothing is copied."""
    row, c = place // size.cursors, place % size.cursors
    n = c // size.every
    if c % size.every or n >= size.copying:
        return 0, 0
    seen = size.first // (size.moves - 1)
    return (row * size.copying + n) * size.sources, min(size.sources, seen + t + 1)


@inline
def fill(x: Pointer, count: int, value: Lanes) -> None:
    for i in range(0, count - LANES + 1, LANES):
        store(x, i, value)
    for i in range(count // LANES * LANES, count):
        x[i] = highest(value)


@inline
def fence(x: Pointer, low: int, high: int, size: Sizes, zero: Lanes) -> None:
    """Store zeros beside bins low..high-1, as far as shifts and vectors reach."""
    fill(beyond(x, low - margin_of(size)), margin_of(size), zero)
    fill(beyond(x, high), margin_of(size), zero)


@inline
def copy(x: Pointer, count: int, factor: Lanes, y: Pointer) -> None:
    """Store the first numbers of x times a factor in y."""
    for i in range(0, count - LANES + 1, LANES):
        store(y, i, factor * load(x, i))
    one = highest(factor)
    for i in range(count // LANES * LANES, count):
        y[i] = one * x[i]


@inline
def add(x: Pointer, y: Pointer, count: int, z: Pointer) -> None:
    """Store the sum of the first numbers of x and y in z."""
    for i in range(0, count - LANES + 1, LANES):
        store(z, i, load(x, i) + load(y, i))
    for i in range(count // LANES * LANES, count):
        z[i] = x[i] + y[i]


@inline
def mass_of(h: Pointer, low: int, high: int, zero: Lanes) -> Number:
    found = zero
    for i in range(low, high, LANES):
        found = found + load(h, i)
    return total(found)


@inline
def _move(
    old: Pointer, new: Pointer, x: Inputs, place: int, t: int, size: Sizes, mass: Number,
    eps: Lanes,
) -> None:  # fmt: skip
    """Move and copy at step t: old, of that mass, -> new + eps."""
    low, high = span(t + 1, size)
    origin, last, zero = zero_of(size), size.moves - 1, 0 * eps
    kept, fresh = beyond(x.kept, place * size.moves), beyond(x.fresh, place * size.moves)
    stay = zero + kept[last]
    for i in range(low, high, LANES):
        store(new, i, eps + stay * load(old, i))
    new[origin] = new[origin] + fresh[last] * mass
    for j in range(0, last, 2):
        step, up, down = j // 2 + 1, zero + kept[j], zero + kept[j + 1]
        for i in range(low, high, LANES):
            moved = load(new, i) + up * load(old, i - step)
            store(new, i, moved + down * load(old, i + step))
        new[origin + step] = new[origin + step] + fresh[j] * mass
        new[origin - step] = new[origin - step] + fresh[j + 1] * mass
    start, count = sources_of(place, t, size)
    copied = beyond(new, origin + 1)
    add(copied, beyond(x.source, start), count, copied)


@inline
def _recall(x: Inputs, out: Pointer, b: int, t: int, c: int, size: Sizes, old: Pointer) -> Number:
    """Load the histogram before step t into old, and return its mass."""
    one = splat(1, load(old, 0))
    if t:
        place = ((b * size.steps + t - 1) * size.cursors + c) * size.last
        copy(beyond(out, place), size.last, one, beyond(old, margin_of(size)))
        if size.sharpened:
            return highest(one)
    low, high = span(t, size)
    if not t:
        fill(old, width_of(size), 0 * one)
        start = beyond(x.start, (b * size.cursors + c) * size.first)
        copy(start, size.first, one, beyond(old, low))
    return mass_of(old, low, high, 0 * one)


@inline
def _sharpen(h: Pointer, low: int, high: int, gamma: Lanes, zero: Lanes) -> Number:
    """Set h to h^gamma times a number, and return the sum."""
    terms, top = log_terms(zero), zero - math.inf
    for i in range(low, high, LANES):
        log = log2(load(h, i), terms)
        store(h, i, log)
        top = larger(log, top)
    store(h, high, zero - math.inf)
    powers, gamma, power = power_terms(zero), gamma * UNIT, zero
    shift = 0 - gamma * highest(top)
    for i in range(low, high, LANES):
        one = exp2(shift + gamma * load(h, i), powers)
        store(h, i, one)
        power = power + one
    store(h, high, zero)
    return total(power)


@inline
def _superpose(
    h: Pointer, low: int, high: int, factor: Lanes, table: Pointer, size: Sizes, e: Pointer
) -> None:
    """Store a factor times sum_i h[i] table[i] in e, over bins low..high-1."""
    zero, first = 0 * factor, beyond(table, -margin_of(size) * size.width)
    for d in range(0, size.width, BLOCK):
        w, x, y, z = zero, zero, zero, zero
        for i in range(low, high):
            row, here = beyond(first, i * size.width + d), zero + h[i]
            w, x = w + here * load(row, 0), x + here * load(row, LANES)
            y, z = y + here * load(row, 2 * LANES), z + here * load(row, 3 * LANES)
        store(e, d, factor * w)
        store(e, d + LANES, factor * x)
        store(e, d + 2 * LANES, factor * y)
        store(e, d + 3 * LANES, factor * z)


@inline
def _unsuperpose(
    e: Pointer, columns: Pointer, size: Sizes, low: int, high: int, zero: Lanes, g: Pointer
) -> None:
    """Add table[i] . e to g[i], from the table's columns (width, L + LANES)."""
    line, first = size.last + LANES, beyond(columns, -margin_of(size))
    for d in range(0, size.width, 4):
        w, x, y, z = zero + e[d], zero + e[d + 1], zero + e[d + 2], zero + e[d + 3]
        column = beyond(first, d * line)
        for i in range(low, high, LANES):
            found = load(g, i) + w * load(column, i) + x * load(column, line + i)
            store(g, i, found + y * load(column, 2 * line + i) + z * load(column, 3 * line + i))


@compiled
def forward(
    x: Inputs, eps: float, size: Sizes, out: int, table: int, streams: int, first: int, end: int,
    scratch: int,
) -> None:  # fmt: skip
    """Compute the histograms of rows first..end-1 -> out (B T C L), tensors as addresses.

    With a table (L, width), also their product with it -> streams (B T C width).
    """
    inputs, lines, h = opened(x, eps), pointer(scratch, eps), pointer(out, eps)
    waves, e = pointer(table, eps), pointer(streams, eps)
    for b in range(first // size.cursors, (end - 1) // size.cursors + 1):
        low, high = cursors_of(b, first, end, size)
        fill(lines, ARRAYS * width_of(size), 0 * splat(eps, load(lines, 0)))
        for t in range(size.steps):
            for c in range(low, high):
                _forward(inputs, eps, size, h, waves, e, b, t, c, lines)


@inline
def _forward(
    x: Inputs, eps: float, size: Sizes, out: Pointer, table: Pointer, streams: Pointer, b: int,
    t: int, c: int, lines: Pointer,
) -> None:  # fmt: skip
    zero, old, new = 0 * splat(eps, load(lines, 0)), lines, beyond(lines, width_of(size))
    floor = zero + eps if size.sharpened else zero
    mass, factor = _recall(x, out, b, t, c, size, old), zero + 1
    place, (low, high) = (b * size.steps + t) * size.cursors + c, span(t + 1, size)
    _move(old, new, x, place, t, size, mass, floor)
    if size.sharpened:
        sound = 0 * mass_of(new, low, high, zero)  # log2 gives numbers for NaNs
        power = _sharpen(new, low, high, zero + x.gamma[b * size.cursors + c], zero)
        factor = (1 + zero + sound) / (zero + power)
    copy(beyond(new, margin_of(size)), size.last, factor, beyond(out, place * size.last))
    _superpose(new, low, high, factor, table, size, beyond(streams, place * size.width))


@compiled
def backward(
    x: Inputs, eps: float, size: Sizes, out: int, grad: int, d: Inputs, columns: int, streams: int,
    first: int, end: int, scratch: int,
) -> None:  # fmt: skip
    """Compute gradients of the inputs of the rows -> d, from the output and its gradient.

    With a table, `grad` is that of the last histograms alone (B C L), and `streams` that of the
    products with the table, whose columns (width, L + LANES) end with zeros.
    """
    inputs, grads, lines = opened(x, eps), opened(d, eps), pointer(scratch, eps)
    h, given, width = pointer(out, eps), pointer(grad, eps), width_of(size)
    waves, e = pointer(columns, eps), pointer(streams, eps)
    for b in range(first // size.cursors, (end - 1) // size.cursors + 1):
        low, high = cursors_of(b, first, end, size)
        zero = 0 * splat(eps, load(lines, 0))
        fill(lines, (ARRAYS + size.cursors) * width, zero)
        for c in range(low, high if size.width else low):
            last = beyond(given, (b * size.cursors + c) * size.last)
            to = beyond(lines, (ARRAYS + c) * width + margin_of(size))
            copy(last, size.last, zero + 1, to)
        for t in range(size.steps - 1, -1, -1):
            for c in range(low, high):
                before = beyond(lines, (ARRAYS + c) * width)
                _backward(inputs, eps, size, h, given, grads, waves, e, b, t, c, lines, before)


@inline
def _unsharpen(
    g: Pointer, now: Pointer, raw: Pointer, low: int, high: int, gamma: Lanes, zero: Lanes
) -> Number:
    """Turn g, the gradient of the sharpened `now`, into that of raw; return dgamma.

    dx = gamma (g - mean) h / x and dgamma = sum (g - mean) h log x; mean = sum g h.
    """
    terms, d_gamma, mean = log_terms(zero), zero, zero
    for i in range(low, high, LANES):
        mean = mean + load(g, i) * load(now, i)
    middle = zero + total(mean)
    for i in range(low, high, LANES):
        inner, mass = (load(g, i) - middle) * load(now, i), load(raw, i)
        d_gamma = d_gamma + inner * log2(mass, terms)
        store(g, i, inner * (gamma / mass))
    return total(d_gamma * (LN2 * UNIT))


@inline
def _unmove(
    g: Pointer, old: Pointer, before: Pointer, x: Inputs, place: int, t: int, size: Sizes,
    mass: Number, d: Inputs, zero: Lanes,
) -> None:  # fmt: skip
    """Backward of the move at step t: from g, the gradients of old -> before and of shares."""
    low, high = span(t, size)
    origin, last, at = zero_of(size), size.moves - 1, place * size.moves
    kept, fresh, d_kept = beyond(x.kept, at), beyond(x.fresh, at), beyond(d.kept, at)
    jumped = zero  # the gradient of mass that moves through offset 0
    for j in range(size.moves):
        there = g[origin + step_of(j, size)]
        d.fresh[at + j] = there * mass
        jumped = jumped + fresh[j] * (zero + there)
    product, stay = zero, zero + kept[last]
    for i in range(low, high, LANES):
        here = load(g, i)
        product = product + load(old, i) * here
        store(before, i, jumped + stay * here)
    d_kept[last] = total(product)
    for j in range(0, last, 2):
        step, up, down = j // 2 + 1, zero + kept[j], zero + kept[j + 1]
        by_up, by_down = zero, zero
        for i in range(low, high, LANES):
            above, below, h = load(g, i + step), load(g, i - step), load(old, i)
            by_up, by_down = by_up + h * above, by_down + h * below
            store(before, i, load(before, i) + up * above + down * below)
        d_kept[j], d_kept[j + 1] = total(by_up), total(by_down)


@inline
def _backward(
    x: Inputs, eps: float, size: Sizes, out: Pointer, grad: Pointer, d: Inputs, columns: Pointer,
    streams: Pointer, b: int, t: int, c: int, lines: Pointer, before: Pointer,
) -> None:  # fmt: skip
    """From `before`, the gradient through later steps, compute that through step t.

    What was sharpened is computed again from the step before: it is not kept.
    """
    zero, width, margin = 0 * splat(eps, load(lines, 0)), width_of(size), margin_of(size)
    row, place = b * size.cursors + c, (b * size.steps + t) * size.cursors + c
    g, old = lines, beyond(lines, width)
    low, high = span(t + 1, size)
    if size.width:
        copy(beyond(before, low), high - low, zero + 1, beyond(g, low))
        _unsuperpose(beyond(streams, place * size.width), columns, size, low, high, zero, g)
    else:
        given = beyond(grad, place * size.last + low - margin)
        add(beyond(before, low), given, high - low, beyond(g, low))
    fence(g, low, high, size, zero)
    mass = _recall(x, out, b, t, c, size, old)
    if size.sharpened:
        now, raw = beyond(lines, 2 * width), beyond(lines, 3 * width)
        copy(beyond(out, place * size.last), size.last, zero + 1, beyond(now, margin))
        _move(old, raw, x, place, t, size, mass, zero + eps)
        found = _unsharpen(g, now, raw, low, high, zero + x.gamma[row], zero)
        d.gamma[row] = d.gamma[row] + found
    origin = zero_of(size)
    start, count = sources_of(place, t, size)
    copy(beyond(g, origin + 1), count, zero + 1, beyond(d.source, start))
    _unmove(g, old, before, x, place, t, size, mass, d, zero)
    if not t:
        low, _ = span(0, size)
        copy(beyond(before, low), size.first, zero + 1, beyond(d.start, row * size.first))
