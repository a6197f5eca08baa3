"""Products of tall matrices with small ones, for the numba kernels.

Matrices come as pointers and the distances of their rows. A tile of the result, a few rows of
`COLUMNS` numbers, is summed in registers; columns come in multiples of that.
"""

from __future__ import annotations

from typing import Any

from pezoo.kernels.attention_numba_rows import Lanes, Pointer, called
from pezoo.kernels.numba_cache import inline
from pezoo.kernels.numba_memory import load, load_splat, store
from pezoo.kernels.numba_vectors import LANES, splat

COLUMNS = 2 * LANES


@inline
def _one(
    a: Pointer, i: int, b: Pointer, j: int, skip: int, count: int, bias: Pointer
) -> tuple[Lanes, Lanes]:
    """bias[j : j + COLUMNS] + sum_k a[i + k] b[k, j : j + COLUMNS]."""
    p, q = load(bias, j), load(bias, j + LANES)
    for k in range(count):
        s, at = load_splat(a, i + k), k * skip + j
        p, q = p + s * load(b, at), q + s * load(b, at + LANES)
    return p, q


@inline
def _six(
    a: Pointer, i: int, row: int, b: Pointer, j: int, skip: int, count: int, bias: Pointer
) -> Any:
    """The same for six rows of a, `row` apart."""
    p0 = p1 = p2 = p3 = p4 = p5 = load(bias, j)
    q0 = q1 = q2 = q3 = q4 = q5 = load(bias, j + LANES)
    for k in range(count):
        at = k * skip + j
        x, y, n = load(b, at), load(b, at + LANES), i + k
        s = load_splat(a, n)
        p0, q0 = p0 + s * x, q0 + s * y
        s = load_splat(a, n + row)
        p1, q1 = p1 + s * x, q1 + s * y
        s = load_splat(a, n + 2 * row)
        p2, q2 = p2 + s * x, q2 + s * y
        s = load_splat(a, n + 3 * row)
        p3, q3 = p3 + s * x, q3 + s * y
        s = load_splat(a, n + 4 * row)
        p4, q4 = p4 + s * x, q4 + s * y
        s = load_splat(a, n + 5 * row)
        p5, q5 = p5 + s * x, q5 + s * y
    return (p0, q0), (p1, q1), (p2, q2), (p3, q3), (p4, q4), (p5, q5)


@inline
def _put(out: Pointer, at: int, x: tuple[Lanes, Lanes], more: bool) -> None:
    """out[at : at + COLUMNS] = x, or += x."""
    if more:
        x = x[0] + load(out, at), x[1] + load(out, at + LANES)
    store(out, at, x[0])
    store(out, at + LANES, x[1])


@called
def multiply(
    a: Pointer, row: int, b: Pointer, skip: int, out: Pointer, line: int, rows: int, count: int,
    columns: int, bias: Pointer, more: bool,
) -> None:  # fmt: skip
    """bias + a (rows, count) b (count, columns) -> out, or added to it."""
    whole = rows // 6 * 6
    for j in range(0, columns, COLUMNS):
        for i in range(0, whole, 6):
            x, at = _six(a, i * row, row, b, j, skip, count, bias), i * line + j
            _put(out, at, x[0], more)
            _put(out, at + line, x[1], more)
            _put(out, at + 2 * line, x[2], more)
            _put(out, at + 3 * line, x[3], more)
            _put(out, at + 4 * line, x[4], more)
            _put(out, at + 5 * line, x[5], more)
        for i in range(whole, rows):
            _put(out, i * line + j, _one(a, i * row, b, j, skip, count, bias), more)


@inline
def _four(a: Pointer, i: int, row: int, b: Pointer, j: int, skip: int, rows: int) -> Any:
    """sum_r a[r, i + n] b[r, j : j + COLUMNS] for n < 4."""
    p0 = q0 = p1 = q1 = p2 = q2 = p3 = q3 = splat(0, load(b, j))
    for r in range(rows):
        x, y, n = load(b, r * skip + j), load(b, r * skip + j + LANES), r * row + i
        s = load_splat(a, n)
        p0, q0 = p0 + s * x, q0 + s * y
        s = load_splat(a, n + 1)
        p1, q1 = p1 + s * x, q1 + s * y
        s = load_splat(a, n + 2)
        p2, q2 = p2 + s * x, q2 + s * y
        s = load_splat(a, n + 3)
        p3, q3 = p3 + s * x, q3 + s * y
    return (p0, q0), (p1, q1), (p2, q2), (p3, q3)


@called
def add_outer(a: Pointer, height: int, b: Pointer, columns: int, out: Pointer, rows: int) -> None:
    """out (height, columns) += a^T b for a (rows, height) and b (rows, columns); height is 4 n."""
    for i in range(0, height, 4):
        for j in range(0, columns, COLUMNS):
            x, at = _four(a, i, height, b, j, columns, rows), i * columns + j
            _put(out, at, x[0], True)
            _put(out, at + columns, x[1], True)
            _put(out, at + 2 * columns, x[2], True)
            _put(out, at + 3 * columns, x[3], True)
