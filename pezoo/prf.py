"""The positional relation function (PRF) of an encoding: which pairs of positions it treats alike.

Chen et al. 2026 write it phi(i, j), or phi(i, j, n) with the scale n.
"""

import torch
from torch import Tensor

from pezoo.base import PRF, Context, Encoding


class PRFError(ValueError):
    """`Encoding.prf` raises an error, or returns something of the wrong form."""


def prf_of(
    encoding: Encoding,
    size: int,
    *,
    scale: int | None = None,
    task_prf: PRF | None = None,
    layer: int = 0,
) -> Tensor | None:
    """Return `encoding.prf` at positions 0..size-1, and check its form.

    The result is (size, size) int64, or (size, size, values) for a distribution, or None. The
    scale is passed on where the encoding needs it.

    >>> from pezoo import RoPE, Shape
    >>> rope = RoPE(Shape(d_model=8, n_heads=2, d_head=4, n_layers=1, train_len=9))
    >>> prf_of(rope, 2)
    tensor([[ 0, -1],
            [ 1,  0]])

    Errors: PRFError where `prf` returns another type, shape or dtype, or raises anything but a
    ValueError, which is passed on.
    """
    name = type(encoding).__name__
    hint = torch.tensor([scale]) if encoding.needs_scale and scale is not None else None
    ctx = Context(pos=torch.arange(size)[None], scale=hint, task_prf=task_prf, layer=layer)
    try:
        prf = encoding.prf(ctx)
    except ValueError:
        raise
    except Exception as error:  # a plug-in may raise any exception
        raise PRFError(f"prf(ctx) of {name} fails: {type(error).__name__}: {error}") from error
    if prf is None:
        return None
    expected = f"expected ({size}, {size}) of int64, or ({size}, {size}, values) of a distribution"
    if not isinstance(prf, Tensor):
        raise PRFError(f"prf of {name} returns {type(prf).__name__}: {expected}")
    learned = prf.is_floating_point()
    fits = prf.shape[:2] == (size, size) and prf.dim() == 2 + learned
    if not fits or not (learned or prf.dtype == torch.int64):
        raise PRFError(f"prf of {name} returns {tuple(prf.shape)} of {prf.dtype}: {expected}")
    return prf
