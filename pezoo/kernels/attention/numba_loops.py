"""The loops of attention's numba back end: one head of one sample after another.

QUERIES queries go together over the keys, LANES keys or LANES features at a time; their logits and
weights stay in the first-level cache. A query i sees the keys below ends[i]. Logits are in units of
log 2. What the loops read is copied to scratch without gaps.

Tensors come as addresses: numba counts references to arrays, which costs more than these loops.
"""

import math
from typing import Any, NamedTuple

from pezoo.kernels.attention import numba_rows as rows
from pezoo.kernels.attention.numba_rows import Four, Pointer, ceil, four
from pezoo.kernels.simd.compile import compiled, inline
from pezoo.kernels.simd.functions import UNIT, exp2, log2, log_terms, power_terms
from pezoo.kernels.simd.vector import (
    LANES,
    highest,
    larger,
    load,
    opened,
    pointer,
    splat,
    store,
    total,
)

LOG2_E = math.log2(math.e)
LEAST = -1e30  # below any logit
QUERIES = 4


class Heads(NamedTuple):
    """A tensor (B, H, T, n): its address, 0 if there is none, and the strides of B, H and T."""

    data: int
    batch: int
    head: int
    row: int


class Inputs(NamedTuple):
    """Inputs of attention; bias and hidden are (B, H, T, S).

    For a factored bias, reader is (B, H, T, P) and bias (B, H, T, P S), S rounded up.
    """

    q: Heads
    k: Heads
    v: Heads
    bias: Heads
    hidden: Heads
    reader: Heads
    ends: int  # address of T + QUERIES int64, those beyond T are 0


class Outputs(NamedTuple):
    """Outputs of forward, which backward reads: out (B, H, T, n), log2 sum exp2 (B, H, T)."""

    out: Heads
    lse: int


class Gradients(NamedTuple):
    """Gradients of the output, which backward reads, and of the inputs, which it writes.

    The gradient of the bias is accumulated.
    """

    out: Heads
    q: Heads
    k: Heads
    v: Heads
    bias: Heads
    reader: Heads


class Sizes(NamedTuple):
    heads: int
    queries: int  # T
    keys: int  # S
    width: int  # of q and k
    features: int  # of v
    factors: int  # P
    item: int  # bytes of a number
    scale: float


