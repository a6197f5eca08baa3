"""Cursors' positions as characteristic functions, which are their streams."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor

from pezoo.cursors.controllers import at_count
from pezoo.cursors.encoding import wave
from pezoo.cursors.layer import Scan
from pezoo.kernels.histogram import Copy
from pezoo.kernels.spectral import spectral_scan


class Spectrum(Scan):
    """Move the characteristic function of every cursor's position token by token."""

    kernel = "spectral"
    source = "inverse Fourier transform of the characteristic function"

    def __init__(self, stride: int, frequencies: Callable[[torch.device], Tensor]) -> None:
        super().__init__()
        self.stride, self.frequencies = stride, frequencies

    def forward(
        self,
        reset: Tensor,
        moves: Tensor,
        copy: Copy | None,
        state: Tensor | None,
        count: Tensor | None,
    ) -> tuple[Tensor, Tensor]:
        w = self.frequencies(reset.device)
        phi = self._scan(w, reset, moves, copy, state)
        if count is None:
            return phi, phi[:, -1]
        start = torch.cat(
            [torch.ones_like(phi[:, 0, :, : len(w)]), torch.zeros_like(phi[:, 0, :, len(w) :])], -1
        )
        return phi, at_count(phi, start if state is None else state, count)

    def positions(self, reset: Tensor, moves: Tensor, copy: Copy | None) -> tuple[Tensor, Tensor]:
        """Return the inverse Fourier transform of the recurrence at the frequencies 2 pi n / N.

        It is exact, because N is odd and at least the size of the support.
        """
        reach = self.stride * max(1, reset.shape[1]) + 1
        w = (2 * math.pi / (2 * reach + 1)) * torch.arange(reach + 1, device=reset.device)
        phi = torch.complex(*self._scan(w, reset, moves, copy, None).chunk(2, -1))
        h = torch.fft.irfft(phi.conj(), n=2 * reach + 1).roll(reach, -1).clamp(min=0)
        return h, torch.arange(-reach, reach + 1, device=reset.device)

    def _steps(self, device: torch.device) -> Tensor:
        """Return `steps_of` (J,) as a tensor on that device."""
        number = torch.arange(2 * self.stride + 1, device=device)
        size = number // 2 + 1
        return torch.where(number % 2 == 0, size, -size) * (size <= self.stride)

    def _scan(
        self, w: Tensor, reset: Tensor, moves: Tensor, copy: Copy | None, state: Tensor | None
    ) -> Tensor:
        """Return the characteristic functions (B, T, C, 2F) at the frequencies w (F,)."""
        angles = (self._steps(w.device).to(w)[:, None] * w).to(reset.dtype)  # (J, F)
        copied = None
        if copy is not None:
            number = torch.arange(1, copy.source.shape[-1] + 1, device=w.device)
            copied = copy.none, copy.source @ wave(number, w).to(reset.dtype)
        return spectral_scan(reset, moves, angles, state, copy=copied)
