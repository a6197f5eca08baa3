"""The histogram scan in numba, compiled on first use."""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from pezoo.compiling import Kernel
from pezoo.kernels.histogram import numba_loops as loops
from pezoo.kernels.histogram.reference import grown


class Scan(Kernel):
    """The results of `shares`, eps, one_sided -> h (B, T, C, L), on torch's number of threads."""

    @staticmethod
    def forward(ctx: Any, *args: Any) -> Tensor:
        *inputs, eps, one_sided = args
        inputs = [x.contiguous() for x in inputs]
        start, kept, _, source, gamma = inputs
        b, t, c, j = kept.shape
        last = grown(start.shape[-1], t, j, one_sided)
        h: Tensor = kept.new_empty(b, t, c, last)
        sharpened = gamma.numel() > 0
        size = loops.Sizes(t, c, j, source.shape[-1], start.shape[-1], last, one_sided, sharpened)
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


def _addresses(tensors: Sequence[Tensor]) -> loops.Inputs:
    return loops.Inputs(*(x.data_ptr() for x in tensors))


def _run(
    kernel: Any, x: loops.Inputs, eps: float, size: loops.Sizes, h: Tensor, *more: Any
) -> None:
    """Run a kernel over all rows, one part for each of torch's threads."""
    rows = h.shape[0] * size.cursors
    number = h.new_tensor(eps).numpy()[()]
    parts = max(min(torch.get_num_threads(), rows), 1)
    edges = [rows * i // parts for i in range(parts + 1)]

    def run(first: int, end: int) -> None:
        scratch = h.new_empty(loops.scratch_size(size))
        kernel(x, number, size, h.data_ptr(), *more, first, end, scratch.data_ptr())

    if parts == 1:
        run(*edges)
        return
    with ThreadPoolExecutor(parts) as pool:
        list(pool.map(run, edges, edges[1:]))
