"""Normalisation of streams (Algorithm 3) and coefficients of heads, in one function."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from pezoo.compiling import Kernel

SMALLEST = 1e-6  # norms below it count as this


def scaled(e: Tensor, coefficients: Tensor, norm: str) -> Tensor:
    """Scale streams e (..., G, C, d) of G groups of C cursors to a_c s e_c, coefficients a (G, C).

        frobenius  s = sqrt(d) / |e|, the norm over the C cursors of a group
        scale      s = sqrt(2 / C)                                          (Algorithm 3)

    The gradient is handwritten, because these are the largest arrays of a training step. It has no
    second derivative.
    """
    if norm == "scale":
        return e * (coefficients * math.sqrt(2 / e.shape[-2]))[..., None]
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
