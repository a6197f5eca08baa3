"""Rows of the numba back end: where they are, and how they come into scratch and back.

A row is one cursor of one sample, number i C + c. LANES rows run side by side in scratch that stays
in the first-level cache, bin after bin: a line is one bin of LANES rows, a `Vector`, so a shift is
the next line and no sum crosses lanes. Tensors are (B, T, C, bins), here as flat memory, and are
transposed while they are loaded or stored. Bin d of a histogram is line d + PAD; `low` and `high`
are lines.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from pezoo.kernels.simd.compile import inline
from pezoo.kernels.simd.memory import (
    gather,
    load,
    load_rows,
    scatter,
    store,
    store_rows,
)
from pezoo.kernels.simd.vector import LANES, splat

PAD = 2  # lines of zeros around the live ones, so that no shift has to look at an edge
ARRAYS = 5  # of one line for each bin, in the scratch
CACHE_LINE = 16  # float32 numbers
Pointer = Any  # to float32 or float64, or to integers: an array would have its references counted
Lanes = Any  # a Vector


class Inputs(NamedTuple):
    """What the scan reads, or the gradients of it: addresses, and pointers once `opened`."""

    reset: Pointer  # (B T C), like incr, decr and none
    incr: Pointer
    decr: Pointer
    none: Pointer
    source: Pointer  # (B T C S); S = 0 without a copy branch
    gamma: Pointer  # (B C), read where it sharpens
    start: Pointer  # (B C L0)


class Sizes(NamedTuple):
    steps: int
    cursors: int
    sources: int  # S
    first: int  # L0
    last: int  # L
    one_sided: bool
    sharpened: bool
    streamed: bool  # histograms are written past the caches


class Rows(NamedTuple):
    """Where each row begins: addresses of integers, then pointers.

    Step t is t C numbers, or t C S and t C L, further.
    """

    row: Pointer
    start: Pointer
    gate: Pointer
    source: Pointer
    out: Pointer
    own: Pointer  # among LANES rows of L numbers


@inline
def lines_of(size: Sizes) -> int:
    """The numbers of one array of the scratch: a line for each bin, and zeros around."""
    return (size.last + 2 * PAD) * LANES


@inline
def clear(x: Pointer, count: int) -> None:
    zero = 0 * splat(0, load(x, 0))
    for i in range(0, count, LANES):
        store(x, i, zero)


@inline
def span(t: int, size: Sizes) -> tuple[int, int]:
    """The lines that can hold mass after t steps."""
    if size.one_sided:
        return PAD, PAD + size.first + t
    return PAD + size.steps - t, PAD + size.steps + size.first + t


@inline
def origin(t: int, size: Sizes) -> tuple[int, int]:
    """The line of offset 0, and how many tokens can be copied from at step t."""
    before = size.first - 1 if size.one_sided else size.first // 2
    zero = PAD if size.one_sided else PAD + size.steps + before
    return zero, min(size.sources, before + t + 1)


@inline
def coming(at: Pointer, skip: int, i: int) -> int:
    """Of number i of all cache lines of the rows at + skip: first lines first."""
    place: int = at[i & (LANES - 1)] + skip + i // LANES * CACHE_LINE
    return place


@inline
def load_lines(
    tensor: Pointer, at: Pointer, skip: int, lines: Pointer, low: int, high: int
) -> None:
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


@inline
def store_lines(
    lines: Pointer, low: int, high: int, tensor: Pointer, at: Pointer, skip: int, factor: Lanes
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


@inline
def blank(tensor: Pointer, at: Pointer, skip: int, low: int, high: int, size: Sizes) -> None:
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
