"""Positions of cursors over time, and their streams: what attention compares."""

import math
from collections.abc import Callable
from typing import Any, ClassVar, NamedTuple

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn.functional import pad, softplus

from pezoo.compiling import Kernel
from pezoo.cursors.controllers import at_count
from pezoo.functional import at_least_float32
from pezoo.kernels.histogram import Copy, histogram_scan, histogram_stream
from pezoo.kernels.histogram.reference import grown
from pezoo.kernels.spectral import spectral_scan

SMALLEST = 1e-6  # norms below it count as this


def wave(offsets: Tensor, w: Tensor) -> Tensor:
    """Compute cos(w d), then sin(w d): integers (...), frequencies (F,) -> (..., 2F) float32."""
    angle = offsets[..., None].float() * w
    return torch.cat([angle.cos(), angle.sin()], -1)


class Gates(NamedTuple):
    """The moves of cursors: reset (B, T, C), moves (B, T, C, J), and gamma (C,) to sharpen by.

    Cursors 0, `every`, 2 `every`, ... of a `Scan` copy, as many as copy has.
    """

    reset: Tensor
    moves: Tensor
    gamma: Tensor | None
    copy: Copy | None


class Scan(nn.Module):
    """Interface of the recurrences of positions: gates in, streams out.

    `forward` takes the gates, the earlier state or None, and each row's number of tokens, count
    (B,), or None for all T. It returns streams (B, T, C, d_pe) and the state after them.
    """

    kernel: ClassVar[str] = ""  # in pezoo.kernels, for records
    source = "histogram"  # of `positions`, for captions

    @property
    def gamma(self) -> Tensor | None:
        """(C,) the sharpness of each cursor; None without sharpening."""
        return None

    def positions(self, gates: Gates) -> tuple[Tensor, Tensor]:
        """Return Pr(offset) after each token of whole sequences (B, T, C, L), and offsets (L,)."""
        raise NotImplementedError


