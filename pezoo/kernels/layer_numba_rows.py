"""GELU and layer norm over rows in memory, LANES numbers at a time, for a layer's numba kernels.

Rows lie without gaps; their width is a multiple of LANES. What ends in `_sum` is added to.
"""

from __future__ import annotations

import math

from pezoo.kernels.attention_numba_rows import Pointer, called
from pezoo.kernels.numba_memory import load, load_splat, store
from pezoo.kernels.numba_normal import normal
from pezoo.kernels.numba_vectors import LANES, splat, total

DENSITY = 1 / math.sqrt(2 * math.pi)


@called
def gelu(x: Pointer, out: Pointer, count: int) -> None:
    """GELU of x -> out."""
    for i in range(0, count, LANES):
        y = load(x, i)
        share, _ = normal(y)
        store(out, i, y * share)


@called
def gelu_backward(
    x: Pointer, d: Pointer, out: Pointer, d_sum: Pointer, rows: int, width: int
) -> None:
    """GELU of x -> out; d, its gradient, -> that of x."""
    for i in range(0, rows * width, width):
        for j in range(0, width, LANES):
            y = load(x, i + j)
            share, power = normal(y)
            store(out, i + j, y * share)
            d_y = load(d, i + j) * (share + y * (power * DENSITY))
            store(d, i + j, d_y)
            store(d_sum, j, load(d_sum, j) + d_y)


@called
def norm(
    x: Pointer, weight: Pointer, bias: Pointer, eps: float, moments: Pointer, out: Pointer,
    rows: int, width: int,
) -> None:  # fmt: skip
    """Layer norm -> out; each row's mean, and one over its standard deviation, -> moments."""
    zero = splat(0, load(x, 0))
    for n in range(rows):
        i, s = n * width, zero
        for j in range(0, width, LANES):
            s = s + load(x, i + j)
        moments[2 * n], s = total(s) / width, zero
        mean = load_splat(moments, 2 * n)
        for j in range(0, width, LANES):
            off = load(x, i + j) - mean
            s = s + off * off
        moments[2 * n + 1] = 1 / math.sqrt(total(s) / width + eps)
        factor = load_splat(moments, 2 * n + 1)
        for j in range(0, width, LANES):
            y = (load(x, i + j) - mean) * factor
            store(out, i + j, y * load(weight, j) + load(bias, j))


@called
def norm_backward(
    x: Pointer, weight: Pointer, bias: Pointer, moments: Pointer, d: Pointer, out: Pointer,
    into: Pointer, weight_sum: Pointer, bias_sum: Pointer, rows: int, width: int,
) -> None:  # fmt: skip
    """Layer norm -> out; the gradient of x, for that of the output, d, is added to `into`."""
    zero = splat(0, load(x, 0))
    for n in range(rows):
        i, s, t = n * width, zero, zero
        mean, factor = load_splat(moments, 2 * n), load_splat(moments, 2 * n + 1)
        for j in range(0, width, LANES):
            y, g = (load(x, i + j) - mean) * factor, load(d, i + j)
            store(out, i + j, y * load(weight, j) + load(bias, j))
            store(weight_sum, j, load(weight_sum, j) + g * y)
            store(bias_sum, j, load(bias_sum, j) + g)
            g = g * load(weight, j)
            s, t = s + g, t + g * y
        u, v = splat(total(s) / width, zero), splat(total(t) / width, zero)
        for j in range(0, width, LANES):
            y = (load(x, i + j) - mean) * factor
            g = load(d, i + j) * load(weight, j) - u - y * v
            store(into, i + j, load(into, i + j) + g * factor)


@called
def add(x: Pointer, out: Pointer, count: int) -> None:
    """out += x."""
    for i in range(0, count, LANES):
        store(out, i, load(out, i) + load(x, i))


@called
def add_up(x: Pointer, row_sum: Pointer, rows: int, width: int) -> None:
    """The sum of the rows of x is added to row_sum."""
    for i in range(0, rows * width, width):
        for j in range(0, width, LANES):
            store(row_sum, j, load(row_sum, j) + load(x, i + j))
