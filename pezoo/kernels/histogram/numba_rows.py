"""A row of the numba back end, one cursor of one sample: where its bins are, and vectors of them.

A histogram is copied to scratch that stays in the first-level cache, where vectors of LANES bins
are computed with. Bin d is number d + margin there; `low` and `high` are numbers too, of the bins
that can hold mass. Vectors may reach past `high`: what they write there is zero, is made zero, or
is never read.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from pezoo.kernels.simd.compile import inline
from pezoo.kernels.simd.memory import beyond, load, store
from pezoo.kernels.simd.vector import LANES, highest, total

ARRAYS = 4  # in the scratch, of one number for each bin; and one more for each cursor
Pointer = Any  # to float32 or float64: an array would have its references counted
Lanes = Any  # a Vector
Number = Any


class Inputs(NamedTuple):
    """Inputs of the scan, or their gradients: addresses, and pointers once `opened`."""

    start: Pointer  # (B C L0)
    kept: Pointer  # (B T C J)
    fresh: Pointer  # (B T C J)
    source: Pointer  # (B T C S); S = 0 without a copy branch
    gamma: Pointer  # (B C), read where it sharpens


class Sizes(NamedTuple):
    steps: int
    cursors: int
    moves: int  # J
    sources: int  # S
    first: int  # L0
    last: int  # L
    one_sided: bool
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
    return margin_of(size) + (0 if size.one_sided else size.last // 2)


@inline
def span(t: int, size: Sizes) -> tuple[int, int]:
    """Return the bins that can hold mass after t steps."""
    if size.one_sided:
        return margin_of(size), margin_of(size) + size.first + t
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
def tokens_of(t: int, size: Sizes) -> int:
    """Return the number of tokens that can be copied at step t."""
    seen = size.first - 1 if size.one_sided else size.first // (size.moves - 1)
    return min(size.sources, seen + t + 1)


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
