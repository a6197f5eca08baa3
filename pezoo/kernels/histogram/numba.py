"""The histogram scan in numba, compiled on first use."""

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn.functional import pad

from pezoo.compiling import Kernel
from pezoo.kernels.histogram import numba_active as active
from pezoo.kernels.histogram import numba_loops as loops
from pezoo.kernels.histogram.reference import grown
from pezoo.kernels.simd.vector import LANES


class Scan(Kernel):
    """The results of `shares`, eps, every -> h (B, T, C, L), on torch's threads."""

    @staticmethod
    def forward(ctx: Any, *args: Any) -> Tensor:
        *inputs, eps, every = args
        return _forward(ctx, inputs, inputs[0].new_empty(0, 0), eps, every)[0]

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> Any:
        return *_backward(ctx, grad, grad.new_empty(0, 0)), None, None


class Stream(Kernel):
    """Those, but a table (L, d) before eps -> h @ table (B, T, C, d) and the last h (B, C, L).

    Histograms are multiplied while they are in the cache, by those rows that can have been reached.
    """

    @staticmethod
    def forward(ctx: Any, *args: Any) -> tuple[Tensor, Tensor]:
        *inputs, table, eps, every = args
        table = _padded(table, -table.shape[1] % loops.BLOCK)
        h, e = _forward(ctx, inputs, table, eps, every)
        end = h[:, -1].clone() if h.shape[1] > 1 else h[:, 0]  # a view would keep all of h
        return e[..., : args[5].shape[1]], end

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor, last: Tensor) -> Any:
        grad = _padded(grad, -grad.shape[-1] % loops.BLOCK)
        return *_backward(ctx, last, grad), None, None, None


class Active(Kernel):
    """Those results, without gradients, of the bins that differ: see `numba_active`."""

    @staticmethod
    def forward(ctx: Any, *args: Any) -> tuple[Tensor, Tensor]:
        *inputs, table, eps, every = args
        width = table.shape[1]
        table = _padded(table, -width % loops.BLOCK).contiguous()
        sums = pad(table.cumsum(0), (0, 0, 1, 0))
        inputs = [x.contiguous() for x in inputs]
        size = _size(inputs, table, every)
        b, t, c, _ = inputs[1].shape
        e, last = table.new_empty(b, t, c, table.shape[1]), table.new_empty(b, c, size.last)
        more = table.data_ptr(), sums.data_ptr(), last.data_ptr()
        _run(active.forward, _addresses(inputs), eps, size, e, *more, room=active.scratch_size)
        return e[..., :width], last


def _size(inputs: Sequence[Tensor], table: Tensor, every: int) -> loops.Sizes:
    start, kept, _, source, gamma = inputs
    _, t, c, j = kept.shape
    last, sharpened = grown(start.shape[-1], t, j), gamma.numel() > 0
    copied, width = (source.shape[2], every, source.shape[3]), table.shape[1]
    return loops.Sizes(t, c, j, *copied, start.shape[-1], last, width, sharpened)


def _forward(
    ctx: Any, inputs: Sequence[Tensor], table: Tensor, eps: float, every: int
) -> tuple[Tensor, Tensor]:
    """Return the histograms and their product with the table."""
    inputs, table = [x.contiguous() for x in inputs], table.contiguous()
    size = _size(inputs, table, every)
    b, t, c, _ = inputs[1].shape
    h, e = table.new_empty(b, t, c, size.last), table.new_empty(b, t, c, size.width)
    _run(loops.forward, _addresses(inputs), eps, size, h, table.data_ptr(), e.data_ptr())
    ctx.save_for_backward(*inputs, table, h)
    ctx.options = eps, size
    return h, e


def _backward(ctx: Any, grad: Tensor, streams: Tensor) -> list[Tensor]:
    """Return the gradients of the inputs, from those of the histograms and the product."""
    *inputs, table, h = ctx.saved_tensors
    eps, size = ctx.options
    grads, grad = [torch.zeros_like(x) for x in inputs], grad.contiguous()
    columns, streams = _padded(table.mT, LANES).contiguous(), streams.contiguous()
    more = grad.data_ptr(), _addresses(grads), columns.data_ptr(), streams.data_ptr()
    _run(loops.backward, _addresses(inputs), eps, size, h, *more)
    return grads


def _padded(x: Tensor, columns: int) -> Tensor:
    return pad(x, (0, columns)) if columns else x


def _addresses(tensors: Sequence[Tensor]) -> loops.Inputs:
    return loops.Inputs(*(x.data_ptr() for x in tensors))


def _run(
    kernel: Any, x: loops.Inputs, eps: float, size: loops.Sizes, h: Tensor, *more: Any,
    room: Callable[[loops.Sizes], int] = loops.scratch_size,
) -> None:  # fmt: skip
    """Run a kernel over all rows, one part for each of torch's threads."""
    rows = h.shape[0] * size.cursors
    number = h.new_tensor(eps).numpy()[()]
    parts = max(min(torch.get_num_threads(), rows), 1)
    edges = [rows * i // parts for i in range(parts + 1)]

    def run(first: int, end: int) -> None:
        scratch = h.new_empty(room(size))
        kernel(x, number, size, h.data_ptr(), *more, first, end, scratch.data_ptr())

    if parts == 1:
        run(*edges)
        return
    with ThreadPoolExecutor(parts) as pool:
        list(pool.map(run, edges, edges[1:]))
