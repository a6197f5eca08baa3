"""Histograms times a table over offsets, without holding all histograms in memory."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from pezoo.compiling import untraced
from pezoo.functional import full_precision
from pezoo.kernels.histogram.reference import Copy, grown, tokens_seen
from pezoo.kernels.histogram.scan import check_inputs, histogram_scan

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
    run = partial(_run, gamma=gamma, eps=eps, one_sided=one_sided)
    with full_precision(reset.device.type):
        table = table.to(reset.dtype)
        if chunk >= t:
            return run(reset, moves, table, state, *(copy or ()))
        state = reset.new_ones(b, c, 1) if state is None else state
        scan = untraced(_scan) if torch.compiler.is_compiling() else _scan
        return scan(run, chunk, (reset, moves, *(copy or ())), table, state)


def _run(
    reset: Tensor,
    moves: Tensor,
    table: Tensor,
    state: Tensor | None,
    *copied: Tensor,
    **options: Any,
) -> tuple[Tensor, Tensor]:
    """Return e and the last histogram, holding all histograms; `copied` are those of a Copy."""
    copy = Copy(*copied) if copied else None
    h = histogram_scan(reset, moves, state=state, copy=copy, **options)
    return h @ table, h[:, -1].clone()  # a view would keep all histograms


def _scan(
    run: partial[tuple[Tensor, Tensor]],
    chunk: int,
    gates: Sequence[Tensor],
    table: Tensor,
    state: Tensor,
) -> tuple[Tensor, Tensor]:
    """Run `chunk` tokens at a time; backward runs each part again. Gates are (B, T, C, ...)."""
    rows, one_sided = [], run.keywords["one_sided"]
    for reset, moves, *copied in zip(*(torch.split(x, chunk, 1) for x in gates), strict=True):
        _, t, _, j = moves.shape
        bins = grown(state.shape[-1], t, j, one_sided)
        skip = 0 if one_sided else (table.shape[0] - bins) // 2
        own = table[skip : skip + bins]
        if copied:
            copied[1] = copied[1][..., : tokens_seen(bins, j, one_sided)]
        e, state = checkpoint(
            run, reset, moves, own, state, *copied, use_reentrant=False, preserve_rng_state=False
        )
        rows.append(e)
    return torch.cat(rows, 1), state
