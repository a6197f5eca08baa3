"""Gates' probabilities in numba: one pass over the logits forward, one backward."""

from __future__ import annotations

import math
from typing import Any

from torch import Tensor
from torch.autograd.function import once_differentiable

from pezoo.kernels.members import Kernel
from pezoo.kernels.numba_cache import compiled


def probabilities(logits: Tensor, noise: Tensor | None, scale: float) -> tuple[Tensor, Tensor]:
    """The same as the reference, without a second derivative."""
    found: tuple[Tensor, Tensor] = _Gates.apply(logits, noise, scale)
    return found


class _Gates(Kernel):
    @staticmethod
    def forward(
        ctx: Any, logits: Tensor, noise: Tensor | None, scale: float
    ) -> tuple[Tensor, Tensor]:
        *lead, choices = logits.shape
        reset, moves = logits.new_empty(lead), logits.new_empty(*lead, choices - 1)
        x = _rows(logits)
        more = x[:0] if noise is None else _rows(noise.to(logits.dtype))
        _forward(x, more, x.dtype.type(scale), reset.view(-1).numpy(), _rows(moves))
        ctx.save_for_backward(reset, moves)
        ctx.scale = scale
        return reset, moves

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, d_reset: Tensor, d_moves: Tensor) -> tuple[Tensor, None, None]:
        reset, moves = ctx.saved_tensors
        d_logits = moves.new_empty(*moves.shape[:-1], moves.shape[-1] + 1)
        y = _rows(moves)
        both = (reset, d_reset)
        r, d_r = (a.detach().contiguous().view(-1).numpy() for a in both)
        _backward(r, y, d_r, _rows(d_moves), y.dtype.type(ctx.scale), _rows(d_logits))
        return d_logits, None, None


def _rows(x: Tensor) -> Any:
    return x.detach().contiguous().view(-1, x.shape[-1]).numpy()


@compiled
def _forward(x: Any, noise: Any, scale: Any, reset: Any, moves: Any) -> None:
    count, one, noisy = moves.shape[1], type(scale)(1), noise.shape[0] > 0
    for i in range(reset.shape[0]):
        logit = scale * x[i, 0]
        if noisy:
            logit += noise[i, 0]
        reset[i] = one / (one + math.exp(-logit))
        top = type(scale)(-math.inf)
        for j in range(count):
            logit = scale * x[i, j + 1]
            if noisy:
                logit += noise[i, j + 1]
            moves[i, j] = logit
            top = max(top, logit)
        total = type(scale)(0)
        for j in range(count):
            power = math.exp(moves[i, j] - top)
            moves[i, j] = power
            total += power
        share = one / total
        for j in range(count):
            moves[i, j] *= share


@compiled
def _backward(
    reset: Any, moves: Any, d_reset: Any, d_moves: Any, scale: Any, d_logits: Any
) -> None:
    for i in range(reset.shape[0]):
        r = reset[i]
        d_logits[i, 0] = scale * d_reset[i] * (r - r * r)
        inner = type(scale)(0)
        for j in range(moves.shape[1]):
            inner += d_moves[i, j] * moves[i, j]
        for j in range(moves.shape[1]):
            d_logits[i, j + 1] = scale * moves[i, j] * (d_moves[i, j] - inner)
