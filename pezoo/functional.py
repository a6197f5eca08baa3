"""Small functions for encodings."""

import math
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import embedding

from pezoo.base import Context, Shape
from pezoo.spec import choice

SIMILARITIES = ("cosine", "geometric")


def inverse_frequencies(width: int, base: float, device: torch.device | None = None) -> Tensor:
    """(width/2,) float32: w_m = base^(-2m/width).

    Errors: ValueError for an odd width, and for a base that is not above 0 and finite.
    """
    if width % 2:
        raise ValueError(f"a sinusoid needs an even width, was given {width}")
    if not 0 < base < math.inf:
        raise ValueError(f"base must be above 0 and finite, was {base}")
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


def cursor_frequencies(
    similarity: str,
    width: int,
    base: float,
    device: torch.device | None = None,
    *,
    top: float = 0.9,
) -> Tensor:
    """Return (width/2,) float32 frequencies w of a cursor's stream.

    sum_m cos(w_m r) / (width/2) is the similarity of two offsets r apart.

        cosine     base^(-2m/width), the Transformer's grid (Lee 2025, Section 5.2)
        geometric  top pi base^(-2m/width): its shortest period is 2 / top offsets; at top = 1,
                   the highest frequency that integers can carry, it tells odd from even offsets

    Errors: ValueError for an unknown similarity, a base that is not positive and finite, and a top
    outside (0, 1].
    """
    choice("similarity", similarity, SIMILARITIES)
    if not 0 < top <= 1:
        raise ValueError(f"top must be above 0 and at most 1, was {top}")
    highest = top * math.pi if similarity == "geometric" else 1.0
    return highest * inverse_frequencies(width, base, device)


def key_vectors(x: Tensor, ctx: Context, shape: Shape, reader: str) -> Tensor:
    """(V, H, K): W_K x / sqrt(K), what V vectors x (V, D) add to the logits through a layer's keys.

    Groups of heads that share their keys share these. Errors: ValueError without ctx.w_key.
    """
    if ctx.w_key is None:
        raise ValueError(
            f"{reader} adds to the input of the projection to keys: give the hooks "
            "ctx.at(layer, x, w_key), w_key (K times heads, D) its weight"
        )
    keys = x / math.sqrt(shape.d_head) @ ctx.w_key.to(x.dtype).mT
    keys = keys.view(len(x), -1, shape.d_head)  # (V, G, K)
    return keys.repeat_interleave(shape.n_heads // keys.shape[1], 1)


def picked(rows: Tensor, index: Tensor) -> Tensor:
    """rows[index] of rows (n, H, K), by a table lookup: (B|1, T, S, H, K)."""
    return embedding(index, rows.flatten(1)).view(*index.shape, *rows.shape[1:])


def own_pairs(pos: Tensor) -> Tensor:
    """(S, S) int64: a number of its own for every pair of the positions pos (1, S)."""
    n = pos.shape[1]
    return torch.arange(n * n, device=pos.device).view(n, n)


def at_least_float32(x: Tensor) -> Tensor:
    """x itself in float32 or float64, and in float32 when it is in half precision."""
    return x.to(torch.promote_types(x.dtype, torch.float32))


def has_float64(device: torch.device) -> bool:
    """All but Apple's GPUs (mps)."""
    return device.type != "mps"


def full_precision(device: str) -> AbstractContextManager[Any]:
    """Without autocast, where the device has one: sums of rounded products would drift."""
    available = torch.amp.is_autocast_available(device)
    return torch.autocast(device, enabled=False) if available else nullcontext()


def distinct(x: Tensor) -> tuple[Tensor, Tensor]:
    """The different values of x, ascending (n,), and where each one of x stands among them.

    Where the number of values would have to be known too early, all count as different: on a GPU,
    for which the host would have to wait and in torch.compile.

    >>> distinct(torch.tensor([[5, 2], [5, 5]]))
    (tensor([2, 5]), tensor([[1, 0],
            [1, 1]]))
    """
    if torch.compiler.is_compiling() or x.device.type != "cpu":
        return x.flatten(), torch.arange(x.numel(), device=x.device).view_as(x)
    values, index = torch.unique(x, return_inverse=True)
    return values, index
