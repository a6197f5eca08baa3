"""The loops of a GRU's recurrence in numba: four samples and LANES units at a time.

The products with the weights are those of gru_numba_products.py. A panel holds, forward, the three
gates of LANES units, and backward 3 LANES units. Where units do not fill the last vectors, or
samples the last four, some are computed twice.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from pezoo.kernels.gru_numba_products import (
    ROWS,
    Lanes,
    Pointer,
    Sums,
    load_three,
    places_of,
    products,
    store_three,
)
from pezoo.kernels.numba_cache import compiled, inline
from pezoo.kernels.numba_math import sigmoid, tanh
from pezoo.kernels.numba_memory import load, pointer, store
from pezoo.kernels.numba_vectors import LANES

GROUP = 16  # samples that are taken through time together


class Sizes(NamedTuple):
    steps: int  # T
    units: int  # H
    noisy: bool  # else there is no noise
    kept: bool  # else no gates are written


class Inputs(NamedTuple):
    """What the recurrence reads: addresses, which `_opened` makes pointers."""

    given: Pointer  # (B T 3H): W x + b of r, z and n
    noise: Pointer  # (B T H)
    bias: Pointer  # (3H)
    start: Pointer  # (B H)


class Kept(NamedTuple):
    """What forward writes."""

    out: Pointer  # (B T H)
    gates: Pointer  # (B T 4H): r, z, n and W_n h + b_n


class Gradients(NamedTuple):
    """The gradient of the output, and those that backward writes."""

    out: Pointer  # (B T H)
    given: Pointer  # (B T 3H)
    gated: Pointer  # (B T H): of W_n h + b_n
    start: Pointer  # (B H): also what is carried from step to step


@inline
def _opened(x: Any, like: Any) -> Any:
    """Four addresses as pointers to numbers like that."""
    return pointer(x[0], like), pointer(x[1], like), pointer(x[2], like), pointer(x[3], like)


@inline
def _cell(
    x: Inputs, y: Kept, sums: Sums, given: int, before: tuple[Pointer, int], unit: int, size: Sizes
) -> None:
    """One row, LANES units: `given` is where its step begins in x.given."""
    units = size.units
    here, row = given + unit, given // 3 + unit
    r = sigmoid(load(x.given, here) + sums[0])
    z = sigmoid(load(x.given, here + units) + sums[1])
    n = tanh(load(x.given, here + 2 * units) + r * sums[2])
    h = n + z * (load(before[0], before[1] + unit) - n)
    if size.noisy:
        h = h + load(x.noise, row)
    store(y.out, row, h)
    if size.kept:
        kept = given // 3 * 4 + unit
        store(y.gates, kept, r)
        store(y.gates, kept + units, z)
        store(y.gates, kept + 2 * units, n)
        store(y.gates, kept + 3 * units, sums[2])


@inline
def _step(
    x: Inputs, y: Kept, panels: Pointer, size: Sizes, t: int, h: Pointer, rows: tuple[int, int],
    step: int, skip: int,
) -> None:  # fmt: skip
    """Step t of a group of rows, whose states before it are `step` apart in h, from `skip` on."""
    units = size.units
    for panel in range(-(-units // LANES)):
        unit = min(panel * LANES, units - LANES)
        bias = (
            load(x.bias, unit),
            load(x.bias, unit + units),
            load(x.bias, unit + 2 * units),
        )
        for row in range(rows[0], rows[1], ROWS):
            at = places_of(row, rows[1], step, skip)
            sums = bias, bias, bias, bias
            sums = products(sums, h, at, units, panels, panel * units * 3 * LANES)
            given = places_of(row, rows[1], size.steps * 3 * units, t * 3 * units)
            _cell(x, y, sums[0], given[0], (h, at[0]), unit, size)
            _cell(x, y, sums[1], given[1], (h, at[1]), unit, size)
            _cell(x, y, sums[2], given[2], (h, at[2]), unit, size)
            _cell(x, y, sums[3], given[3], (h, at[3]), unit, size)


@compiled
def forward(x: Inputs, y: Kept, panels: int, size: Sizes, like: Any, first: int, last: int) -> None:
    """The states after every step of the rows first..last-1 -> y; numbers are like that one."""
    x = Inputs(*_opened(x, like))
    y = Kept(pointer(y.out, like), pointer(y.gates, like))
    panels = pointer(panels, like)
    for start in range(first, last, GROUP):
        rows = start, min(start + GROUP, last)
        _step(x, y, panels, size, 0, x.start, rows, size.units, 0)
        for t in range(1, size.steps):
            long = size.steps * size.units
            _step(x, y, panels, size, t, y.out, rows, long, (t - 1) * size.units)


@inline
def _cell_back(
    g: Lanes, y: Kept, d: Gradients, before: Lanes, row: int, unit: int, units: int
) -> Lanes:
    """From the gradient of LANES units of a state -> what stays of it a step before.

    `row` is where the state begins in (B T H).
    """
    kept, here = row * 4 + unit, row * 3 + unit
    r, z = load(y.gates, kept), load(y.gates, kept + units)
    n, hidden = load(y.gates, kept + 2 * units), load(y.gates, kept + 3 * units)
    stays = g * z
    d_n = (g - stays) * (1 - n * n)
    d_hidden = d_n * r
    store(d.given, here, d_hidden * hidden * (1 - r))
    store(d.given, here + units, (before - n) * stays * (1 - z))
    store(d.given, here + 2 * units, d_n)
    store(d.gated, row + unit, d_hidden)
    return stays


@inline
def _pointwise(
    start: Pointer, y: Kept, d: Gradients, size: Sizes, stays: Pointer, t: int,
    rows: tuple[int, int],
) -> None:  # fmt: skip
    """`_cell_back` for all units of a group of rows at step t."""
    units, first = size.units, rows[0]
    for b in range(first, rows[1]):
        row, own = (b * size.steps + t) * units, b * units
        for i in range(0, units, LANES):
            unit = min(i, units - LANES)
            before = load(y.out, row - units + unit) if t else load(start, own + unit)
            g = load(d.out, row + unit) + load(d.start, own + unit)
            kept = _cell_back(g, y, d, before, row, unit, units)
            store(stays, (b - first) * units + unit, kept)


@inline
def _carry(
    d: Gradients, stays: Pointer, panels: Pointer, size: Sizes, t: int, rows: tuple[int, int]
) -> None:
    """The gradient of the state before step t, from those of the gates and from what stays."""
    units, depth, low = size.units, 3 * size.units, size.units - LANES
    for panel in range(-(-units // (3 * LANES))):
        unit, skip = panel * 3 * LANES, panel * depth * 3 * LANES
        places = min(unit, low), min(unit + LANES, low), min(unit + 2 * LANES, low)
        for row in range(rows[0], rows[1], ROWS):
            own = places_of(row - rows[0], rows[1] - rows[0], units, 0)
            given = places_of(row, rows[1], size.steps * depth, t * depth)
            gated = places_of(row, rows[1], size.steps * units, t * units)
            sums = (
                load_three(stays, own[0], places),
                load_three(stays, own[1], places),
                load_three(stays, own[2], places),
                load_three(stays, own[3], places),
            )
            sums = products(sums, d.given, given, 2 * units, panels, skip)
            skip_n = skip + 2 * units * 3 * LANES
            sums = products(sums, d.gated, gated, units, panels, skip_n)
            into = places_of(row, rows[1], units, 0)
            store_three(d.start, into[0], places, sums[0])
            store_three(d.start, into[1], places, sums[1])
            store_three(d.start, into[2], places, sums[2])
            store_three(d.start, into[3], places, sums[3])


@compiled
def backward(
    start: int, y: Kept, d: Gradients, panels: int, size: Sizes, stays: int, like: Any, first: int,
    last: int,
) -> None:  # fmt: skip
    """Gradients of the rows first..last-1 -> d, whose `start` is zero at first."""
    start, stays, panels = pointer(start, like), pointer(stays, like), pointer(panels, like)
    y = Kept(pointer(y.out, like), pointer(y.gates, like))
    d = Gradients(*_opened(d, like))
    for low in range(first, last, GROUP):
        high = min(low + GROUP, last)
        for t in range(size.steps - 1, -1, -1):
            _pointwise(start, y, d, size, stays, t, (low, high))
            _carry(d, stays, panels, size, t, (low, high))
