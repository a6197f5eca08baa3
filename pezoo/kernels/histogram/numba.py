"""The histogram scan in numba: compiled on first use, without a compiler on the machine."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from functools import partial
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

LINE = 64  # bytes, of the processor's cache
STREAMED = 1 << 25  # bytes of histograms, more than caches hold


def scan(
    gates: Gates,
    gamma: Tensor | None,
    state: Tensor | None,
    eps: float,
    copy: Copy | None,
    one_sided: bool,
) -> Tensor:
    """The same as `scan_reference`, without a second derivative, on torch's number of threads."""
    b, t, c = gates.reset.shape
    new = gates.reset.new_ones
    copy = copy or Copy(new(b, t, c), new(b, t, c, 0))
    rows = new(0) if gamma is None else gamma.expand(b, c)
    start = new(b, c, 1) if state is None else state
    out: Tensor = _Scan.apply(*gates, *copy, rows, start, eps, one_sided)
    return out


class _Scan(Kernel):
    """reset, incr, decr, none (B, T, C), source (B, T, C, S), gamma (B, C) or empty, start -> h."""

    by_rows = True

    @staticmethod
    def forward(ctx: Any, *args: Any) -> Tensor:
        *inputs, eps, one_sided = args
        b, t, c, sources = inputs[4].shape
        first = inputs[6].shape[-1]
        last = first + (1 if one_sided else 2) * t
        x = Inputs(*map(_flat, inputs))
        out = _empty(b * t * c * last, x.reset.dtype)
        size = Sizes(t, c, sources, first, last, one_sided, _streamed(c, out))
        eps = out.dtype.type(eps)
        _over_rows(partial(loops.forward, x, eps, size, out), b, size, out.dtype)
        h = torch.from_numpy(out).view(b, t, c, last)
        ctx.save_for_backward(*inputs, h)
        ctx.options = eps, size
        return h

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> Any:
        *inputs, h = ctx.saved_tensors
        eps, size = ctx.options
        x = Inputs(*map(_flat, inputs))
        d = Inputs(*map(np.zeros_like, x))
        call = partial(loops.backward, x, eps, size, _flat(h), _flat(grad), d)
        _over_rows(call, h.shape[0], size, eps.dtype)
        grads = (torch.from_numpy(a).view(i.shape) for a, i in zip(d, inputs, strict=True))
        return *grads, None, None


def _empty(n: int, dtype: Any) -> Any:
    """(n,), from the beginning of a cache line on, so that no vector lies in two.

    From numpy, which asks for huge pages: touching new memory costs less.
    """
    size = np.dtype(dtype).itemsize
    out = np.empty(n + LINE // size, dtype)
    first = -out.ctypes.data % LINE // size
    return out[first : first + n]


def _streamed(cursors: int, out: Any) -> bool:
    """Whether to write past the caches: what would not stay there, in whole vectors.

    Else each line would be read from memory before it is written.
    """
    return cursors % LANES == 0 and out.nbytes >= STREAMED


def _flat(x: Tensor) -> Any:
    return x.detach().contiguous().view(-1).numpy()


def _over_rows(kernel: Any, b: int, size: Sizes, dtype: Any) -> None:
    """kernel(rows, scratch) over all rows, in one part for each of torch's threads."""
    groups = -(b * size.cursors // -LANES)
    rows = np.minimum(np.arange(groups * LANES), b * size.cursors - 1)
    gate = rows // size.cursors * size.steps * size.cursors + rows % size.cursors
    own = np.arange(groups * LANES) % LANES * size.last
    places = rows, rows * size.first, gate, gate * size.sources, gate * size.last, own
    parts = min(torch.get_num_threads(), groups)
    edges = [groups * i // parts * LANES for i in range(parts + 1)]

    def run(first: int, end: int) -> None:
        lines = (size.last + 2 * PAD) * LANES
        scratch = _empty(ARRAYS * lines, dtype).reshape(ARRAYS, lines)
        kernel(Rows(*(place[first:end] for place in places)), scratch)

    if parts == 1:
        run(*edges)
        return
    with ThreadPoolExecutor(parts) as pool:
        list(pool.map(run, edges, edges[1:]))
