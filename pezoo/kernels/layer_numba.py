"""A layer around its attention, for training on a CPU, in numba: compiled on first use."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import accumulate
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from pezoo.kernels import layer_numba_kernels as kernels
from pezoo.kernels.layer_numba_kernels import (
    BLOCK,
    ReadRows,
    ReadWeights,
    Scratch,
    Sizes,
    WriteRows,
    WriteWeights,
)
from pezoo.kernels.members import Kernel


class Read(Kernel):
    """x (N, D), a layer norm, weight (3 D, D), bias (3 D,) -> q, k and v, each (N, D)."""

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, eps: float, norm: Tensor, shift: Tensor, weight: Tensor, bias: Tensor
    ) -> tuple[Tensor, ...]:
        moments, outs = x.new_empty(len(x), 2), [torch.empty_like(x) for _ in range(3)]
        rows = _places(ReadRows, (x, moments, *outs))
        turned = weight.t().contiguous()
        weights = _places(ReadWeights, (norm, shift, turned, bias))
        _run(kernels.read_forward, x, Sizes(x.shape[1], 0, x.element_size(), eps), rows, weights)
        ctx.save_for_backward(x, moments, norm, shift, weight)
        ctx.eps = eps
        return tuple(outs)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> Any:
        x, moments, norm, shift, weight = ctx.saved_tensors
        given, d_x = [grad.contiguous() for grad in grads], torch.zeros_like(x)
        rows = _places(ReadRows, (x, moments, x, x, x))
        into = _places(ReadRows, (d_x, moments, *given))
        weights = _places(ReadWeights, (norm, shift, weight, norm))
        like = norm, shift, weight, weight[:, 0]
        sums = _sums(x, like)
        places = [_places(ReadWeights, one) for one in sums]
        size = Sizes(x.shape[1], 0, x.element_size(), ctx.eps)
        _run(kernels.read_backward, x, size, rows, into, weights, parts=places)
        return d_x, None, *_total(sums)


class Write(Kernel):
    """x and y (N, D) and weights, in the order of `WriteWeights` -> z + mlp(norm(z)) (N, D).

    z = x + out(y), and mlp is down(gelu(up(.))).
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor, y: Tensor, eps: float, *weights: Tensor) -> Tensor:
        moments, hidden = x.new_empty(len(x), 2), x.new_empty(len(x), len(weights[4]))
        z, result = torch.empty_like(x), torch.empty_like(x)
        rows = _places(WriteRows, (x, y, z, moments, hidden, result))
        turned = [w.t().contiguous() for w in weights]
        size = Sizes(x.shape[1], hidden.shape[1], x.element_size(), eps)
        _run(kernels.write_forward, x, size, rows, _places(WriteWeights, turned))
        ctx.save_for_backward(y, z, moments, hidden, *weights)
        ctx.eps = eps
        return result

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> Any:
        y, z, moments, hidden, *weights = ctx.saved_tensors
        given, d_x, d_y = grad.contiguous(), torch.empty_like(y), torch.empty_like(y)
        rows = _places(WriteRows, (z, y, z, moments, hidden, z))
        into = _places(WriteRows, (d_x, d_y, z, moments, hidden, given))
        sums = _sums(z, weights)
        places = [_places(WriteWeights, one) for one in sums]
        size = Sizes(z.shape[1], hidden.shape[1], z.element_size(), ctx.eps)
        _run(
            kernels.write_backward,
            z,
            size,
            rows,
            into,
            _places(WriteWeights, weights),
            parts=places,
        )
        return d_x, d_y, None, *_total(sums)


def _places(kind: Any, tensors: Sequence[Tensor]) -> Any:
    """Their addresses, under the names of `kind`."""
    return kind(*(x.data_ptr() for x in tensors))


def _parts(x: Tensor) -> int:
    """One for each of torch's threads, of whole blocks."""
    return max(1, min(torch.get_num_threads(), len(x) // BLOCK))


def _sums(x: Tensor, like: Sequence[Tensor]) -> list[list[Tensor]]:
    """Zeros like the weights, for each part of its own."""
    sizes = [w.numel() for w in like]
    found = torch.split(x.new_zeros(_parts(x), sum(sizes)), sizes, 1)
    return [
        [s[i].view(w.shape) for s, w in zip(found, like, strict=True)] for i in range(_parts(x))
    ]


def _total(sums: list[list[Tensor]]) -> list[Tensor]:
    if len(sums) == 1:
        return sums[0]
    return [torch.stack(parts).sum(0) for parts in zip(*sums, strict=True)]


def _run(kernel: Any, x: Tensor, size: Sizes, *places: Any, parts: Sequence[Any] = ()) -> None:
    """Over all rows, in one part for each of torch's threads; parts[i] is for part i alone."""
    like = x.new_zeros(()).numpy()[()]
    lengths = [BLOCK * size.width] * 2 + [BLOCK * size.hidden] * 2

    def one(part: int, first: int, last: int) -> None:
        numbers = x.new_empty(sum(lengths) + max(size.width, size.hidden))
        numbers[sum(lengths) :] = 0
        starts = accumulate(lengths, initial=0)
        scratch = Scratch(*(numbers.data_ptr() + size.item * n for n in starts))
        kernel(*places, *parts[part : part + 1], size, scratch, like, first, last)

    count = _parts(x)
    edges = [len(x) * i // count for i in range(count + 1)]
    if count == 1:
        one(0, *edges)
        return
    with ThreadPoolExecutor(count) as pool:
        list(pool.map(one, range(count), edges, edges[1:]))
