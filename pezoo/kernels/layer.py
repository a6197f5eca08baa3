"""A pre-LN decoder layer around its attention, for training on a CPU.

At widths of tens to hundreds, a layer's time on a CPU goes into moving memory between its small
operations, and into products of tall matrices with small ones. Fused loops over a few rows at a
time take less of it (docs/findings/harness-speed.md). What they compute is what torch computes, up
to rounding.
"""

from __future__ import annotations

from importlib import import_module

import torch
from torch import Tensor, nn

from pezoo.kernels.installed import installed

COLUMNS = 16  # what the loops take at a time


def suits(width: int, hidden: int, device: str) -> bool:
    """Whether layers of these sizes can be fused on that device."""
    return device == "cpu" and not (width % COLUMNS or hidden % COLUMNS) and installed("numba")


def takes(x: Tensor, weight: Tensor) -> bool:
    """Whether x is trained on in float32; otherwise torch's own operations are to be used."""
    usual = x.dtype == weight.dtype == torch.float32 and x.device.type == "cpu"
    half = torch.is_autocast_enabled("cpu") or torch.compiler.is_compiling()
    return usual and torch.is_grad_enabled() and not half


def read(x: Tensor, norm: nn.LayerNorm, qkv: nn.Linear, heads: int) -> tuple[Tensor, ...]:
    """qkv(norm(x)): x (B, T, D) -> q, k and v, each (B, H, T, K)."""
    b, t, width = x.shape
    parts = import_module("pezoo.kernels.layer_numba").Read.apply(
        x.reshape(-1, width), norm.eps, norm.weight, norm.bias, qkv.weight, qkv.bias
    )
    return tuple(part.view(b, t, heads, -1).transpose(1, 2) for part in parts)


def write(
    x: Tensor, y: Tensor, out: nn.Linear, norm: nn.LayerNorm, up: nn.Linear, down: nn.Linear
) -> Tensor:
    """z + down(gelu(up(norm(z)))) with z = x + out(y): x, y (B, T, D) -> (B, T, D)."""
    flat = x.reshape(-1, x.shape[-1]), y.reshape(-1, y.shape[-1])
    modules = (out, norm, up, down)
    weights = [weight for module in modules for weight in (module.weight, module.bias)]
    result: Tensor = import_module("pezoo.kernels.layer_numba").Write.apply(
        *flat, norm.eps, *weights
    )
    return result.view(x.shape)
