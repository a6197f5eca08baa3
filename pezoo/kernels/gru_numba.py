"""The recurrence of a GRU in numba: compiled on first use, without a compiler on the machine."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from pezoo.kernels import gru_numba_kernels as kernels
from pezoo.kernels.members import Kernel
from pezoo.kernels.numba_vectors import LANES


def recurrence(
    given: Tensor, weight: Tensor, bias: Tensor, state: Tensor, noise: Tensor | None
) -> Tensor:
    """As `recurrence_reference`, without a second derivative, on torch's number of threads."""
    out: Tensor = _Recurrence.apply(given, weight, bias, state, noise)
    return out


class _Recurrence(Kernel):
    """given (B, T, 3H), weight (3H, H), bias (3H), state (B, H), noise or None -> h (B, T, H)."""

    @staticmethod
    def forward(
        ctx: Any, given: Tensor, weight: Tensor, bias: Tensor, state: Tensor, noise: Tensor | None
    ) -> Tensor:
        (b, t, _), units = given.shape, weight.shape[1]
        kept = any(ctx.needs_input_grad)
        out, gates = given.new_empty(b, t, units), given.new_empty(b, t, 4 * units if kept else 0)
        panels = _panels(weight.view(3, units, units).mT, _starts(units, 1))
        memory = _Memory(given, given if noise is None else noise, bias, state, out, gates, panels)
        x, y = kernels.Inputs(*memory.places[:4]), kernels.Kept(*memory.places[4:6])
        size = kernels.Sizes(t, units, noise is not None, kept)

        def run(first: int, end: int) -> None:
            kernels.forward(x, y, memory.places[6], size, memory.like, first, end)

        _over_rows(run, b)
        ctx.save_for_backward(weight, state, out, gates)
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> Any:
        weight, state, out, gates = ctx.saved_tensors
        b, t, units = out.shape
        d_given, d_gated = out.new_empty(b, t, 3 * units), torch.empty_like(out)
        d_state = torch.zeros_like(state)
        panels = _panels(weight[None].expand(3, -1, -1), _starts(units, 3))
        memory = _Memory(state, out, gates, grad, d_given, d_gated, d_state, panels)
        start, y = memory.places[0], kernels.Kept(*memory.places[1:3])
        d, size = kernels.Gradients(*memory.places[3:7]), kernels.Sizes(t, units, False, True)

        def run(first: int, end: int) -> None:
            stays = np.empty(kernels.GROUP * units, memory.like.dtype)
            kernels.backward(
                start, y, d, memory.places[7], size, stays.ctypes.data, memory.like, first, end
            )

        _over_rows(run, b)
        before = torch.cat([state[:, None], out[:, :-1]], 1).flatten(0, 1)
        gated = d_gated.flatten(0, 1)
        both = d_given[..., : 2 * units].flatten(0, 1)
        d_weight = torch.cat([both.T @ before, gated.T @ before])
        d_bias = torch.cat([both.sum(0), gated.sum(0)])
        return d_given, d_weight, d_bias, d_state, None


def _starts(units: int, vectors: int) -> Tensor:
    """(panels, vectors) the first unit of each vector; the last ones may overlap."""
    panels = -(units // -(LANES * vectors))
    first = torch.arange(panels * vectors) * LANES
    return first.clamp(max=units - LANES).view(panels, vectors)


def _panels(weight: Tensor, starts: Tensor) -> Tensor:
    """weight (3, K, H), for each of three vectors -> (panels, K, 3, LANES)."""
    unit = starts.expand(-1, 3)[..., None] + torch.arange(LANES)  # (panels, 3, LANES)
    return torch.stack([weight[i][:, unit[:, i]] for i in range(3)], 2).transpose(0, 1)


class _Memory:
    """Addresses of tensors, which stay alive as long as this does."""

    def __init__(self, *tensors: Tensor) -> None:
        self.alive = [x.detach().contiguous() for x in tensors]
        self.places = [x.data_ptr() for x in self.alive]
        self.like = np.zeros((), self.alive[0].numpy().dtype)[()]


def _over_rows(run: Callable[[int, int], None], rows: int) -> None:
    """run(first, end), in one part for each of torch's threads."""
    groups = -(rows // -kernels.GROUP)
    parts = min(torch.get_num_threads(), groups)
    edges = [min(groups * i // parts * kernels.GROUP, rows) for i in range(parts + 1)]
    if parts == 1:
        run(*edges)
        return
    with ThreadPoolExecutor(parts) as pool:
        list(pool.map(run, edges, edges[1:]))
