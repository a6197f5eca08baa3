"""The loops of a layer's numba back end: BLOCK rows go through all of it at a time.

What lies between two products stays in the second-level cache. Tensors come as addresses of rows
without gaps. Gradients of weights, `Sums`, are added to.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from pezoo.kernels.attention_numba_rows import Pointer, copy
from pezoo.kernels.layer_numba_rows import add, add_up, gelu, gelu_backward, norm, norm_backward
from pezoo.kernels.numba_cache import compiled, inline
from pezoo.kernels.numba_memory import pointer
from pezoo.kernels.numba_products import add_outer, multiply

BLOCK = 48


class Sizes(NamedTuple):
    width: int
    hidden: int
    item: int  # bytes of a number
    eps: float


class ReadWeights(NamedTuple):
    """Addresses; the projection is (D, 3 D) forward and (3 D, D) backward."""

    norm: int
    shift: int
    project: int
    bias: int


class ReadRows(NamedTuple):
    """x (N, D), moments (N, 2), and q, k and v (N, D) or their gradients."""

    x: int
    moments: int
    q: int
    k: int
    v: int


class WriteWeights(NamedTuple):
    """Addresses; matrices are (inputs, outputs) forward and (outputs, inputs) backward."""

    out: int
    out_bias: int
    norm: int
    shift: int
    up: int
    up_bias: int
    down: int
    down_bias: int


class WriteRows(NamedTuple):
    """x, y and x + out(y), (N, D), moments (N, 2), what GELU reads (N, H), the result (N, D)."""

    x: int
    y: int
    z: int
    moments: int
    hidden: int
    result: int


class Scratch(NamedTuple):
    """BLOCK rows of D and of H numbers, two of each, and H zeros."""

    narrow: int
    narrow_2: int
    wide: int
    wide_2: int
    zeros: int


@inline
def _at(x: int, i: int, width: int, size: Sizes, like: Any) -> Pointer:
    """Row i of rows of that width."""
    return pointer(x + size.item * i * width, like)


@compiled
def read_forward(
    rows: ReadRows, weights: ReadWeights, size: Sizes, scratch: Scratch, like: Any, first: int,
    last: int,
) -> None:  # fmt: skip
    """q, k and v of the rows first..last-1."""
    d, n = size.width, pointer(scratch.narrow, like)
    weight, shift = pointer(weights.norm, like), pointer(weights.shift, like)
    for i in range(first, last, BLOCK):
        count = min(BLOCK, last - i)
        moments = _at(rows.moments, i, 2, size, like)
        norm(_at(rows.x, i, d, size, like), weight, shift, size.eps, moments, n, count, d)
        for part in range(3):
            y = rows.q if part == 0 else rows.k if part == 1 else rows.v
            w, b = _at(weights.project, part, d, size, like), _at(weights.bias, part, d, size, like)
            multiply(n, d, w, 3 * d, _at(y, i, d, size, like), d, count, d, d, b, False)


@compiled
def read_backward(
    rows: ReadRows, grads: ReadRows, weights: ReadWeights, sums: ReadWeights, size: Sizes,
    scratch: Scratch, like: Any, first: int, last: int,
) -> None:  # fmt: skip
    """The gradient of x -> grads.x for those of q, k and v, in the rows first..last-1."""
    d, n, g = size.width, pointer(scratch.narrow, like), pointer(scratch.narrow_2, like)
    weight, shift = pointer(weights.norm, like), pointer(weights.shift, like)
    weight_sum, shift_sum = pointer(sums.norm, like), pointer(sums.shift, like)
    zeros = pointer(scratch.zeros, like)
    for i in range(first, last, BLOCK):
        count = min(BLOCK, last - i)
        for part in range(3):
            y = grads.q if part == 0 else grads.k if part == 1 else grads.v
            d_y, w = _at(y, i, d, size, like), _at(weights.project, part, d * d, size, like)
            multiply(d_y, d, w, d, g, d, count, d, d, zeros, part > 0)
            add_up(d_y, _at(sums.bias, part, d, size, like), count, d)
        norm_backward(
            _at(rows.x, i, d, size, like), weight, shift, _at(rows.moments, i, 2, size, like), g, n,
            _at(grads.x, i, d, size, like), weight_sum, shift_sum, count, d,
        )  # fmt: skip
        for part in range(3):
            y = grads.q if part == 0 else grads.k if part == 1 else grads.v
            d_y, d_w = _at(y, i, d, size, like), _at(sums.project, part, d * d, size, like)
            add_outer(d_y, d, n, d, d_w, count)


@compiled
def write_forward(
    rows: WriteRows, weights: WriteWeights, size: Sizes, scratch: Scratch, like: Any, first: int,
    last: int,
) -> None:  # fmt: skip
    """z = x + out(y), then z + mlp(norm(z)), in the rows first..last-1."""
    d, h = size.width, size.hidden
    n, act = pointer(scratch.narrow, like), pointer(scratch.wide, like)
    w = weights
    weight, shift = pointer(w.norm, like), pointer(w.shift, like)
    out, out_bias = pointer(w.out, like), pointer(w.out_bias, like)
    up, up_bias = pointer(w.up, like), pointer(w.up_bias, like)
    down, down_bias = pointer(w.down, like), pointer(w.down_bias, like)
    for i in range(first, last, BLOCK):
        count = min(BLOCK, last - i)
        y, z = _at(rows.y, i, d, size, like), _at(rows.z, i, d, size, like)
        multiply(y, d, out, d, z, d, count, d, d, out_bias, False)
        add(_at(rows.x, i, d, size, like), z, count * d)
        norm(z, weight, shift, size.eps, _at(rows.moments, i, 2, size, like), n, count, d)
        hidden = _at(rows.hidden, i, h, size, like)
        multiply(n, d, up, h, hidden, h, count, d, h, up_bias, False)
        gelu(hidden, act, count * h)
        result = _at(rows.result, i, d, size, like)
        multiply(act, h, down, d, result, d, count, h, d, down_bias, False)
        add(z, result, count * d)


@compiled
def write_backward(
    rows: WriteRows, grads: WriteRows, weights: WriteWeights, sums: WriteWeights, size: Sizes,
    scratch: Scratch, like: Any, first: int, last: int,
) -> None:  # fmt: skip
    """The gradients of x and y for that of the result, in the rows first..last-1."""
    d, h = size.width, size.hidden
    n, d_n = pointer(scratch.narrow, like), pointer(scratch.narrow_2, like)
    act, d_act = pointer(scratch.wide, like), pointer(scratch.wide_2, like)
    w, s, zeros = weights, sums, pointer(scratch.zeros, like)
    for i in range(first, last, BLOCK):
        count = min(BLOCK, last - i)
        g, d_z = _at(grads.result, i, d, size, like), _at(grads.x, i, d, size, like)
        add_up(g, pointer(s.down_bias, like), count, d)
        multiply(g, d, pointer(w.down, like), h, d_act, h, count, d, h, zeros, False)
        hidden = _at(rows.hidden, i, h, size, like)
        gelu_backward(hidden, d_act, act, pointer(s.up_bias, like), count, h)
        add_outer(g, d, act, h, pointer(s.down, like), count)
        multiply(d_act, h, pointer(w.up, like), d, d_n, d, count, h, d, zeros, False)
        copy(g, d, count, d, d_z)
        norm_backward(
            _at(rows.z, i, d, size, like), pointer(w.norm, like), pointer(w.shift, like),
            _at(rows.moments, i, 2, size, like), d_n, n, d_z, pointer(s.norm, like),
            pointer(s.shift, like), count, d,
        )  # fmt: skip
        add_outer(d_act, h, n, d, pointer(s.up, like), count)
        add_up(d_z, pointer(s.out_bias, like), count, d)
        y, d_y = _at(rows.y, i, d, size, like), _at(grads.y, i, d, size, like)
        add_outer(d_z, d, y, d, pointer(s.out, like), count)
        multiply(d_z, d, pointer(w.out, like), d, d_y, d, count, d, d, zeros, False)
