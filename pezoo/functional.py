"""Small functions that several encodings share."""

import math

import torch
from torch import Tensor


def inverse_frequencies(width: int, base: float, device: torch.device | None = None) -> Tensor:
    """(width/2,) float32: w_m = base^(-2m/width). Errors: ValueError for an odd width."""
    if width % 2:
        raise ValueError(f"a sinusoid needs an even width, was given {width}")
    m = torch.arange(width // 2, device=device, dtype=torch.float32)
    return torch.exp(-math.log(base) * 2 * m / width)


def sinusoid(pos: Tensor, width: int, base: float = 10_000.0) -> Tensor:
    """Sine half, then cosine half: [sin(p w_0), ..., sin(p w_n), cos(p w_0), ..., cos(p w_n)].

    pos (...) integers -> (..., width) float32. Positions stay integers up to the float32 product,
    so that half precision never rounds them (Vaswani et al. 2017, Section 3.5, whose order
    interleaves sine and cosine: a permutation of the width).
    """
    angle = pos[..., None].float() * inverse_frequencies(width, base, pos.device)
    return torch.cat([angle.sin(), angle.cos()], -1)


def at_least_float32(x: Tensor) -> Tensor:
    """x itself in float32 or float64, and in float32 when it is in half precision."""
    return x.to(torch.promote_types(x.dtype, torch.float32))
