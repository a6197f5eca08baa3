"""Cursors' positions as histograms over offsets, and their streams."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn.functional import pad, softplus

from pezoo.cursors.controllers import at_count
from pezoo.cursors.encoding import wave
from pezoo.cursors.layer import Scan
from pezoo.functional import at_least_float32
from pezoo.kernels.histogram import Copy, histogram_scan, histogram_stream
from pezoo.kernels.histogram.reference import grown


class Histograms(Scan):
    """Move and sharpen histograms token by token, and superpose sinusoids by them."""

    kernel = "histogram"

    def __init__(
        self,
        total: int,
        gamma: float,
        eps: float,
        one_sided: bool,
        frequencies: Callable[[torch.device], Tensor],
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
        e = h @ self.table(h.shape[-1], h)
        start = h.new_ones(*h[:, 0].shape[:2], 1) if state is None else state
        missing = h.shape[-1] - start.shape[-1]
        left = 0 if self.one_sided else missing // 2
        return e, at_count(h, pad(start, (left, missing - left)), count)

    def _stream(
        self, reset: Tensor, moves: Tensor, copy: Copy | None, state: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        """Compute the streams of rows without padding, without all histograms in memory."""
        first = 1 if state is None else state.shape[-1]
        bins = grown(first, reset.shape[1], moves.shape[-1], self.one_sided)
        return histogram_stream(
            reset,
            moves,
            self.gamma,
            self.table(bins, reset),  # (L, d_pe)
            state,
            self.eps,
            copy=copy,
            one_sided=self.one_sided,
        )

    def histograms(
        self, reset: Tensor, moves: Tensor, copy: Copy | None = None, state: Tensor | None = None
    ) -> Tensor:
        """Return the histograms (B, T, C, L) after each token, over the offsets of `table`."""
        return histogram_scan(
            reset, moves, self.gamma, state, self.eps, copy=copy, one_sided=self.one_sided
        )

    def positions(self, reset: Tensor, moves: Tensor, copy: Copy | None) -> tuple[Tensor, Tensor]:
        h = self.histograms(reset, moves, copy)
        return h, self.offsets(h.shape[-1], h.device)

    def offsets(self, bins: int, device: torch.device) -> Tensor:
        """Return the offsets (L,) of the bins of histograms (..., L)."""
        first = 0 if self.one_sided else -(bins // 2)
        return torch.arange(first, first + bins, device=device)

    def table(self, bins: int, like: Tensor) -> Tensor:
        """Return the sinusoids (L, d_pe) of the bins' offsets, in the dtype of `like`."""
        offsets = self.offsets(bins, like.device)
        return wave(offsets, self.frequencies(like.device)).to(like.dtype)
