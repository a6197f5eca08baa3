"""Memory layout of the inputs and outputs of attention's numba kernels."""

from __future__ import annotations

from typing import Any, NamedTuple

from pezoo.kernels.attention.numba_rows import Pointer
from pezoo.kernels.simd.compile import inline
from pezoo.kernels.simd.memory import pointer
from pezoo.kernels.simd.vector import LANES

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
    rows = -(-size.queries // LANES) * LANES + LANES
    transposed = [size.width * long, size.features * long]
    keys = [size.keys * wide, size.keys * step, size.keys * wide, size.keys * step]
    queries = [QUERIES * n for n in (wide, step, step, long, long)]
    return [*transposed, *keys, *queries, LANES, rows, rows, 2 * LANES]


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
