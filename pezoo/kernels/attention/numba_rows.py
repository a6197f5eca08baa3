"""Rows of numbers in memory, LANES at a time or four rows at a time, for attention's numba kernels.

A row in scratch has a multiple of LANES numbers.
"""

import math
from typing import Any

from pezoo.kernels.simd.compile import called, inline
from pezoo.kernels.simd.vector import LANES, load, load_splat, splat, store, total, where_negative

INFINITY = math.inf
Pointer = Any  # to float32 or float64
Lanes = Any  # a Vector
Four = tuple[Any, Any, Any, Any]  # of Lanes, one for each row


@inline
def ceil(n: int) -> int:
    return (n + LANES - 1) // LANES * LANES


@called
def copy(x: Pointer, skip: int, rows: int, width: int, out: Pointer) -> None:
    """Copy rows of x, `skip` apart, to rows of out, whose length is rounded up."""
    step, whole = ceil(width), width // LANES * LANES
    for i in range(rows):
        for j in range(0, whole, LANES):
            store(out, i * step + j, load(x, i * skip + j))
        for j in range(whole, width):
            out[i * step + j] = x[i * skip + j]


@called
def transpose(x: Pointer, skip: int, rows: int, width: int, out: Pointer) -> None:
    """Copy rows of x to columns of out, whose rows are rounded up."""
    step = ceil(rows)
    for i in range(rows):
        for j in range(width):
            out[j * step + i] = x[i * skip + j]


@inline
def put(x: Lanes, out: Pointer, at: int, f: int, width: int, line: Pointer) -> None:
    """Store out[at + f : at + f + LANES] = x, up to the width."""
    if f + LANES <= width:
        store(out, at + f, x)
        return
    store(line, 0, x)
    for n in range(width - f):
        out[at + f + n] = line[n]


@called
def put_rows(x: Pointer, rows: int, width: int, factor: float, out: Pointer, skip: int) -> None:
    """Copy rows of x, whose length is rounded up, times a factor to rows of out, `skip` apart."""
    step, whole = ceil(width), width // LANES * LANES
    for i in range(rows):
        for j in range(0, whole, LANES):
            store(out, i * skip + j, load(x, i * step + j) * factor)
        for j in range(whole, width):
            out[i * skip + j] = x[i * step + j] * factor


@inline
def put_four(
    x: Four, count: int, out: Pointer, skip: int, f: int, width: int, line: Pointer
) -> None:
    """Store the first `count` of four rows, from feature f on."""
    put(x[0], out, 0, f, width, line)
    if count > 1:
        put(x[1], out, skip, f, width, line)
    if count > 2:
        put(x[2], out, 2 * skip, f, width, line)
    if count > 3:
        put(x[3], out, 3 * skip, f, width, line)


@inline
def four(x: Pointer, skip: int, i: int) -> Four:
    return load(x, i), load(x, i + skip), load(x, i + 2 * skip), load(x, i + 3 * skip)


@inline
def store_four(x: Pointer, skip: int, i: int, y: Four) -> None:
    store(x, i, y[0])
    store(x, i + skip, y[1])
    store(x, i + 2 * skip, y[2])
    store(x, i + 3 * skip, y[3])


@inline
def splat_four(x: Pointer, skip: int, i: int) -> Four:
    return (
        load_splat(x, i),
        load_splat(x, i + skip),
        load_splat(x, i + 2 * skip),
        load_splat(x, i + 3 * skip),
    )


@inline
def products(a: Pointer, skip: int, count: int, b: Pointer, step: int, j: int) -> Four:
    """Return sum_n a[row, n] b[n, j : j + LANES] for four rows of a, n below count."""
    zero = splat(0, load(b, j))
    y = zero, zero, zero, zero
    for n in range(count):
        x, s = load(b, n * step + j), splat_four(a, skip, n)
        y = y[0] + s[0] * x, y[1] + s[1] * x, y[2] + s[2] * x, y[3] + s[3] * x
    return y


@inline
def add_outer(
    a: Pointer, skip: int, end: int, rows: Pointer, step: int, f: int, into: Pointer
) -> None:
    """Add sum over four rows a[row, j] rows[row, f...] to into[j, f...], j below the end."""
    r = four(rows, step, f)
    for j in range(end):
        s = splat_four(a, skip, j)
        y = load(into, j * step + f) + s[0] * r[0] + s[1] * r[1]
        store(into, j * step + f, y + (s[2] * r[2] + s[3] * r[3]))


@called
def add(into: Pointer, to: int, x: Pointer, at: int, count: int, factor: float) -> None:
    """Add factor x[at : at + count] to into[to : to + count]."""
    whole = count // LANES * LANES
    for j in range(0, whole, LANES):
        store(into, to + j, load(into, to + j) + load(x, at + j) * factor)
    for j in range(whole, count):
        into[to + j] += x[at + j] * factor


@called
def cut(w: Pointer, at: int, start: int, end: int, edge: Pointer) -> None:
    """Store -inf from start to the end of a row of logits."""
    first = start // LANES * LANES
    low = splat(-INFINITY, load(edge, 0))
    if first < end:
        seen = load(edge, LANES - (start - first))
        store(w, at + first, where_negative(seen, low, load(w, at + first)))
    for j in range(first + LANES, end, LANES):
        store(w, at + j, low)


@called
def add_pairs(
    w: Pointer, at: int, reader: Pointer, pairs: Pointer, size: tuple[int, int, int], factor: float
) -> None:
    """Add factor sum_c reader[c] pairs[c, j] to w[at + j]; size: c, a row of pairs, j."""
    count, long, end = size
    for j in range(0, end, LANES):
        x = splat(0, load(pairs, j))
        for c in range(count):
            x = x + load_splat(reader, c) * load(pairs, c * long + j)
        store(w, at + j, load(w, at + j) + x * factor)


@called
def pair_gradients(
    d_w: Pointer,
    at: int,
    read: tuple[Pointer, Pointer],
    into: tuple[Pointer, Pointer],
    size: tuple[int, int, int],
) -> None:
    """Backward of `add_pairs` at factor 1: write the reader's gradient, add to that of pairs."""
    (reader, pairs), (d_reader, d_pairs), (count, long, end) = read, into, size
    for c in range(count):
        own, x = load_splat(reader, c), splat(0, load(d_w, at))
        for j in range(0, end, LANES):
            g, row = load(d_w, at + j), c * long + j
            x = x + g * load(pairs, row)
            store(d_pairs, row, load(d_pairs, row) + g * own)
        d_reader[c] = total(x)
