"""Histograms times a table over offsets, without holding all histograms in memory."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from pezoo.compiling import Kernel
from pezoo.functional import full_precision
from pezoo.kernels.histogram.reference import Copy, grown, tokens_seen
from pezoo.kernels.histogram.scan import check_inputs, histogram_scan

# reset, moves, gamma, table, state, copy.none, copy.source; and eps, one_sided
Inputs = Sequence[Any]
Options = tuple[float, bool]

SMALL = 1 << 24  # numbers in all histograms, up to which they are held at once


def histogram_stream(
    reset: Tensor,
    moves: Tensor,
    gamma: Tensor | None,
    table: Tensor,
    state: Tensor | None = None,
    eps: float = 1e-8,
    *,
    copy: Copy | None = None,
    one_sided: bool = False,
    chunk: int | None = None,
) -> tuple[Tensor, Tensor]:
    """Return `histogram_scan` times table (L, d), e (B, T, C, d), and the last histogram (B, C, L).

    e_t = sum_i h_t[i] table[i]. The rows of the table are the offsets of the last histogram, -P..P,
    or 0..P one-sided. The other arguments are those of `histogram_scan`.

    Histograms are computed `chunk` steps at a time. Only the state before each chunk is kept, and
    backward computes the chunk's histograms again, for the cost of one more forward pass. By
    default all steps form one chunk if that is small; otherwise a chunk has about sqrt(T) steps.

    >>> reset, moves = torch.tensor([[[0.0]]]), torch.tensor([[[[0.7, 0.1, 0.2]]]])
    >>> e, last = histogram_stream(reset, moves, None, torch.tensor([[-1.0], [0.0], [1.0]]))
    >>> e
    tensor([[[[0.6000]]]])
    >>> last
    tensor([[[0.1000, 0.2000, 0.7000]]])

    Errors: ValueError for a table of the wrong length or a chunk below 1, and those of
    `histogram_scan`.

    Source: Lee 2025, "Position as Probability", Algorithm 2. Keeping one state per chunk is
    checkpointing (Chen et al. 2016, "Training deep nets with sublinear memory cost").
    """
    check_inputs(reset, moves, gamma, state, eps, copy, one_sided)
    b, t, c = reset.shape
    bins = grown(1 if state is None else state.shape[-1], t, moves.shape[-1], one_sided)
    if table.dim() != 2 or table.shape[0] != bins:
        raise ValueError(f"table must be ({bins}, d), got {tuple(table.shape)}")
    if chunk is not None and chunk < 1:
        raise ValueError(f"chunk must be at least 1, got {chunk}")
    if chunk is None:
        chunk = t if b * t * c * bins <= SMALL else math.ceil(math.sqrt(t))
    options = eps, one_sided
    with full_precision(reset.device.type):
        inputs = reset, moves, gamma, table.to(reset.dtype), state, *(copy or (None, None))
        if chunk >= t:
            return _run(inputs, options)
        start = reset.new_ones(b, c, 1) if state is None else state
        e, last = _Stream.apply(chunk, options, *inputs[:4], start, *inputs[5:])
    return e, last


def _run(inputs: Inputs, options: Options) -> tuple[Tensor, Tensor]:
    """Return e and the last histogram, holding all histograms."""
    reset, moves, gamma, table, state, none, source = inputs
    eps, one_sided = options
    copy = None if none is None else Copy(none, source)
    h = histogram_scan(reset, moves, gamma, state, eps, copy=copy, one_sided=one_sided)
    return h @ table, h[:, -1]


def _cut(
    inputs: Inputs, state: Tensor, start: int, end: int, count: int, one_sided: bool
) -> Inputs:
    """Return the inputs of steps start..end-1, which begin with that state."""
    reset, moves, gamma, table, _, none, source = inputs
    bins = grown(state.shape[-1], end - start, count, one_sided)
    steps = [None if x is None else x[:, start:end] for x in (reset, moves, none, source)]
    if table is not None:
        skip = 0 if one_sided else (table.shape[0] - bins) // 2
        table = table[skip : skip + bins]
    seen = tokens_seen(bins, count, one_sided)
    source = None if steps[3] is None else steps[3][..., :seen]
    return *steps[:2], gamma, table, state, steps[2], source


class _Stream(Kernel):
    """chunk, options and Inputs -> e, last."""

    @staticmethod
    def forward(
        ctx: Any, chunk: int, options: Options, *inputs: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        moves, state = inputs[1], inputs[4]
        assert moves is not None
        assert state is not None
        edges = [*range(0, moves.shape[1], chunk), moves.shape[1]]
        kind = moves.shape[-1], options[1]
        rows, states = [], []
        for start, end in pairwise(edges):
            states.append(state)
            e, last = _run(_cut(inputs, state, start, end, *kind), options)
            rows.append(e)
            state = last.clone()  # a view would keep the chunk's histograms
        ctx.save_for_backward(*inputs, *states)
        ctx.edges, ctx.options, ctx.kind = edges, options, kind
        return torch.cat(rows, 1), state

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, d_e: Tensor, d_state: Tensor) -> Any:
        inputs, states = ctx.saved_tensors[:7], ctx.saved_tensors[7:]
        needed = [x is not None and ctx.needs_input_grad[2 + i] for i, x in enumerate(inputs)]
        grads = [
            torch.zeros_like(x) if need else None for x, need in zip(inputs, needed, strict=True)
        ]
        needed[4] = True  # what comes before needs it
        for state, (start, end) in reversed([*zip(states, pairwise(ctx.edges), strict=True)]):
            part = [
                x.detach().requires_grad_() if need else x
                for x, need in zip(_cut(inputs, state, start, end, *ctx.kind), needed, strict=True)
            ]
            with torch.enable_grad():
                outputs = _run(part, ctx.options)
            leaves = [x for x, need in zip(part, needed, strict=True) if need]
            found = iter(torch.autograd.grad(outputs, leaves, (d_e[:, start:end], d_state)))
            into = _cut(grads, state, start, end, *ctx.kind)
            for i, need in enumerate(needed):
                if need and i == 4:
                    d_state = next(found)
                elif need:
                    into[i].add_(next(found))
        grads[4] = d_state if ctx.needs_input_grad[6] else None
        return None, None, *grads
