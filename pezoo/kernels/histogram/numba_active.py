"""The scan without gradients: only bins that differ from the others are computed.

After sharpening most bins hold the same small number, eps^gamma over a sum: the floor. A vector of
LANES bins counts as the floor where all are within NEAR eps of it. Those that do not are `active`;
`todo` has them, their neighbours and the bins that a step can jump to.

Two arrays take turns as `old` and `new`. valid[k] is the step before which vector k of `old` was
written; where it was not, it is filled with the floor before it is read.
"""

import math
from typing import Any

from pezoo.kernels.histogram.numba_loops import BLOCK, Inputs, Sizes, fill, sources_of, step_of
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

NEAR = 0.01
# Beyond these the floor is high, or grows for many steps after a bin is reached: all bins in reach
# are computed.
LARGEST_EPS, SMALLEST_GAMMA = 2e-7, 1.1
Pointer = Any
Lanes = Any


@inline
def _zero(size: Sizes) -> int:
    """Return the bin of offset 0; offset 1 begins a vector."""
    return (size.last // 2 // LANES + 3) * LANES - 1


@inline
def _width(size: Sizes) -> int:
    return 2 * _zero(size) + 2 * LANES + 2


def scratch_size(size: Sizes) -> int:
    """Return the size of the scratch memory: two histograms, and four integers a vector."""
    half = (size.last // 2 // LANES + 3) * LANES - 1
    return 3 * (2 * half + 2 * LANES + 2)


@inline
def _push(k: int, low: int, high: int, t: int, queued: Pointer, todo: Pointer, n: int) -> int:
    """Queue vector k at step t if it has bins in low..high-1; return the length of the queue."""
    if k < low // LANES or k > (high - 1) // LANES or queued[k] == t:
        return n
    queued[k], todo[n] = t, k
    return n + 1


@inline
def _queue(
    x: Inputs, place: int, t: int, size: Sizes, near: Any, low: int, high: int, active: Pointer,
    n: int, queued: Pointer, todo: Pointer,
) -> int:  # fmt: skip
    """Queue what can differ from the floor after step t: neighbours, offset 0, what is copied."""
    zero, reach, count = _zero(size), size.moves // 2, 0
    for a in range(n):
        for k in range(active[a] - 1, active[a] + 2):
            count = _push(k, low, high, t, queued, todo, count)
    for k in range((zero - reach) // LANES, (zero + reach) // LANES + 1):
        count = _push(k, low, high, t, queued, todo, count)
    start, shares = sources_of(place, t, size)
    for j in range(0, shares - LANES + 1, LANES):
        share = load(x.source, start + j)
        if not total(larger(share, 0 - share)) <= near:  # a NaN is not hidden
            count = _push((zero + 1 + j) // LANES, low, high, t, queued, todo, count)
    for j in range(shares // LANES * LANES, shares):
        if not abs(x.source[start + j]) <= near:
            count = _push((zero + 1 + j) // LANES, low, high, t, queued, todo, count)
    return count


@inline
def _move(
    old: Pointer, new: Pointer, x: Inputs, place: int, t: int, size: Sizes, mass: Any, eps: Lanes,
    todo: Pointer, n: int,
) -> None:  # fmt: skip
    zero, last = _zero(size), size.moves - 1
    kept, fresh = beyond(x.kept, place * size.moves), beyond(x.fresh, place * size.moves)
    start, shares = sources_of(place, t, size)
    for a in range(n):
        i = todo[a] * LANES
        found = eps + kept[last] * load(old, i)
        for j in range(0, last, 2):
            step = j // 2 + 1
            found = found + kept[j] * load(old, i - step) + kept[j + 1] * load(old, i + step)
        store(new, i, found)
        first = i - zero - 1
        for j in range(max(first, 0), min(first + LANES, shares)):
            new[i + j - first] = new[i + j - first] + x.source[start + j]
    for j in range(size.moves):
        there = zero + step_of(j, size)
        new[there] = new[there] + fresh[j] * mass


@inline
def _sharpen(
    h: Pointer, todo: Pointer, n: int, low: int, high: int, raw: Lanes, others: int,
    gamma: Lanes, zero: Lanes,
) -> tuple[Any, Lanes]:  # fmt: skip
    """Set h to h^gamma times a number, and to 0 outside of bins low..high-1.

    Return the floor, and the factor that makes the sum 1. raw is the floor before; so many `others`
    have it.
    """
    terms, powers, gamma = log_terms(zero), power_terms(zero), gamma * UNIT
    every, top, power = zero, log2(raw, terms), zero
    for a in range(n):
        moved = load(h, todo[a] * LANES)
        every, log = every + moved, log2(moved, terms)  # log2 gives numbers for NaNs
        i, top = todo[a] * LANES, larger(log, top)
        store(h, i, log)
        for j in range(i, min(low, i + LANES)):
            h[j] = -math.inf
        for j in range(max(high, i), i + LANES):
            h[j] = -math.inf
    shift = 0 - gamma * highest(top)
    for a in range(n):
        one = exp2(shift + gamma * load(h, todo[a] * LANES), powers)
        store(h, todo[a] * LANES, one)
        power = power + one
    floor = highest(exp2(shift + gamma * log2(raw, terms), powers))
    factor = (1 + zero + 0 * total(every)) / (zero + (total(power) + others * floor))
    return highest(factor) * floor, factor


@inline
def _keep(
    h: Pointer, todo: Pointer, count: int, factor: Lanes, floor: Any, near: Any, t: int,
    valid: Pointer, active: Pointer,
) -> int:  # fmt: skip
    """Scale h; list the vectors that differ from the floor, and return their number."""
    n = 0
    for a in range(count):
        k, here = todo[a], factor * load(h, todo[a] * LANES)
        store(h, k * LANES, here)
        above = here - floor
        if highest(larger(above, 0 - above)) > near:
            valid[k], active[n] = t + 1, k
            n += 1
    return n


@inline
def _superpose(
    h: Pointer, floor: Any, active: Pointer, n: int, low: int, high: int, table: Pointer,
    rest: Lanes, sums: Pointer, size: Sizes, e: Pointer,
) -> None:  # fmt: skip
    """Store sum_i h[i] table[i] in e: of what is above the floor, then the floor's."""
    top = _zero(size) - size.last // 2  # the bin of the table's first row
    before, upto = (low - top) * size.width, (high - top) * size.width
    for d in range(size.width):
        e[d] = highest(rest) * (sums[upto + d] - sums[before + d])
    for d in range(0, size.width, BLOCK):
        here = beyond(e, d)
        w, x, y, z = load(here, 0), load(here, LANES), load(here, 2 * LANES), load(here, 3 * LANES)
        for a in range(n):
            i = active[a] * LANES
            for j in range(max(i, low), min(i + LANES, high)):
                line, more = beyond(table, (j - top) * size.width + d), 0 * rest + (h[j] - floor)
                w, x = w + more * load(line, 0), x + more * load(line, LANES)
                y, z = y + more * load(line, 2 * LANES), z + more * load(line, 3 * LANES)
        store(here, 0, w)
        store(here, LANES, x)
        store(here, 2 * LANES, y)
        store(here, 3 * LANES, z)


@compiled
def forward(
    x: Inputs, eps: float, size: Sizes, streams: int, table: int, sums: int, out: int, first: int,
    end: int, scratch: int,
) -> None:  # fmt: skip
    """Compute streams (B T C width) of rows first..end-1 and their last histograms -> out (B C L).

    Tensors are addresses; sums (L + 1, width) are of the table's rows before each.
    """
    inputs, lines, marks = opened(x, eps), pointer(scratch, eps), pointer(scratch, first)
    waves, below = pointer(table, eps), pointer(sums, eps)
    e, h = pointer(streams, eps), pointer(out, eps)
    for row in range(first, end):
        _row(inputs, eps, size, e, waves, below, h, row, lines, marks)


@inline
def _begin(
    x: Inputs, row: int, size: Sizes, eps: float, near: Any, old: Pointer, valid: Pointer,
    queued: Pointer, active: Pointer,
) -> tuple[Any, int, Any]:  # fmt: skip
    """Load the state into old; return its floor, the number of active vectors, and its mass."""
    start, low = beyond(x.start, row * size.first), _zero(size) - size.first // 2
    none, high, whole = 0 * splat(eps, load(old, 0)), low + size.first, size.first // LANES * LANES
    least, every = none - start[0], none  # the least, times -1
    for i in range(0, whole, LANES):
        here = load(start, i)
        least, every = larger(0 - here, least), every + here
    floor, mass = 0 - highest(least), total(every)
    for i in range(whole, size.first):
        floor, mass = min(floor, start[i]), mass + start[i]
    floor = floor if floor <= eps and near > 0 else 0 * floor
    for k in range(_width(size) // LANES):
        valid[k] = queued[k] = -1
    n = 0
    for k in range(low // LANES, (high - 1) // LANES + 1):
        i = k * LANES
        if low <= i and i + LANES <= high:
            here = load(start, i - low)
        else:
            store(old, i, none + floor)
            for j in range(max(i, low), min(i + LANES, high)):
                old[j] = start[j - low]
            here = load(old, i)
        if highest(here) - floor > near:
            store(old, i, here)
            valid[k], active[n] = 0, k
            n += 1
    return floor, n, mass


@inline
def _row(
    x: Inputs, eps: float, size: Sizes, streams: Pointer, table: Pointer, sums: Pointer,
    out: Pointer, row: int, lines: Pointer, marks: Pointer,
) -> None:  # fmt: skip
    width, vectors = _width(size), _width(size) // LANES
    old, new = beyond(lines, width), beyond(lines, 2 * width)
    valid, queued = marks, beyond(marks, vectors)
    active, todo = beyond(marks, 2 * vectors), beyond(marks, 3 * vectors)
    none, gamma, low, high = 0 * splat(eps, load(lines, 0)), x.gamma[row], 0, 0
    near = NEAR * eps if eps <= LARGEST_EPS and gamma >= SMALLEST_GAMMA else -1.0
    floor, n, mass = _begin(x, row, size, eps, near, old, valid, queued, active)
    for t in range(size.steps):
        place = (row // size.cursors * size.steps + t) * size.cursors + row % size.cursors
        reach = size.first // 2 + size.moves // 2 * (t + 1)
        low, high = _zero(size) - reach, _zero(size) + reach + 1
        count = _queue(x, place, t, size, near, low, high, active, n, queued, todo)
        for a in range(count):
            for k in range(todo[a] - 1, todo[a] + 2):
                if valid[k] != t:
                    store(old, k * LANES, none + floor)
                    valid[k] = t
        _move(old, new, x, place, t, size, mass, none + eps, todo, count)
        others = max(high - low - LANES * count, 0) if near > 0 else 0
        stay = 0 * floor
        for j in range(size.moves):
            stay = stay + x.kept[place * size.moves + j]
        raw = none + (stay * floor + eps)
        floor, factor = _sharpen(new, todo, count, low, high, raw, others, none + gamma, none)
        floor = floor if near > 0 else 0 * floor
        n = _keep(new, todo, count, factor, floor, near, t, valid, active)
        mass, e = 1 + 0 * mass, beyond(streams, place * size.width)
        _superpose(new, floor, active, n, low, high, table, none + floor, sums, size, e)
        old, new = new, old
    last = beyond(out, row * size.last - low)
    fill(beyond(last, low), size.last, none + floor)
    for a in range(n):
        for i in range(max(active[a] * LANES, low), min(active[a] * LANES + LANES, high)):
            last[i] = old[i]
