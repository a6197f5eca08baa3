"""Cursors' positions as histograms over offsets, and the streams that attention sees."""

from __future__ import annotations

import math
from functools import partial

import torch
from torch import Tensor, nn
from torch.nn.functional import pad, softplus

from pezoo.cursors.controllers import at_count
from pezoo.cursors.encoding import wave
from pezoo.cursors.layer import Scan
from pezoo.functional import at_least_float32
from pezoo.kernels.histogram import Copy, Gates, histogram_scan, histogram_stream
from pezoo.kernels.histogram.strides import strided_scan, strided_steps


class Histograms(Scan):
    """Histograms moved and sharpened, token by token, and their superposition of sinusoids."""

    def __init__(
        self,
        total: int,
        gamma: float,
        eps: float,
        one_sided: bool,
        frequencies: partial[Tensor],
    ) -> None:
        super().__init__()
        self.eps, self.one_sided, self.frequencies = eps, one_sided, frequencies
        start = torch.full((total,), math.log(math.expm1(gamma - 1))) if gamma > 1 else None
        self.raw_gamma = None if start is None else nn.Parameter(start)

    @property
    def gamma(self) -> Tensor | None:
        """(C,) sharpness per cursor, at least 1; None when sharpening is off."""
        return None if self.raw_gamma is None else 1 + softplus(at_least_float32(self.raw_gamma))

    def forward(
        self,
        reset: Tensor,
        moves: Tensor,
        copy: Copy | None,
        state: Tensor | None,
        count: Tensor | None,
    ) -> tuple[Tensor, Tensor]:
        if count is None:
            return self._stream(reset, moves, copy, state)
        h = self.histograms(reset, moves, copy, state)
        e = h @ self.table(h)
        start = h.new_ones(*h[:, 0].shape[:2], 1) if state is None else state
        missing = h.shape[-1] - start.shape[-1]
        left = 0 if self.one_sided else missing // 2
        return e, at_count(h, pad(start, (left, missing - left)), count)

    def _stream(
        self, reset: Tensor, moves: Tensor, copy: Copy | None, state: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        """The same where every row has all tokens, without all histograms in memory."""
        first = 1 if state is None else state.shape[-1]
        reach = 1 if self.one_sided else moves.shape[-1] - 1  # bins that a token adds
        table = self.table(reset.new_empty(first + reach * reset.shape[1]))  # (L, d_pe)
        if moves.shape[-1] > 3:
            e, h = [], reset.new_empty(0)
            for h in strided_steps(reset, moves, self.gamma, state, self.eps, copy):
                e.append(h @ table.narrow(0, (len(table) - h.shape[-1]) // 2, h.shape[-1]))
            return torch.stack(e, 1), h
        return histogram_stream(
            _gates(reset, moves),
            self.gamma,
            table,
            state,
            self.eps,
            copy=copy,
            one_sided=self.one_sided,
        )

    def histograms(
        self, reset: Tensor, moves: Tensor, copy: Copy | None = None, state: Tensor | None = None
    ) -> Tensor:
        """(B, T, C, L) histograms after each token; the offsets are those of `table`."""
        if moves.shape[-1] > 3:
            return strided_scan(reset, moves, self.gamma, state, self.eps, copy)
        gates = _gates(reset, moves)
        return histogram_scan(
            gates, self.gamma, state, self.eps, copy=copy, one_sided=self.one_sided
        )

    def positions(self, reset: Tensor, moves: Tensor, copy: Copy | None) -> tuple[Tensor, Tensor]:
        h = self.histograms(reset, moves, copy)
        return h, self.offsets(h)

    def offsets(self, h: Tensor) -> Tensor:
        """(L,) the offsets of the bins of histograms h (..., L)."""
        size = h.shape[-1]
        first = 0 if self.one_sided else -(size // 2)
        return torch.arange(first, first + size, device=h.device)

    def table(self, h: Tensor) -> Tensor:
        """(L, d_pe) the sinusoids of the offsets of histograms h (..., L)."""
        return wave(self.offsets(h), self.frequencies(h.device)).to(h.dtype)


def _gates(reset: Tensor, moves: Tensor) -> Gates:
    """reset (B, T, C), moves (B, T, C, 3): the steps +1, -1 and 0."""
    incr, decr, _ = moves.movedim(-1, 0)
    return Gates(reset, incr, decr)
