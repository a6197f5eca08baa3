"""An encoding's positional relation function, in the form that `Encoding.prf` promises."""

from __future__ import annotations

import torch
from torch import Tensor

from pezoo.base import Context, Encoding, Relation


class RelationError(ValueError):
    """An encoding's `prf` that fails, or returns something else than it should."""


def relation_function(
    encoding: Encoding,
    size: int,
    *,
    scale: int | None = None,
    relation: Relation | None = None,
    layer: int = 0,
) -> Tensor | None:
    """`Encoding.prf` at positions 0..size-1, with the scale where the encoding needs it.

    (size, size) whole numbers, or (size, size, values) that are a distribution, or None.

    >>> from pezoo import RoPE, Shape
    >>> rope = RoPE(Shape(d_model=8, n_heads=2, d_head=4, n_layers=1, train_len=9))
    >>> relation_function(rope, 2)
    tensor([[ 0, -1],
            [ 1,  0]])

    Errors: RelationError where `prf` raises anything but a ValueError, which is passed on, or where
    it returns another type, shape or kind of numbers.
    """
    name = type(encoding).__name__
    hint = torch.tensor([scale]) if encoding.needs_scale and scale is not None else None
    ctx = Context(pos=torch.arange(size)[None], scale=hint, relation=relation, layer=layer)
    try:
        phi = encoding.prf(ctx)
    except ValueError:
        raise
    except Exception as error:  # a plug-in may raise anything
        raise RelationError(f"prf(ctx) of {name} fails: {type(error).__name__}: {error}") from error
    if phi is None:
        return None
    wanted = f"expected ({size}, {size}) of int64, or ({size}, {size}, values) of a distribution"
    if not isinstance(phi, Tensor):
        raise RelationError(f"prf of {name} returns {type(phi).__name__}: {wanted}")
    learned = phi.is_floating_point()
    if (
        phi.shape[:2] != (size, size)
        or phi.dim() != 2 + learned
        or not (learned or phi.dtype == torch.int64)
    ):
        raise RelationError(f"prf of {name} returns {tuple(phi.shape)} of {phi.dtype}: {wanted}")
    return phi
