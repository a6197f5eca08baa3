"""The histogram scan in numba: compiled on first use, without a compiler on the machine."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from pezoo.kernels import histogram_numba_kernels as kernels
from pezoo.kernels.histogram import Copy, Gates

SCRATCH = 1 << 14  # numbers in one of the kernel's six scratch arrays: all fit in a core's L2 cache


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
    rows = new(0) if gamma is None else gamma.expand(b, c).reshape(-1)
    start = new(b, c, 1) if state is None else state
    out: Tensor = _Scan.apply(  # type: ignore[no-untyped-call]
        *gates, *copy, rows, start[:, None], eps, one_sided
    )
    return out


class _Scan(torch.autograd.Function):
    """The fields of kernels.Inputs -> (B, T, C, L)."""

    @staticmethod
    def forward(ctx: Any, *args: Any) -> Tensor:
        *inputs, eps, one_sided = args
        x = kernels.Inputs(*(_array(tensor) for tensor in inputs))
        b, t, c = x.reset.shape
        out = np.empty((b, t, c, x.start.shape[3] + (1 if one_sided else 2) * t), x.reset.dtype)
        eps = out.dtype.type(eps)
        _over_rows(partial(kernels.forward, x, eps, one_sided, out), out)
        # From numpy, which asks for huge pages: touching new memory costs less.
        result = torch.from_numpy(out)
        ctx.save_for_backward(*inputs, result)
        ctx.options = eps, one_sided
        return result

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        *inputs, out = (_array(tensor) for tensor in ctx.saved_tensors)
        x = kernels.Inputs(*inputs)
        d = kernels.Inputs(*(np.empty_like(array) for array in x))
        _over_rows(partial(kernels.backward, x, *ctx.options, out, _array(grad), d), out)
        return *(torch.from_numpy(array) for array in d), None, None


def _array(x: Tensor) -> Any:
    return x.detach().contiguous().numpy()


def _over_rows(kernel: Any, out: Any) -> None:
    """Run kernel(rows, lanes) on all rows, in as many parts as torch uses threads."""
    b, _, c, size = out.shape
    lanes = min(max(SCRATCH // size // 8 * 8, 16), 64, -(b * c) // 8 * -8)
    blocks = -(b * c // -lanes)
    threads = min(torch.get_num_threads(), blocks)
    edges = [blocks * i // threads * lanes for i in range(threads)] + [b * c]
    if threads == 1:
        kernel((0, b * c), lanes)
        return
    with ThreadPoolExecutor(threads) as pool:
        list(pool.map(lambda i: kernel((edges[i], edges[i + 1]), lanes), range(threads)))
