"""The loops of the numba back end: blocks of rows, each taken through all steps.

A row is one cursor of one sample, number i C + c. As many rows as the scratch has lanes run side by
side in scratch (lines, lanes) that stays in cache: the inner loop runs over the lanes, so a shift
is the next line, a gate one number per lane, and no sum crosses lanes. Tensors are (B, T, C, bins);
a block of rows is turned while it is loaded or stored. Bin d of a histogram is line d + PAD, and
`low` and `high` are lines.

Two things are there for the compiler: the number of lanes is read from an array, as loops of a
constant length are unrolled before they are vectorised, and log2 and exp2 run over flat arrays.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numba import njit

from pezoo.kernels.histogram_numba_math import exp2, log2

PAD = 2  # lines of zeros around the live ones, so that no shift has to look at an edge
LN2 = float(np.log(2.0))
OPTIONS = {"fastmath": True, "error_model": "numpy"}
Array = Any  # of float32 or float64


class Inputs(NamedTuple):
    """What the scan reads, or the gradients of it."""

    reset: Array  # (B, T, C), like incr, decr and none
    incr: Array
    decr: Array
    none: Array
    source: Array  # (B, T, C, S); S = 0 without a copy branch
    gamma: Array  # (R,); empty without sharpening
    start: Array  # (B, 1, C, L0)


@njit(**OPTIONS)
def _span(t: int, steps: int, first: int, one_sided: bool) -> tuple[int, int]:
    """The lines that can hold mass after t of the steps, from a support of `first` bins."""
    if one_sided:
        return PAD, PAD + first + t
    return PAD + steps - t, PAD + steps + first + t


@njit(**OPTIONS)
def _load(lines: Array, rows: Array, row: int, t: int, low: int, high: int, bin: int) -> None:
    """Bins bin.. of step t of the rows -> lines low..high-1, with zeros around them."""
    c = rows.shape[2]
    for v in range(min(lines.shape[1], rows.shape[0] * c - row)):
        bins = rows[(row + v) // c, t, (row + v) % c]
        for d in range(high - low):
            lines[low + d, v] = bins[bin + d]
    lines[low - PAD : low] = 0
    lines[high : high + PAD] = 0


@njit(**OPTIONS)
def _store(
    lines: Array, scale: Array, rows: Array, row: int, t: int, low: int, high: int, bin: int
) -> None:
    """Lines low..high-1 times scale -> bins bin.. of step t of the rows; zero elsewhere."""
    c = rows.shape[2]
    for v in range(min(lines.shape[1], rows.shape[0] * c - row)):
        bins, factor = rows[(row + v) // c, t, (row + v) % c], scale[v]
        bins[:bin] = 0
        for d in range(high - low):
            bins[bin + d] = lines[low + d, v] * factor
        bins[bin + high - low :] = 0


@njit(**OPTIONS)
def _load_gates(x: Inputs, row: int, t: int, scale: Array, stay: Array, jump: Array) -> None:
    """The shares of mass that go by -1, 0, 1: stay from where they are, jump from offset 0.

    What stays is in units of 1 / scale.
    """
    c = x.reset.shape[2]
    for v in range(min(scale.size, x.reset.shape[0] * c - row)):
        at = (row + v) // c, t, (row + v) % c
        incr, decr, none = x.incr[at], x.decr[at], x.none[at]
        keep = max(1 - incr - decr, 0 * incr)
        jumps = none * x.reset[at]
        stays = (none - jumps) * scale[v]
        stay[0, v], stay[1, v], stay[2, v] = stays * decr, stays * keep, stays * incr
        jump[0, v], jump[1, v], jump[2, v] = jumps * decr, jumps * keep, jumps * incr


@njit(**OPTIONS)
def _store_gates(x: Inputs, row: int, t: int, stay: Array, jump: Array, out: Inputs) -> None:
    """Gradients of `stay` and `jump` (at scale 1) -> gradients of the gates."""
    c = x.reset.shape[2]
    for v in range(min(stay.shape[1], x.reset.shape[0] * c - row)):
        at = (row + v) // c, t, (row + v) % c
        reset, incr, decr, none = x.reset[at], x.incr[at], x.decr[at], x.none[at]
        room = 1 - incr - decr
        keep = max(room, 0 * room)
        left = (1 - reset) * stay[0, v] + reset * jump[0, v]
        same = (1 - reset) * stay[1, v] + reset * jump[1, v]
        right = (1 - reset) * stay[2, v] + reset * jump[2, v]
        out.none[at] = decr * left + keep * same + incr * right
        out.reset[at] = none * (
            decr * (jump[0, v] - stay[0, v])
            + keep * (jump[1, v] - stay[1, v])
            + incr * (jump[2, v] - stay[2, v])
        )
        same = same if room >= 0 else 0 * same
        out.incr[at] = none * (right - same)
        out.decr[at] = none * (left - same)


@njit(**OPTIONS)
def _sum(lines: Array, low: int, high: int, total: Array) -> None:
    total[:] = 0
    for d in range(low, high):
        for v in range(lines.shape[1]):
            total[v] += lines[d, v]


@njit(**OPTIONS)
def _add(lines: Array, more: Array, low: int, high: int) -> None:
    for d in range(low, high):
        for v in range(lines.shape[1]):
            lines[d, v] += more[d, v]


@njit(**OPTIONS)
def _move(
    old: Array, new: Array, stay: Array, jump: Array, mass: Array, low: int, high: int, zero: int
) -> None:
    """One move of the mass, into lines low..high-1; `zero` is the line of offset 0."""
    lanes = old.shape[1]
    for d in range(low, high):
        for v in range(lanes):
            new[d, v] = (
                stay[0, v] * old[d + 1, v] + stay[1, v] * old[d, v] + stay[2, v] * old[d - 1, v]
            )
    for i in range(3):
        for v in range(lanes):
            new[zero - 1 + i, v] += jump[i, v] * mass[v]


@njit(**OPTIONS)
def _copy(new: Array, source: Array, row: int, t: int, count: int, zero: int) -> None:
    """Token j's share of `source` is added at offset j + 1, for j < count."""
    c = source.shape[2]
    for v in range(min(new.shape[1], source.shape[0] * c - row)):
        shares = source[(row + v) // c, t, (row + v) % c]
        for j in range(count):
            new[zero + 1 + j, v] += shares[j]


@njit(**OPTIONS)
def _origin(x: Inputs, t: int, one_sided: bool) -> tuple[int, int]:
    """The line of offset 0, and how many tokens can be copied from at step t."""
    first = x.start.shape[3]
    before = first - 1 if one_sided else first // 2
    zero = PAD if one_sided else PAD + x.reset.shape[1] + before
    return zero, min(x.source.shape[3], before + t + 1)


@njit(**OPTIONS)
def _step(
    old: Array, new: Array, x: Inputs, row: int, t: int, stay: Array, jump: Array, mass: Array,
    one_sided: bool,
) -> None:  # fmt: skip
    """The move and the copy of step t: old -> new."""
    low, high = _span(t + 1, x.reset.shape[1], x.start.shape[3], one_sided)
    zero, count = _origin(x, t, one_sided)
    _move(old, new, stay, jump, mass, low - one_sided, high, zero)
    if one_sided:  # what would go below offset 0 stays there
        for v in range(new.shape[1]):
            new[PAD, v] += new[PAD - 1, v]
        new[PAD - 1] = 0
    _copy(new, x.source, row, t, count, zero)


@njit(**OPTIONS)
def _sharpen(h: Array, flat: Array, gamma: Array, eps: float, top: Array, total: Array) -> None:
    """h (n, lanes) <- ((h + eps) / max (h + eps))^gamma, total <- its sums; flat is h as (n,)."""
    n, lanes = h.shape
    for i in range(flat.size):
        flat[i] = log2(flat[i] + eps)
    top[:] = h[0]
    for d in range(1, n):
        for v in range(lanes):
            top[v] = h[d, v] if h[d, v] > top[v] else top[v]
    for d in range(n):
        for v in range(lanes):
            h[d, v] = gamma[v] * (h[d, v] - top[v])
    for i in range(flat.size):
        flat[i] = exp2(flat[i])
    _sum(h, 0, n, total)


@njit(nogil=True, cache=True, **OPTIONS)
def forward(x: Inputs, eps: float, one_sided: bool, out: Array, rows: range, lanes: int) -> None:
    """The histograms (B, T, C, L) of the rows -> out, `lanes` rows at a time."""
    width, dtype = out.shape[3] + 2 * PAD, out.dtype
    scratch = np.zeros((2, width, lanes), dtype)
    numbers = np.zeros((4, lanes), dtype)
    for row in range(rows[0], rows[1], lanes):
        _forward(x, eps, one_sided, out, row, scratch, numbers)


@njit(**OPTIONS)
def _forward(
    x: Inputs, eps: float, one_sided: bool, out: Array, row: int, scratch: Array, numbers: Array
) -> None:
    """One block. While sharpening, the scratch holds (h + eps)^gamma, not yet divided by its sum:
    that factor, `scale`, is left to the next step's gates."""
    steps, lanes = x.reset.shape[1], scratch.shape[2]
    gamma, top, mass, scale = numbers[0], numbers[1], numbers[2], numbers[3]
    stay, jump = np.zeros((3, lanes), out.dtype), np.zeros((3, lanes), out.dtype)
    _load_gamma(x, row, gamma)
    scratch[:] = 0
    scale[:] = 1
    low, high = _span(0, steps, x.start.shape[3], one_sided)
    _load(scratch[0], x.start, row, 0, low, high, 0)
    _sum(scratch[0], low, high, mass)
    for t in range(steps):
        old, new = scratch[t % 2], scratch[1 - t % 2]
        _load_gates(x, row, t, scale, stay, jump)
        _step(old, new, x, row, t, stay, jump, mass, one_sided)
        low, high = _span(t + 1, steps, x.start.shape[3], one_sided)
        if x.gamma.size:
            live = new[low:high]
            _sharpen(live, live.reshape(-1), gamma, eps, top, scale)
            for v in range(lanes):
                scale[v] = 1 / scale[v]
            mass[:] = 1
        else:
            _sum(new, low, high, mass)
        _store(new, scale, out, row, t, low, high, low - PAD)


@njit(**OPTIONS)
def _load_gamma(x: Inputs, row: int, gamma: Array) -> None:
    gamma[:] = 1
    known = x.gamma[row : row + gamma.size]
    gamma[: known.size] = known


@njit(**OPTIONS)
def _unsharpen(
    g: Array, h: Array, x: Array, logs: Array, gamma: Array, mean: Array, d_gamma: Array
) -> None:
    """g, the gradient of the sharpened h -> that of what was sharpened, x - eps; (n, lanes) each.

    dx = gamma (g - sum g h) h / x, and dgamma += sum (g - sum g h) h log2 x.
    """
    n, lanes = g.shape
    mean[:] = 0
    for d in range(n):
        for v in range(lanes):
            mean[v] += g[d, v] * h[d, v]
    for d in range(n):
        for v in range(lanes):
            inner = (g[d, v] - mean[v]) * h[d, v]
            d_gamma[v] += inner * logs[d, v]
            g[d, v] = inner * gamma[v] / x[d, v]


@njit(**OPTIONS)
def _logs(x: Array, eps: float, logs: Array) -> None:
    """x (n,) <- x + eps, logs (n,) <- log2(x + eps)."""
    for i in range(x.size):
        x[i] += eps
        logs[i] = log2(x[i])


@njit(**OPTIONS)
def _unmove(
    g: Array, old: Array, stay: Array, jump: Array, mass: Array, low: int, high: int, zero: int,
    d_stay: Array, d_jump: Array, d_old: Array,
) -> None:  # fmt: skip
    """Through `_move`: g -> gradients of stay and jump and, in lines low..high-1, of old."""
    lanes = g.shape[1]
    share = np.zeros(lanes, g.dtype)  # a jump takes the whole mass: every line has this part
    d_stay[:] = 0
    for i in range(3):
        for v in range(lanes):
            share[v] += jump[i, v] * g[zero - 1 + i, v]
            d_jump[i, v] = g[zero - 1 + i, v] * mass[v]
    for d in range(low, high):
        for v in range(lanes):
            left, same, right, h = g[d - 1, v], g[d, v], g[d + 1, v], old[d, v]
            d_stay[0, v] += left * h
            d_stay[1, v] += same * h
            d_stay[2, v] += right * h
            d_old[d, v] = share[v] + stay[0, v] * left + stay[1, v] * same + stay[2, v] * right


@njit(nogil=True, cache=True, **OPTIONS)
def backward(
    x: Inputs, eps: float, one_sided: bool, out: Array, grad: Array, d: Inputs, rows: range,
    lanes: int,
) -> None:  # fmt: skip
    """Gradients of the rows' inputs -> d, from what `forward` gave and its gradient."""
    width, dtype = out.shape[3] + 2 * PAD, out.dtype
    scratch = np.zeros((6, width, lanes), dtype)
    numbers = np.zeros((5, lanes), dtype)
    for row in range(rows[0], rows[1], lanes):
        _backward(x, eps, one_sided, out, grad, d, row, scratch, numbers)


@njit(**OPTIONS)
def _backward(
    x: Inputs, eps: float, one_sided: bool, out: Array, grad: Array, d: Inputs, row: int,
    scratch: Array, numbers: Array,
) -> None:  # fmt: skip
    """One block. What was sharpened is computed again from the step before: it is not kept."""
    steps, first, lanes = x.reset.shape[1], x.start.shape[3], scratch.shape[2]
    gamma, d_gamma, mass = numbers[0], numbers[1], numbers[2]
    mean, one = numbers[3], numbers[4]
    gates = np.zeros((4, 3, lanes), out.dtype)
    stay, jump, d_stay, d_jump = gates[0], gates[1], gates[2], gates[3]
    g, carry, raw, logs = scratch[2], scratch[3], scratch[4], scratch[5]
    _load_gamma(x, row, gamma)
    d_gamma[:] = 0
    one[:] = 1
    carry[:] = 0
    low, high = _span(steps, steps, first, one_sided)
    _load(scratch[steps % 2], out, row, steps - 1, low, high, 0)
    for t in range(steps - 1, -1, -1):
        now, old = scratch[1 - t % 2], scratch[t % 2]
        _load(g, grad, row, t, low, high, low - PAD)
        _add(g, carry, low, high)
        old_low, old_high = _span(t, steps, first, one_sided)
        if t:
            _load(old, out, row, t - 1, old_low, old_high, old_low - PAD)
        else:
            _load(old, x.start, row, 0, old_low, old_high, 0)
        _sum(old, old_low, old_high, mass)
        _load_gates(x, row, t, one, stay, jump)
        if x.gamma.size:
            _step(old, raw, x, row, t, stay, jump, mass, one_sided)
            _logs(raw[low:high].reshape(-1), eps, logs[low:high].reshape(-1))
            live = g[low:high], now[low:high], raw[low:high], logs[low:high]
            _unsharpen(*live, gamma, mean, d_gamma)
        zero, count = _origin(x, t, one_sided)
        _store(g, one, d.source, row, t, zero + 1, zero + 1 + count, 0)
        if one_sided:
            g[PAD - 1] = g[PAD]
        low, high = old_low, old_high
        _unmove(g, old, stay, jump, mass, low, high, zero, d_stay, d_jump, carry)
        _store_gates(x, row, t, d_stay, d_jump, d)
    _store(carry, one, d.start, row, 0, low, high, 0)
    if x.gamma.size:
        known = d.gamma[row : row + lanes]
        for v in range(known.size):
            known[v] = LN2 * d_gamma[v]