class Histograms(Scan):
    """Move and sharpen histograms token by token, and superpose sinusoids by them."""

    kernel = "histogram"

    def __init__(
        self,
        total: int,
        gamma: float,
        eps: float,
        frequencies: Callable[[torch.device], Tensor],
        every: int,
    ) -> None:
        super().__init__()
        self.eps, self.frequencies = eps, frequencies
        self.every = max(every, 1)
        start = torch.full((total,), math.log(math.expm1(gamma - 1))) if gamma > 1 else None
        self.raw_gamma = None if start is None else nn.Parameter(start)

    @property
    def gamma(self) -> Tensor | None:
        """(C,) sharpness per cursor, at least 1; None when sharpening is off."""
        return None if self.raw_gamma is None else 1 + softplus(at_least_float32(self.raw_gamma))

    def forward(
        self, gates: Gates, state: Tensor | None, count: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        reset, moves, gamma, copy = gates
        first = 1 if state is None else state.shape[-1]
        bins = grown(first, reset.shape[1], moves.shape[-1])
        table = self.table(bins, reset)  # (L, d_pe)
        if count is None:  # without padding: not all histograms need to be in memory
            given = reset, moves, gamma, table, state, self.eps
            return histogram_stream(*given, copy=copy, every=self.every)
        h = self.histograms(gates, state)
        start = h.new_ones(*h[:, 0].shape[:2], 1) if state is None else state
        left = (bins - first) // 2
        return h @ table, at_count(h, pad(start, (left, left)), count)

    def histograms(self, gates: Gates, state: Tensor | None) -> Tensor:
        """Return the histograms (B, T, C, L) after each token, over the offsets of `table`."""
        reset, moves, gamma, copy = gates
        return histogram_scan(reset, moves, gamma, state, self.eps, copy=copy, every=self.every)

    def positions(self, gates: Gates) -> tuple[Tensor, Tensor]:
        h = self.histograms(gates, None)
        return h, self.offsets(h.shape[-1], h.device)

    def offsets(self, bins: int, device: torch.device) -> Tensor:
        """Return the offsets (L,) of the bins of histograms (..., L)."""
        return torch.arange(bins, device=device) - bins // 2

    def table(self, bins: int, like: Tensor) -> Tensor:
        """Return the sinusoids (L, d_pe) of the bins' offsets, in the dtype of `like`."""
        offsets = self.offsets(bins, like.device)
        return wave(offsets, self.frequencies(like.device)).to(like.dtype)


class Spectrum(Scan):
    """Move the characteristic function of every cursor's position token by token."""

    kernel = "spectral"
    source = "inverse Fourier transform of the characteristic function"

    def __init__(
        self, stride: int, frequencies: Callable[[torch.device], Tensor], every: int
    ) -> None:
        super().__init__()
        self.stride, self.frequencies, self.every = stride, frequencies, max(every, 1)

    def forward(
        self, gates: Gates, state: Tensor | None, count: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        w = self.frequencies(gates.reset.device)
        phi = self._scan(w, gates, state)
        if count is None:
            return phi, phi[:, -1]
        start = torch.cat(
            [torch.ones_like(phi[:, 0, :, : len(w)]), torch.zeros_like(phi[:, 0, :, len(w) :])], -1
        )
        return phi, at_count(phi, start if state is None else state, count)

    def positions(self, gates: Gates) -> tuple[Tensor, Tensor]:
        """Return the inverse Fourier transform of the recurrence at the frequencies 2 pi n / N.

        It is exact, because N is odd and at least the size of the support.
        """
        device, reach = gates.reset.device, self.stride * max(1, gates.reset.shape[1]) + 1
        w = (2 * math.pi / (2 * reach + 1)) * torch.arange(reach + 1, device=device).float()
        phi = torch.complex(*self._scan(w, gates, None).chunk(2, -1))
        h = torch.fft.irfft(phi.conj(), n=2 * reach + 1).roll(reach, -1).clamp(min=0)
        return h, torch.arange(-reach, reach + 1, device=device)

    def _steps(self, device: torch.device) -> Tensor:
        """Return `steps_of` (J,) as a tensor on that device."""
        number = torch.arange(2 * self.stride + 1, device=device)
        size = number // 2 + 1
        return torch.where(number % 2 == 0, size, -size) * (size <= self.stride)

    def _scan(self, w: Tensor, gates: Gates, state: Tensor | None) -> Tensor:
        """Return the characteristic functions (B, T, C, 2F) at the frequencies w (F,)."""
        reset, moves, _, copy = gates
        angles = (self._steps(w.device).to(w)[:, None] * w).to(reset.dtype)  # (J, F)
        copied = None
        if copy is not None:
            number = torch.arange(1, copy.source.shape[-1] + 1, device=w.device)
            copied = copy.none, copy.source @ wave(number, w).to(reset.dtype)
        return spectral_scan(reset, moves, angles, state, copy=copied, every=self.every)


def scaled(e: Tensor, coefficients: Tensor) -> Tensor:
    """Scale streams e (..., G, C, d) of G groups of C cursors to a_c s e_c, coefficients a (G, C).

        s = sqrt(d) / |e|, the norm over the C cursors of a group           (Algorithm 3)

    The gradient is handwritten, because these are the largest arrays of a training step. It has no
    second derivative.
    """
    out: Tensor = _Frobenius.apply(e, coefficients)
    return out


class _Frobenius(Kernel):
    @staticmethod
    def forward(ctx: Any, e: Tensor, a: Tensor) -> Tensor:
        norm = torch.linalg.vector_norm(e.flatten(-2), dim=-1)  # (..., G)
        s = math.sqrt(e.shape[-1]) / norm.clamp(min=SMALLEST)
        ctx.save_for_backward(e, a, s, norm)
        y: Tensor = e * (a * s[..., None])[..., None]
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor, Tensor]:
        e, a, s, norm = ctx.saved_tensors
        inner = torch.linalg.vecdot(g, e)  # (..., G, C)
        d_a = (inner * s[..., None]).flatten(0, -3).sum(0)
        # s falls with the norm: ds/de = -s e / |e|^2.
        pull = (inner * a).sum(-1) * s / norm.clamp(min=SMALLEST).square()
        pull = torch.where(norm > SMALLEST, pull, 0.0)
        d_e = g * (a * s[..., None])[..., None]
        d_e.addcmul_(e, pull[..., None, None], value=-1)
        return d_e, d_a
