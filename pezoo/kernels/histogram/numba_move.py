"""One move of LANES rows in the numba back end, and its gradient."""

from __future__ import annotations

from typing import Any

from pezoo.kernels.histogram.numba_rows import (
    PAD,
    Inputs,
    Lanes,
    Pointer,
    Rows,
    Sizes,
    coming,
    origin,
    span,
)
from pezoo.kernels.simd.compile import inline
from pezoo.kernels.simd.memory import ask_to_read, gather, load, scatter, store
from pezoo.kernels.simd.vector import LANES, larger, splat, where_negative

Shares = tuple[Any, Any, Lanes]  # three Lanes, three Lanes, and the sum of all


@inline
def shares(x: Inputs, at: Pointer, skip: int) -> Shares:
    """The shares of mass that go by -1, 0, 1, from where they are and from offset 0; their sum."""
    incr, decr, none = gather(x.incr, at, skip), gather(x.decr, at, skip), gather(x.none, at, skip)
    room = 1 - incr - decr
    keep = larger(room, 0 * room)
    jump = none * gather(x.reset, at, skip)
    stay = none - jump
    stays, jumps = (stay * decr, stay * keep, stay * incr), (jump * decr, jump * keep, jump * incr)
    return stays, jumps, none * (decr + keep + incr)


@inline
def store_gates(x: Inputs, at: Pointer, skip: int, d_stay: Any, d_jump: Any, d: Inputs) -> None:
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


@inline
def _add(lines: Pointer, d: int, value: Lanes) -> None:
    store(lines, d * LANES, load(lines, d * LANES) + value)


@inline
def total(lines: Pointer, low: int, high: int) -> Lanes:
    """The sum of lines."""
    found = load(lines, low * LANES)
    for d in range(low + 1, high):
        found = found + load(lines, d * LANES)
    return found


@inline
def move(
    old: Pointer, new: Pointer, x: Inputs, rows: Rows, t: int, size: Sizes, shared: Shares,
    mass: Lanes, eps: Lanes,
) -> Lanes:  # fmt: skip
    """The move and the copy of step t: old, of that mass, -> new + eps. Returns the mass of new.

    It is computed from the shares: rounding in single bins must not add up over the steps.
    """
    stay, jump, kept = shared
    low, high = span(t + 1, size)
    zero, count = origin(t, size)
    for i in range((low - size.one_sided) * LANES, high * LANES, LANES):
        moved = eps + stay[1] * load(old, i)
        moved = moved + stay[0] * load(old, i + LANES) + stay[2] * load(old, i - LANES)
        store(new, i, moved)
    _add(new, zero - 1, jump[0] * mass)
    _add(new, zero, jump[1] * mass)
    _add(new, zero + 1, jump[2] * mass)
    if size.one_sided:  # what would go below offset 0 stays there
        below = load(new, (PAD - 1) * LANES)
        _add(new, PAD, below - eps)
        store(new, (PAD - 1) * LANES, splat(0, below))
    mass = kept * mass
    for j in range(count):
        copied = gather(x.source, rows.source, t * size.cursors * size.sources + j)
        _add(new, zero + 1 + j, copied)
        mass = mass + copied
    return mass


@inline
def unmove(
    g: Pointer, old: Pointer, low: int, high: int, zero: int, shared: Shares, mass: Lanes,
    before: Pointer, out: Pointer, rows: Pointer, skip: int,
) -> tuple[Any, Any, Lanes]:  # fmt: skip
    """Through the move: from g added to `before` in lines low..high-1, the gradient of old.

    Returns the gradients of stay and of jump, and the sum of before times old. Meanwhile it asks
    for out[rows + skip], which is read next.
    """
    stay, jump, _ = shared
    at = load(g, (zero - 1) * LANES), load(g, zero * LANES), load(g, (zero + 1) * LANES)
    share = jump[0] * at[0] + jump[1] * at[1] + jump[2] * at[2]  # of the mass: in every line
    left, here = load(g, (low - 1) * LANES), load(g, low * LANES)
    by_left = by_here = by_right = product = splat(0, left)
    for i in range(low * LANES, high * LANES, LANES):
        if i & LANES:
            ask_to_read(out, coming(rows, skip, (i - low * LANES) // (2 * LANES)))
        right, h = load(g, i + LANES), load(old, i)
        by_left, by_here, by_right = by_left + left * h, by_here + here * h, by_right + right * h
        one = load(before, i) + share
        one = one + stay[0] * left + stay[1] * here + stay[2] * right
        store(before, i, one)
        product = product + one * h
        left, here = here, right
    return (by_left, by_here, by_right), (at[0] * mass, at[1] * mass, at[2] * mass), product
