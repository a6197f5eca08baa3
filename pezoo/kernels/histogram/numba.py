"""The histogram scan in numba: compiled on first use, without a compiler on the machine."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from pezoo.kernels.histogram import numba_loops as loops
from pezoo.kernels.histogram.numba_rows import ARRAYS, PAD, Inputs, Rows, Sizes
from pezoo.kernels.histogram.reference import Copy, Gates
from pezoo.kernels.simd.vector import LANES
from pezoo.vmap import Kernel

STREAMED = 1 << 25  # bytes of histograms, more than caches hold


def scan(
    gates: Gates,
    gamma: Tensor | None,
    state: Tensor | None,
    eps: float,
    copy: Copy | None,
    one_sided: bool,
) -> Tensor:
    """The same as `reference.scan`, without a second derivative, on torch's number of threads."""
    b, t, c = gates.reset.shape
    new = gates.reset.new_ones
    copy = copy or Copy(new(b, t, c), new(b, t, c, 0))
    powers = new(0) if gamma is None else gamma.expand(b, c)
    start = new(b, c, 1) if state is None else state
    out: Tensor = _Scan.apply(*gates, *copy, powers, start, eps, one_sided)
    return out


class _Scan(Kernel):
    """reset, incr, decr, none (B, T, C), source (B, T, C, S), gamma (B, C) or empty, start -> h."""

    by_rows = True

    @staticmethod
    def forward(ctx: Any, *args: Any) -> Tensor:
        *inputs, eps, one_sided = args
        inputs = [x.contiguous() for x in inputs]
        b, t, c, sources = inputs[4].shape
        first = inputs[6].shape[-1]
        last = first + (1 if one_sided else 2) * t
        h: Tensor = inputs[0].new_empty(b, t, c, last)
        # What no cache holds is written past the caches, in whole vectors: else each line would
        # be read from memory before it is written.
        streamed = c % LANES == 0 and b * t * c * last * h.itemsize >= STREAMED
        size = Sizes(t, c, sources, first, last, one_sided, inputs[5].numel() > 0, streamed)
        _run(loops.forward, _addresses(inputs), eps, size, h)
        ctx.save_for_backward(*inputs, h)
        ctx.options = eps, size
        return h

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> Any:
        *inputs, h = ctx.saved_tensors
        eps, size = ctx.options
        grads, grad = [torch.zeros_like(x) for x in inputs], grad.contiguous()
        more = grad.data_ptr(), _addresses(grads)
        _run(loops.backward, _addresses(inputs), eps, size, h, *more)
        return *grads, None, None


def _addresses(tensors: Sequence[Tensor]) -> Inputs:
    return Inputs(*(x.data_ptr() for x in tensors))


def _run(kernel: Any, x: Inputs, eps: float, size: Sizes, h: Tensor, *more: Any) -> None:
    """A kernel over all rows, in one part for each of torch's threads."""
    count = h.shape[0] * size.cursors
    groups = -(count // -LANES)
    starts = row_starts(count, groups, size)
    number = h.new_tensor(eps).numpy()[()]
    parts = min(torch.get_num_threads(), groups)
    edges = [groups * i // parts * LANES for i in range(parts + 1)]

    def run(first: int, end: int) -> None:
        scratch = h.new_empty(ARRAYS, size.last + 2 * PAD, LANES)
        rows = Rows(*(place[first:].ctypes.data for place in starts))
        kernel(x, number, size, h.data_ptr(), *more, rows, end - first, scratch.data_ptr())

    if parts == 1:
        run(*edges)
        return
    with ThreadPoolExecutor(parts) as pool:
        list(pool.map(run, edges, edges[1:]))


def row_starts(count: int, groups: int, size: Sizes) -> Any:
    """What `Rows` point at, whole groups of LANES rows: the last row is repeated."""
    row = np.minimum(np.arange(groups * LANES), count - 1)
    gate = row // size.cursors * size.steps * size.cursors + row % size.cursors
    own = np.arange(groups * LANES) % LANES * size.last
    return np.stack([row, row * size.first, gate, gate * size.sources, gate * size.last, own])
