"""Functions that torch.compile runs as they are, between two graphs."""

from collections.abc import Callable
from typing import Any, TypeVar

import torch

_T = TypeVar("_T")


def untraced(function: Callable[..., _T]) -> Callable[..., _T]:
    """Return the function with tracing by torch.compile disabled."""
    found: Callable[..., _T] = torch.compiler.disable(function)  # type: ignore[no-untyped-call]
    return found


class Kernel(torch.autograd.Function):
    """An autograd.Function that torch.compile does not trace."""

    @classmethod
    def apply(cls, *args: Any) -> Any:
        """Return the outputs: a tensor or a tuple of tensors."""
        call = super().apply
        return (untraced(call) if torch.compiler.is_compiling() else call)(*args)
