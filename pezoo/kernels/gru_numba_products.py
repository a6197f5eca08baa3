"""Products of four samples' numbers with a panel of weights, for the GRU's numba kernels.

A panel is what three vectors of products need of the weights, one line of 3 LANES numbers for each
number that they are multiplied with: line k of panel p begins at (p depth + k) 3 LANES.
"""

from __future__ import annotations

from typing import Any

from pezoo.kernels.numba_cache import inline
from pezoo.kernels.numba_memory import load, load_splat, store
from pezoo.kernels.numba_vectors import LANES

ROWS = 4  # samples that share what is read of the weights
Pointer = Any  # to float32 or float64: an array would have its references counted in the loops
Lanes = Any  # a Vector
Sums = tuple[Any, ...]  # three Lanes
Four = tuple[Sums, Sums, Sums, Sums]  # one for each row
Places = tuple[int, int, int, int]  # where four rows begin


@inline
def places_of(row: int, end: int, step: int, skip: int) -> Places:
    """Where four rows begin that are `step` apart; the last may be repeated."""
    last = end - 1
    return (
        row * step + skip,
        min(row + 1, last) * step + skip,
        min(row + 2, last) * step + skip,
        min(row + 3, last) * step + skip,
    )


@inline
def _add(sums: Sums, x: Lanes, y: Sums) -> Sums:
    return sums[0] + x * y[0], sums[1] + x * y[1], sums[2] + x * y[2]


@inline
def products(sums: Four, x: Pointer, at: Places, depth: int, panel: Pointer, skip: int) -> Four:
    """sums + x[at[i] + k] times line k of a panel that begins at `skip`, for four rows i."""
    a, b, c, d = sums
    for k in range(depth):
        line = skip + k * 3 * LANES
        y = load(panel, line), load(panel, line + LANES), load(panel, line + 2 * LANES)
        a = _add(a, load_splat(x, at[0] + k), y)
        b = _add(b, load_splat(x, at[1] + k), y)
        c = _add(c, load_splat(x, at[2] + k), y)
        d = _add(d, load_splat(x, at[3] + k), y)
    return a, b, c, d


@inline
def store_three(x: Pointer, at: int, places: tuple[int, int, int], y: Sums) -> None:
    store(x, at + places[0], y[0])
    store(x, at + places[1], y[1])
    store(x, at + places[2], y[2])


@inline
def load_three(x: Pointer, at: int, places: tuple[int, int, int]) -> Sums:
    return load(x, at + places[0]), load(x, at + places[1]), load(x, at + places[2])