def scratch_sizes(size: Sizes) -> list[int]:
    """Return the size of each array of the scratch, in the order of `Scratch`."""
    wide, step, long = (-(-n // LANES) * LANES for n in (size.width, size.features, size.keys))
    tops = -(-size.queries // LANES) * LANES + LANES
    transposed = [size.width * long, size.features * long]
    keys = [size.keys * wide, size.keys * step, size.keys * wide, size.keys * step]
    queries = [QUERIES * n for n in (wide, step, step, long, long)]
    return [*transposed, *keys, *queries, LANES, tops, tops, 2 * LANES]


class Scratch(NamedTuple):
    """Addresses, zeros at first. Names as in `Inputs`; `_t` is features before tokens."""

    k_t: int
    v_t: int
    k: int
    v: int
    d_k: int
    d_v: int
    q: int
    out: int
    d_out: int
    w: int  # logits, then weights
    d_w: int
    line: int
    tops: int  # the largest logit of each query
    sums: int  # and the sum of powers
    edge: int  # LANES zeros, then LANES times -1


@inline
def start_of(x: Heads, row: int, i: int, size: Sizes, like: Any) -> Pointer:
    """Return a pointer to row i of the head number `row`."""
    skip = row // size.heads * x.batch + row % size.heads * x.head + i * x.row
    return pointer(x.data + size.item * skip, like)


@inline
def _group(x: Inputs, i: int, size: Sizes) -> tuple[int, int]:
    """Return the number of queries among i..i+3, and the number of keys that they see."""
    ends = pointer(x.ends, size.queries)
    end = max(max(ends[i], ends[i + 1]), max(ends[i + 2], ends[i + 3]))
    return min(QUERIES, size.queries - i), end


@inline
def _factors(
    reader: Heads, pairs: Heads, size: Sizes, row: int, i: int, like: Any
) -> tuple[Pointer, Pointer]:
    """Return the reader and the pairs of query i of the head number `row`."""
    return start_of(reader, row, i, size, like), start_of(pairs, row, i, size, like)


@inline
def _logits(x: Inputs, size: Sizes, row: int, i: int, s: Any, like: Any) -> None:
    """Compute the logits of the queries i..i+3 -> s.w."""
    long, unit = ceil(size.keys), size.scale * LOG2_E
    ends = pointer(x.ends, size.queries)
    count, end = _group(x, i, size)
    rows.copy(start_of(x.q, row, i, size, like), x.q.row, count, size.width, s.q)
    for j in range(0, end, LANES):
        y = rows.products(s.q, ceil(size.width), size.width, s.k_t, long, j)
        rows.store_four(s.w, long, j, (y[0] * unit, y[1] * unit, y[2] * unit, y[3] * unit))
    for n in range(count):
        if x.reader.data:
            reader, pairs = _factors(x.reader, x.bias, size, row, i + n, like)
            rows.add_pairs(s.w, n * long, reader, pairs, (size.factors, long, end), LOG2_E)
        elif x.bias.data:
            rows.add(s.w, n * long, start_of(x.bias, row, i + n, size, like), 0, end, LOG2_E)
        if x.hidden.data:
            rows.add(s.w, n * long, start_of(x.hidden, row, i + n, size, like), 0, end, 1)
        rows.cut(s.w, n * long, ends[i + n], end, s.edge)


@inline
def _powers_of_two(y: Four, top: Four, terms: Any) -> Four:
    """Compute 2^(y - top), for four rows."""
    return (
        exp2(y[0] - top[0], terms),
        exp2(y[1] - top[1], terms),
        exp2(y[2] - top[2], terms),
        exp2(y[3] - top[3], terms),
    )


@inline
def _powers(s: Any, skip: int, end: int, i: int, terms: Any) -> None:
    """Turn four rows of logits into powers of 2 without overflow; i is the first query."""
    low = splat(LEAST, load(s.w, 0))
    a = b = c = d = low
    for j in range(0, end, LANES):
        y = four(s.w, skip, j)
        a, b, c, d = larger(y[0], a), larger(y[1], b), larger(y[2], c), larger(y[3], d)
    s.tops[i], s.tops[i + 1] = highest(a), highest(b)
    s.tops[i + 2], s.tops[i + 3] = highest(c), highest(d)
    t = rows.splat_four(s.tops, 1, i)
    a = b = c = d = splat(0, low)
    for j in range(0, end, LANES):
        y = four(s.w, skip, j)
        p = _powers_of_two(y, t, terms)
        rows.store_four(s.w, skip, j, p)
        a, b, c, d = a + p[0], b + p[1], c + p[2], d + p[3]
    s.sums[i], s.sums[i + 1] = total(a), total(b)
    s.sums[i + 2], s.sums[i + 3] = total(c), total(d)


@compiled
def forward(
    x: Inputs, size: Sizes, y: Outputs, scratch: Scratch, like: Any, first: int, last: int
) -> None:
    """Compute attention of the heads first..last-1 -> y."""
    s, long, step = opened(scratch, like), ceil(size.keys), ceil(size.features)
    terms = power_terms(load(s.edge, 0))
    for row in range(first, last):
        rows.transpose(start_of(x.k, row, 0, size, like), x.k.row, size.keys, size.width, s.k_t)
        rows.copy(start_of(x.v, row, 0, size, like), x.v.row, size.keys, size.features, s.v)
        for i in range(0, size.queries, QUERIES):
            count, end = _group(x, i, size)
            _logits(x, size, row, i, s, like)
            _powers(s, long, end, i, terms)
            out, t = start_of(y.out, row, i, size, like), rows.splat_four(s.sums, 1, i)
            for f in range(0, size.features, LANES):
                o = rows.products(s.w, long, end, s.v, step, f)
                o = o[0] / t[0], o[1] / t[1], o[2] / t[2], o[3] / t[3]
                rows.put_four(o, count, out, y.out.row, f, size.features, s.line)
        lse = pointer(y.lse + size.item * row * size.queries, like)
        for i in range(0, size.queries, LANES):
            sums = load(s.sums, i)
            log = log2(sums, log_terms(0 * sums)) * UNIT
            rows.put(load(s.tops, i) + log, lse, i, 0, size.queries - i, s.line)


@inline
def _weights(
    x: Inputs,
    size: Sizes,
    y: Outputs,
    d: Gradients,
    row: int,
    i: int,
    s: Any,
    terms: Any,
    like: Any,
) -> None:
    """Compute the weights of the queries i..i+3 -> s.w, their logits' gradients -> s.d_w."""
    long, step = ceil(size.keys), ceil(size.features)
    count, end = _group(x, i, size)
    _logits(x, size, row, i, s, like)
    rows.copy(start_of(d.out, row, i, size, like), d.out.row, count, size.features, s.d_out)
    rows.copy(start_of(y.out, row, i, size, like), y.out.row, count, size.features, s.out)
    lse = pointer(y.lse + size.item * (row * size.queries + i), like)
    for n in range(count):
        s.tops[n], s.sums[n] = lse[n], like
        for f in range(size.features):
            s.sums[n] += s.out[n * step + f] * s.d_out[n * step + f]
    for n in range(count, QUERIES):
        s.tops[n] = -LEAST  # queries that are not there have no weights
    t, mean = rows.splat_four(s.tops, 1, 0), rows.splat_four(s.sums, 1, 0)
    for j in range(0, end, LANES):
        a = four(s.w, long, j)
        p = _powers_of_two(a, t, terms)
        g = rows.products(s.d_out, step, size.features, s.v_t, long, j)
        g = g[0] - mean[0], g[1] - mean[1], g[2] - mean[2], g[3] - mean[3]
        rows.store_four(s.w, long, j, p)
        rows.store_four(s.d_w, long, j, (p[0] * g[0], p[1] * g[1], p[2] * g[2], p[3] * g[3]))


@inline
def _clear(x: Pointer, count: int) -> None:
    zero = splat(0, load(x, 0))
    for n in range(0, count, LANES):
        store(x, n, zero)


@inline
def _bias_gradients(
    x: Inputs, size: Sizes, d: Gradients, row: int, i: int, s: Any, like: Any
) -> None:
    """Add the logits' gradients s.d_w of the queries i..i+3 to those of the bias or factors."""
    long = ceil(size.keys)
    count, end = _group(x, i, size)
    for n in range(count):
        if d.reader.data:
            read = _factors(x.reader, x.bias, size, row, i + n, like)
            into = _factors(d.reader, d.bias, size, row, i + n, like)
            rows.pair_gradients(s.d_w, n * long, read, into, (size.factors, long, end))
        elif d.bias.data:
            rows.add(start_of(d.bias, row, i + n, size, like), 0, s.d_w, n * long, end, 1)


@compiled
def backward(
    x: Inputs, size: Sizes, y: Outputs, d: Gradients, scratch: Scratch, like: Any, first: int,
    last: int,
) -> None:  # fmt: skip
    """Compute gradients of the heads first..last-1 -> d."""
    s, scale = opened(scratch, like), size.scale
    wide, step, long = ceil(size.width), ceil(size.features), ceil(size.keys)
    terms = power_terms(load(s.edge, 0))
    for row in range(first, last):
        k = start_of(x.k, row, 0, size, like)
        rows.transpose(k, x.k.row, size.keys, size.width, s.k_t)
        rows.copy(k, x.k.row, size.keys, size.width, s.k)
        rows.transpose(start_of(x.v, row, 0, size, like), x.v.row, size.keys, size.features, s.v_t)
        _clear(s.d_k, size.keys * wide)
        _clear(s.d_v, size.keys * step)
        for i in range(0, size.queries, QUERIES):
            count, end = _group(x, i, size)
            if count < QUERIES:
                _clear(s.q, QUERIES * wide)
                _clear(s.d_out, QUERIES * step)
            _weights(x, size, y, d, row, i, s, terms, like)
            _bias_gradients(x, size, d, row, i, s, like)
            d_q = start_of(d.q, row, i, size, like)
            for f in range(0, size.width, LANES):
                g = rows.products(s.d_w, long, end, s.k, wide, f)
                g = g[0] * scale, g[1] * scale, g[2] * scale, g[3] * scale
                rows.put_four(g, count, d_q, d.q.row, f, size.width, s.line)
                rows.add_outer(s.d_w, long, end, s.q, wide, f, s.d_k)
            for f in range(0, size.features, LANES):
                rows.add_outer(s.w, long, end, s.d_out, step, f, s.d_v)
        rows.put_rows(
            s.d_k, size.keys, size.width, scale, start_of(d.k, row, 0, size, like), d.k.row
        )
        rows.put_rows(
            s.d_v, size.keys, size.features, 1, start_of(d.v, row, 0, size, like), d.v.row
        )
