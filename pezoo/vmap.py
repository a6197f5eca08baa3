"""What vmap cannot look into: functions with a backward pass of their own, and fused kernels.

Several models that differ in their weights can train as one: parameters and batches are stacked,
and torch.func.vmap runs the model over the stack. Functions of this kind are then called outside of
vmap: once for each member, or once for the rows of all members.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar, TypeVar

import torch
from torch import Tensor

_T = TypeVar("_T")


def stacked() -> bool:
    """Whether this runs under torch.func.vmap, or another transform of torch.func."""
    return bool(torch._C._are_functorch_transforms_active())


def untraced(function: Callable[..., _T]) -> Callable[..., _T]:
    """The same function, which torch.compile runs as it is between two graphs."""
    found: Callable[..., _T] = torch.compiler.disable(function)  # type: ignore[no-untyped-call]
    return found


class Kernel(torch.autograd.Function):
    """An autograd.Function that never sees a stack. Subclasses are written as always.

    What it does is recorded outside of vmap, and there the gradient has to be asked for: grad over
    vmap works, vmap over grad does not.
    """

    by_rows: ClassVar[bool] = False  # as `over_rows` needs it; else it is called for each member

    @classmethod
    def apply(cls, *args: Any) -> Any:
        """The outputs: a tensor or a tuple of tensors."""
        if torch.compiler.is_compiling():  # nor can torch.compile look into it
            return untraced(super().apply)(*args)
        if not stacked():
            return super().apply(*args)  # type: ignore[no-untyped-call]
        caller = _Rows if cls.by_rows else _Each
        return caller.apply(cls.apply, *args)  # type: ignore[no-untyped-call]


def over_rows(function: Callable[..., Tensor], *args: Any) -> Tensor:
    """function(*args), one call for all members of a stack.

    Axis 0 of each tensor numbers rows that the function treats alike, is 1 for all rows, or 0 for
    none.
    """
    if not stacked():
        return function(*args)
    out: Tensor = _Rows.apply(function, *args)  # type: ignore[no-untyped-call]
    return out


class _Outside(torch.autograd.Function):
    """A function and its arguments -> its outputs. vmap replaces the call by that of `vmap`."""

    @staticmethod
    def forward(function: Callable[..., Any], *args: Any) -> Any:
        return function(*args)

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        pass


class _Each(_Outside):
    @staticmethod
    def vmap(info: Any, in_dims: tuple[Any, ...], function: Any, *args: Any) -> Any:
        found = [
            function(*(_member(x, dim, i) for x, dim in zip(args, in_dims[1:], strict=True)))
            for i in range(info.batch_size)
        ]
        if isinstance(found[0], Tensor):
            return torch.stack(found), 0
        return tuple(map(torch.stack, zip(*found, strict=True))), (0,) * len(found[0])


class _Rows(_Outside):
    @staticmethod
    def vmap(info: Any, in_dims: tuple[Any, ...], function: Any, *args: Any) -> Any:
        size, dims = info.batch_size, in_dims[1:]
        rows = _member(args[0], dims[0], 0).shape[0]
        out = function(*(_flat(x, dim, size, rows) for x, dim in zip(args, dims, strict=True)))
        return out.unflatten(0, (size, rows)), 0


def _member(x: Any, dim: Any, i: int) -> Any:
    """Its share of an argument; one without a stacked axis is everybody's."""
    return x.select(dim, i) if isinstance(dim, int) else x


def _flat(x: Any, dim: Any, size: int, rows: int) -> Any:
    """The rows of all members, one after the other."""
    if not isinstance(x, Tensor) or (dim is None and x.shape[0] == 1):
        return x
    x = x[None] if dim is None else x.movedim(dim, 0)
    if not x.shape[1]:
        return x[0]
    return x.expand(size, rows, *x.shape[2:]).flatten(0, 1)
