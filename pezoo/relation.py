"""An encoding's positional relation function, in the form that `Encoding.prf` promises."""

from __future__ import annotations

from torch import Tensor, int64

from pezoo.base import Context, Encoding


class RelationError(ValueError):
    """An encoding's `prf` that fails, or returns something else than it should."""


def relation_of(encoding: Encoding, ctx: Context) -> Tensor | None:
    """encoding.prf(ctx): (S, S) whole numbers, or (S, S, values) that are a distribution, or None.

    Errors: RelationError where `prf` raises anything but a ValueError, which is passed on, or where
    it returns another type, shape or kind of numbers.
    """
    name = type(encoding).__name__
    try:
        phi = encoding.prf(ctx)
    except ValueError:
        raise
    except Exception as error:  # a plug-in may raise anything
        raise RelationError(f"prf(ctx) of {name} fails: {type(error).__name__}: {error}") from error
    if phi is None:
        return None
    size = ctx.pos.shape[1]
    wanted = f"expected ({size}, {size}) of int64, or ({size}, {size}, values) of a distribution"
    if not isinstance(phi, Tensor):
        raise RelationError(f"prf of {name} returns {type(phi).__name__}: {wanted}")
    learned = phi.is_floating_point()
    if (
        phi.shape[:2] != (size, size)
        or phi.dim() != 2 + learned
        or not (learned or phi.dtype == int64)
    ):
        raise RelationError(f"prf of {name} returns {tuple(phi.shape)} of {phi.dtype}: {wanted}")
    return phi
