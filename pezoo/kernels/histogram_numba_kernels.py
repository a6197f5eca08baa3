"""The loops of the numba back end: LANES rows at a time, each taken through all steps.

A row is one cursor of one sample, number i C + c. LANES rows run side by side in scratch that stays
in the first-level cache, bin after bin: a line is one bin of LANES rows, a `Vector`, so a shift is
the next line and no sum crosses lanes. Tensors are (B, T, C, bins), here as flat arrays, and are
transposed while they are loaded or stored. Bin d of a histogram is line d + PAD; `low` and `high`
are lines.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple, cast

import numba

from pezoo.kernels.numba_cache import Function, compiled
from pezoo.kernels.numba_math import exp2, log2
from pezoo.kernels.numba_vectors import (
    LANES,
    ask_to_read,
    ask_to_write,
    gather,
    larger,
    load,
    load_rows,
    scatter,
    splat,
    store,
    store_rows,
    where_negative,
)

PAD = 2  # lines of zeros around the live ones, so that no shift has to look at an edge
ARRAYS = 5  # of one line for each bin, in the scratch
LINE = 16  # float32 numbers in a line of the processor's cache
LN2 = math.log(2.0)
LEAST = -1100.0  # below any logarithm
Array = Any  # (n,) of float32 or float64
Lanes = Any  # a Vector
Shares = tuple[Any, Any, Lanes]  # three Lanes, three Lanes, and the sum of all


def _inline(function: Function) -> Function:
    """Compiled into its caller: calls and the reference counts of arrays would cost a tenth."""
    return cast(Function, numba.njit(forceinline=True)(function))


class Inputs(NamedTuple):
    """What the scan reads, or the gradients of it."""

    reset: Array  # (B T C), like incr, decr and none
    incr: Array
    decr: Array
    none: Array
    source: Array  # (B T C S); S = 0 without a copy branch
    gamma: Array  # (B C); empty without sharpening
    start: Array  # (B C L0)


class Sizes(NamedTuple):
    steps: int
    cursors: int
    sources: int  # S
    first: int  # L0
    last: int  # L
    one_sided: bool


class Rows(NamedTuple):
    """Where each row begins. Step t is t C numbers, or t C S and t C L, further."""

    row: Array  # (n,) integers, n a multiple of LANES: the last rows may be repeated
    start: Array
    gate: Array
    source: Array
    out: Array


@_inline
def _slice(rows: Rows, first: int) -> Rows:
    """LANES of the rows."""
    end = first + LANES
    return Rows(
        rows.row[first:end],
        rows.start[first:end],
        rows.gate[first:end],
        rows.source[first:end],
        rows.out[first:end],
    )


@_inline
def _span(t: int, size: Sizes) -> tuple[int, int]:
    """The lines that can hold mass after t steps."""
    if size.one_sided:
        return PAD, PAD + size.first + t
    return PAD + size.steps - t, PAD + size.steps + size.first + t


@_inline
def _origin(t: int, size: Sizes) -> tuple[int, int]:
    """The line of offset 0, and how many tokens can be copied from at step t."""
    before = size.first - 1 if size.one_sided else size.first // 2
    zero = PAD if size.one_sided else PAD + size.steps + before
    return zero, min(size.sources, before + t + 1)


@_inline
def _load(tensor: Array, at: Array, skip: int, lines: Array, low: int, high: int) -> None:
    """tensor[at + skip + d] -> line low + d below `high`; zeros around."""
    n, zero = high - low, splat(0, load(lines, 0))
    for d in range(PAD):
        store(lines, (low - 1 - d) * LANES, zero)
        store(lines, (high + d) * LANES, zero)
    if n < LANES:
        for d in range(n):
            store(lines, (low + d) * LANES, gather(tensor, at, skip + d))
        return
    for tile in range(0, n, LANES):
        d = min(tile, n - LANES)  # the last tile may overlap the one before
        load_rows(tensor, at, skip + d, lines, (low + d) * LANES)


@_inline
def _store(
    lines: Array, low: int, high: int, tensor: Array, at: Array, skip: int, factor: Lanes
) -> None:
    """Line low + d below `high` times a factor -> tensor[at + skip + d]."""
    n = high - low
    if n < LANES:
        for d in range(n):
            scatter(tensor, at, skip + d, factor * load(lines, (low + d) * LANES))
        return
    for tile in range(0, n, LANES):
        d = min(tile, n - LANES)
        store_rows(tensor, at, skip + d, lines, (low + d) * LANES, factor)


@_inline
def _blank(tensor: Array, at: Array, skip: int, low: int, high: int, size: Sizes) -> None:
    """Zeros to the bins below `low` and from `high` on, and to some between them."""
    bins, zero = size.last, splat(0, gather(tensor, at, skip))
    if bins < LANES:
        for d in range(bins):
            scatter(tensor, at, skip + d, zero)
        return
    for lane in range(LANES):
        start = at[lane] + skip
        for d in range(0, low, LANES):
            store(tensor, start + min(d, bins - LANES), zero)
        for d in range(bins - LANES, high - LANES, -LANES):
            store(tensor, start + max(d, 0), zero)


@_inline
def _add(lines: Array, d: int, value: Lanes) -> None:
    store(lines, d * LANES, load(lines, d * LANES) + value)


@_inline
def _sum(lines: Array, low: int, high: int) -> Lanes:
    total = load(lines, low * LANES)
    for d in range(low + 1, high):
        total = total + load(lines, d * LANES)
    return total


@_inline
def _gates(x: Inputs, at: Array, skip: int) -> Shares:
    """The shares of mass that go by -1, 0, 1, from where they are and from offset 0; their sum."""
    incr, decr, none = gather(x.incr, at, skip), gather(x.decr, at, skip), gather(x.none, at, skip)
    room = 1 - incr - decr
    keep = larger(room, 0 * room)
    jump = none * gather(x.reset, at, skip)
    stay = none - jump
    stays, jumps = (stay * decr, stay * keep, stay * incr), (jump * decr, jump * keep, jump * incr)
    return stays, jumps, none * (decr + keep + incr)


@_inline
def _store_gates(x: Inputs, at: Array, skip: int, d_stay: Any, d_jump: Any, d: Inputs) -> None:
    """Gradients of the shares -> gradients of the gates."""
    reset, none = gather(x.reset, at, skip), gather(x.none, at, skip)
    incr, decr = gather(x.incr, at, skip), gather(x.decr, at, skip)
    room = 1 - incr - decr
    keep = larger(room, 0 * room)
    stay = decr * d_stay[0] + keep * d_stay[1] + incr * d_stay[2]
    jump = decr * d_jump[0] + keep * d_jump[1] + incr * d_jump[2]
    same = (1 - reset) * d_stay[1] + reset * d_jump[1]
    same = where_negative(room, splat(0, same), same)
    scatter(d.none, at, skip, (1 - reset) * stay + reset * jump)
    scatter(d.reset, at, skip, none * (jump - stay))
    scatter(d.incr, at, skip, none * ((1 - reset) * d_stay[2] + reset * d_jump[2] - same))
    scatter(d.decr, at, skip, none * ((1 - reset) * d_stay[0] + reset * d_jump[0] - same))


@_inline
def _step(
    old: Array, new: Array, x: Inputs, rows: Rows, t: int, size: Sizes, shares: Shares, mass: Lanes
) -> Lanes:  # fmt: skip
    """The move and the copy of step t: old, of that mass, -> new. Returns the mass of new.

    It is computed from the shares: rounding in single bins must not add up over the steps.
    """
    stay, jump, total = shares
    low, high = _span(t + 1, size)
    zero, count = _origin(t, size)
    for i in range((low - size.one_sided) * LANES, high * LANES, LANES):
        moved = stay[1] * load(old, i)
        moved = moved + stay[0] * load(old, i + LANES) + stay[2] * load(old, i - LANES)
        store(new, i, moved)
    _add(new, zero - 1, jump[0] * mass)
    _add(new, zero, jump[1] * mass)
    _add(new, zero + 1, jump[2] * mass)
    if size.one_sided:  # what would go below offset 0 stays there
        below = load(new, (PAD - 1) * LANES)
        _add(new, PAD, below)
        store(new, (PAD - 1) * LANES, splat(0, below))
    mass = total * mass
    for j in range(count):
        copied = gather(x.source, rows.source, t * size.cursors * size.sources + j)
        _add(new, zero + 1 + j, copied)
        mass = mass + copied
    return mass


@_inline
def _place(at: Array, skip: int, i: int) -> int:
    """Of number i of all cache lines of the rows at + skip: first lines first."""
    place: int = at[i & (LANES - 1)] + skip + i // LANES * LINE
    return place


@_inline
def _sharpen(
    h: Array, low: int, high: int, gamma: Lanes, eps: float, out: Array, at: Array, skip: int
) -> Lanes:
    """Lines low..high-1 of h <- (h + eps)^gamma times a number. Returns the sum of these.

    Meanwhile it asks for the memory out[at + skip] that is written next.
    """
    top, total = splat(LEAST, gamma), splat(0, gamma)
    for i in range(low * LANES, high * LANES, LANES):
        log = log2(load(h, i) + eps)
        store(h, i, log)
        top = larger(log, top)
    for i in range(low * LANES, high * LANES, LANES):
        ask_to_write(out, _place(at, skip, i // LANES - low))
        power = exp2(gamma * (load(h, i) - top))
        store(h, i, power)
        total = total + power
    return total


@_inline
def _collect(g: Array, carry: Array, h: Array, low: int, high: int) -> Lanes:
    """Add what is carried to g; the sum of g h."""
    mean = splat(0, load(g, 0))
    for i in range(low * LANES, high * LANES, LANES):
        one = load(g, i) + load(carry, i)
        store(g, i, one)
        mean = mean + one * load(h, i)
    return mean


@_inline
def _unsharpen(
    g: Array, h: Array, x: Array, low: int, high: int, mean: Lanes, gamma: Lanes, eps: float,
    coming: tuple[Array, Array, Array, tuple[int, int]],
) -> Lanes:  # fmt: skip
    """g, the gradient of the sharpened h -> that of x, which was sharpened. Returns dgamma.

    dx = gamma (g - mean) h / (x + eps) and dgamma = sum (g - mean) h log(x + eps); mean = sum g h.
    Meanwhile it asks for `coming`: two tensors, whose rows begin at + skip for one of two skips.
    """
    d_gamma = splat(0, gamma)
    for i in range(low * LANES, high * LANES, LANES):
        number = i // LANES - low
        if number % 2:
            ask_to_read(coming[0], _place(coming[2], coming[3][0], number // 2))
        else:
            ask_to_read(coming[1], _place(coming[2], coming[3][1], number // 2))
        inner = (load(g, i) - mean) * load(h, i)
        mass = load(x, i) + eps
        d_gamma = d_gamma + inner * log2(mass)
        store(g, i, inner * gamma / mass)
    return d_gamma * LN2


@_inline
def _unmove(
    g: Array, old: Array, low: int, high: int, zero: int, shares: Shares, mass: Lanes, d_old: Array
) -> tuple[Any, Any]:  # fmt: skip
    """Through the move: g -> d_old in lines low..high-1. Returns gradients of stay and jump."""
    stay, jump, _ = shares
    at = load(g, (zero - 1) * LANES), load(g, zero * LANES), load(g, (zero + 1) * LANES)
    share = jump[0] * at[0] + jump[1] * at[1] + jump[2] * at[2]  # of the mass: in every line
    left, here = load(g, (low - 1) * LANES), load(g, low * LANES)
    by_left = by_here = by_right = splat(0, left)
    for i in range(low * LANES, high * LANES, LANES):
        right, h = load(g, i + LANES), load(old, i)
        by_left, by_here, by_right = by_left + left * h, by_here + here * h, by_right + right * h
        store(d_old, i, share + stay[0] * left + stay[1] * here + stay[2] * right)
        left, here = here, right
    return (by_left, by_here, by_right), (at[0] * mass, at[1] * mass, at[2] * mass)


@compiled
def forward(x: Inputs, eps: float, size: Sizes, out: Array, rows: Rows, scratch: Array) -> None:
    """The histograms of the rows -> out (B T C L)."""
    for first in range(0, rows.row.size, LANES):
        scratch[:] = 0
        _forward(x, eps, size, out, _slice(rows, first), scratch)


@_inline
def _forward(x: Inputs, eps: float, size: Sizes, out: Array, rows: Rows, scratch: Array) -> None:
    low, high = _span(0, size)
    _load(x.start, rows.start, 0, scratch[0], low, high)
    mass = _sum(scratch[0], low, high)
    factor = splat(1, mass)  # what the lines have to be multiplied with
    for t in range(size.steps):
        old, new, skip = scratch[t % 2], scratch[1 - t % 2], t * size.cursors * size.last
        stay, jump, total = _gates(x, rows.gate, t * size.cursors)
        stay = stay[0] * factor, stay[1] * factor, stay[2] * factor
        mass = _step(old, new, x, rows, t, size, (stay, jump, total), mass)
        low, high = _span(t + 1, size)
        if x.gamma.size:
            gamma = gather(x.gamma, rows.row, 0)
            sound = mass + load(new, _origin(t, size)[0] * LANES)
            total = _sharpen(new, low, high, gamma, eps, out, rows.out, skip)
            factor = 1 / total + 0 * sound  # log2 gives numbers for NaNs, which must not be lost
            mass = splat(1, mass)
        _blank(out, rows.out, skip, low - PAD, high - PAD, size)
        _store(new, low, high, out, rows.out, skip + low - PAD, factor)


@compiled
def backward(
    x: Inputs, eps: float, size: Sizes, out: Array, grad: Array, d: Inputs, rows: Rows,
    scratch: Array,
) -> None:  # fmt: skip
    """Gradients of the inputs of the rows -> d, from what `forward` gave and its gradient."""
    for first in range(0, rows.row.size, LANES):
        scratch[:] = 0
        _backward(x, eps, size, out, grad, d, _slice(rows, first), scratch)


@_inline
def _recall(
    x: Inputs, size: Sizes, out: Array, grad: Array, t: int, rows: Rows, old: Array, g: Array
) -> None:  # fmt: skip
    """The gradient of step t -> g, the histogram before it -> old."""
    step = size.cursors * size.last
    low, high = _span(t + 1, size)
    _load(grad, rows.out, t * step + low - PAD, g, low, high)
    low, high = _span(t, size)
    if t == 0:
        _load(x.start, rows.start, 0, old, low, high)
        return
    _load(out, rows.out, (t - 1) * step + low - PAD, old, low, high)


@_inline
def _backward(
    x: Inputs, eps: float, size: Sizes, out: Array, grad: Array, d: Inputs, rows: Rows,
    scratch: Array,
) -> None:  # fmt: skip
    """What was sharpened is computed again from the step before: it is not kept."""
    g, carry, raw = scratch[2], scratch[3], scratch[4]
    low, high = _span(size.steps, size)
    last = (size.steps - 1) * size.cursors * size.last
    _load(out, rows.out, last + low - PAD, scratch[size.steps % 2], low, high)
    d_gamma, one = splat(0, load(carry, 0)), splat(1, load(carry, 0))
    for t in range(size.steps - 1, -1, -1):
        now, old, gate = scratch[1 - t % 2], scratch[t % 2], t * size.cursors
        _recall(x, size, out, grad, t, rows, old, g)
        mean = _collect(g, carry, now, low, high)
        was_low, was_high = _span(t, size)
        mass = splat(1, d_gamma) if t and x.gamma.size else _sum(old, was_low, was_high)
        shares = _gates(x, rows.gate, gate)
        if x.gamma.size:
            _step(old, raw, x, rows, t, size, shares, mass)
            gamma = gather(x.gamma, rows.row, 0)
            before = (t - 1) * size.cursors * size.last + was_low - PAD
            skips = before, before - size.cursors * size.last + 1
            coming = grad, out, rows.out, skips
            d_gamma = d_gamma + _unsharpen(g, now, raw, low, high, mean, gamma, eps, coming)
        zero, count = _origin(t, size)
        _store(g, zero + 1, zero + 1 + count, d.source, rows.source, gate * size.sources, one)
        if size.one_sided:
            store(g, (PAD - 1) * LANES, load(g, PAD * LANES))
        low, high = was_low, was_high
        d_stay, d_jump = _unmove(g, old, low, high, zero, shares, mass, carry)
        _store_gates(x, rows.gate, gate, d_stay, d_jump, d)
    _store(carry, low, high, d.start, rows.start, 0, one)
    if x.gamma.size:
        scatter(d.gamma, rows.row, 0, d_gamma)
