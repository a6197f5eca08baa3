"""Attention for a CPU and narrow heads, in numba: compiled on first use."""

from __future__ import annotations

import math
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import accumulate
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn.functional import pad

from pezoo.base import Pairs
from pezoo.compiling import Kernel
from pezoo.kernels.attention import numba_loops as loops
from pezoo.kernels.simd.vector import LANES


def attend(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    bias: Tensor | Pairs | None,
    mask: Tensor | None,
    scale: float,
) -> Tensor:
    """Compute `pezoo.adapters.backends.eager`, without a second derivative.

    A factored bias is never expanded to (B, H, T, S).
    """
    t, s = q.shape[-2], k.shape[-2]
    hidden, ends = None, torch.arange(s - t + 1, s + 1)
    if mask is not None:
        hidden = torch.where(mask, 0.0, -torch.inf).to(q.dtype)
        seen = mask.flatten(0, -3).any(0)
        ends = (seen * torch.arange(1, s + 1)).amax(-1).expand(t)
    reader = None
    if isinstance(bias, Pairs):
        reader = bias.reader.expand(*q.shape[:3], -1)
        bias = _by_key(bias.rows.expand(1, t, s, -1, reader.shape[-1]))
    out: Tensor = _Attention.apply(q, k, v, bias, reader, hidden, ends, scale)
    return out


def _by_key(rows: Tensor) -> Tensor:
    """Transpose (1, T, S, H, P) -> (1, H, T, P S), S rounded up, so that keys are adjacent."""
    return pad(rows.permute(0, 3, 1, 4, 2), (0, -rows.shape[2] % LANES)).flatten(3)


class _Attention(Kernel):
    @staticmethod
    def forward(
        ctx: Any, q: Tensor, k: Tensor, v: Tensor, bias: Tensor | None, reader: Tensor | None,
        hidden: Tensor | None, ends: Tensor, scale: float,
    ) -> Tensor:  # fmt: skip
        out, lse = _like_tokens(q, v.shape[-1]), q.new_empty(q.shape[:3])
        call = _Call(q, k, v, bias, reader, hidden, ends, scale)
        call.run(loops.forward, loops.Outputs(call.heads(out), lse.data_ptr()))
        ctx.save_for_backward(q, k, v, bias, reader, hidden, ends, out, lse)
        ctx.scale = scale
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> Any:
        q, k, v, bias, reader, hidden, ends, out, lse = ctx.saved_tensors
        call = _Call(q, k, v, bias, reader, hidden, ends, ctx.scale)
        *d, d_reader = [x if x is None else _like_tokens(x, x.shape[-1]) for x in (q, k, v, reader)]
        wanted = reader is not None or ctx.needs_input_grad[3]
        into = _bias_gradients(bias, call) if wanted else [None] * call.parts
        y = loops.Outputs(call.heads(out), lse.data_ptr())
        parts = [
            loops.Gradients(*map(call.heads, (grad, *d, call.wide(x, call.row), d_reader)))
            for x in into
        ]
        call.run(loops.backward, y, parts=parts)
        return *d, _summed(into, bias), d_reader, None, None, None


def _bias_gradients(bias: Tensor, call: _Call) -> list[Tensor]:
    """Return zeros that broadcast like the bias, but not over keys; one tensor for each part."""
    shape = (1,) * (4 - bias.dim()) + bias.shape
    shared = math.prod(shape[:2]) < call.rows
    if bias.dim() == 4 and bias.stride(3) == 1 and shape[3] == call.row and not shared:
        return [torch.zeros_like(bias)] * call.parts  # in the bias's memory layout
    zeros = bias.new_zeros(call.parts if shared else 1, *shape[:3], call.row)
    return [*zeros] if shared else [zeros[0]] * call.parts


def _summed(parts: list[Tensor] | list[None], bias: Tensor | None) -> Tensor | None:
    """Sum the parts' gradients of the bias, which may be the same tensor."""
    if bias is None or parts[0] is None:
        return None
    if parts[0] is parts[-1]:
        return parts[0].sum_to_size(bias.shape)
    return torch.stack(parts).sum(0).sum_to_size(bias.shape)


def _like_tokens(x: Tensor, width: int) -> Tensor:
    """Allocate (B, H, T, width) with tokens before heads in loops."""
    b, h, t, _ = x.shape
    return x.new_empty(b, t, h, width).transpose(1, 2)


class _Call:
    """The addresses of tensors, which it keeps alive."""

    def __init__(
        self, q: Tensor, k: Tensor, v: Tensor, bias: Tensor | None, reader: Tensor | None,
        hidden: Tensor | None, ends: Tensor, scale: float,
    ) -> None:  # fmt: skip
        (b, h, t, width), (s, features) = q.shape, v.shape[2:]
        factors = 0 if reader is None else reader.shape[-1]
        self.alive: list[Tensor] = []
        self.queries = b, h, t
        self.row = s if reader is None or bias is None else bias.shape[-1]  # of a bias, numbers
        padded = torch.cat([ends, ends.new_zeros(loops.QUERIES)])
        self.alive.append(padded)
        self.inputs = loops.Inputs(
            self.heads(q),
            self.heads(k),
            self.heads(v),
            self.heads(self.wide(bias, self.row)),
            self.heads(self.wide(hidden, s)),
            self.heads(reader),
            ends=padded.data_ptr(),
        )
        self.size = loops.Sizes(h, t, s, width, features, factors, q.element_size(), scale)
        self.rows, self.dtype = b * h, q.dtype
        self.parts = min(torch.get_num_threads(), self.rows)

    def wide(self, x: Tensor | None, row: int) -> Tensor | None:
        return None if x is None else x.expand(*self.queries, row)

    def heads(self, x: Tensor | None) -> loops.Heads:
        """Return the address of a tensor; of a copy if its last axis is non-contiguous."""
        if x is None:
            return loops.Heads(0, 0, 0, 0)
        if x.shape[-1] > 1 and x.stride(-1) != 1:
            x = x.contiguous()
        self.alive.append(x)
        return loops.Heads(x.data_ptr(), *x.stride()[:3])

    def run(self, kernel: Any, *outputs: Any, parts: Sequence[Any] = ()) -> None:
        """Run a kernel over all heads, one part for each thread; parts[i] goes to part i."""
        like = torch.zeros((), dtype=self.dtype).numpy()[()]

        def one(part: int, first: int, last: int) -> None:
            sizes = loops.scratch_sizes(self.size)
            numbers = np.zeros(sum(sizes), like.dtype)
            numbers[-LANES:] = -1
            starts = accumulate(sizes[:-1], initial=0)
            places = loops.Scratch(*(numbers.ctypes.data + self.size.item * n for n in starts))
            own = parts[part : part + 1]
            kernel(self.inputs, self.size, *outputs, *own, places, like, first, last)

        edges = [self.rows * i // self.parts for i in range(self.parts + 1)]
        if self.parts == 1:
            one(0, *edges)
            return
        with ThreadPoolExecutor(self.parts) as pool:
            list(pool.map(one, range(self.parts), edges, edges[1:]))
