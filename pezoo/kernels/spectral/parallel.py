"""The spectral scan as a parallel scan over time: log2 T rounds instead of T steps.

The maps phi -> A phi + B form a semigroup, (A2, B2) after (A1, B1) = (A2 A1, A2 B1 + B2), so that
all their prefixes come from doubling (Hillis and Steele 1986, "Data Parallel Algorithms"). With
|A| <= 1 no product grows.
"""

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from pezoo.compiling import Kernel
from pezoo.functional import spread
from pezoo.kernels.spectral.reference import as_complex


def scan(
    reset: Tensor, moves: Tensor, table: Tensor, state: Tensor, copied: Tensor | None, every: int
) -> Tensor:
    """Compute `reference.scan`, without a second derivative."""
    copied = None if copied is None else spread(copied, every, reset.shape[2], 0.0)
    jump = moves * reset[..., None]
    a, b = as_complex((moves - jump) @ table), as_complex(jump @ table)  # (B, T, C, F)
    b = b if copied is None else b + as_complex(copied)
    phi: Tensor = _Affine.apply(a, b, as_complex(state))
    return torch.cat([phi.real, phi.imag], -1)


class _Affine(Kernel):
    """x_t = a_t x_{t-1} + b_t for complex a, b (B, T, C, F) from x_0 (B, C, F)."""

    @staticmethod
    def forward(ctx: Any, a: Tensor, b: Tensor, start: Tensor) -> Tensor:
        x = b.clone()
        x[:, 0] += a[:, 0] * start
        _prefixes(a.clone(), x)
        ctx.save_for_backward(a, start, x)
        return x

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        a, start, x = ctx.saved_tensors
        # g_t = grad_t + conj(a_{t+1}) g_{t+1}: the same recurrence, backwards in time.
        back = torch.cat([torch.zeros_like(start)[:, None], a[:, 1:].conj().flip(1)], 1)
        g = grad.flip(1)
        _prefixes(back, g)
        g = g.flip(1)
        previous = torch.cat([start[:, None], x[:, :-1]], 1)
        return g * previous.conj(), g, a[:, 0].conj() * g[:, 0]


def _prefixes(a: Tensor, b: Tensor) -> None:
    """Turn b in-place into x_t = a_t x_{t-1} + b_t from x_0 = 0; overwrites a."""
    step, steps = 1, b.shape[1]
    while step < steps:
        # Each right-hand side is complete before it is written.
        b[:, step:] += a[:, step:] * b[:, :-step]
        if 2 * step < steps:
            a[:, step:] *= a[:, :-step].clone()
        step *= 2
