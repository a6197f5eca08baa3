"""Initial values of parameters and buffers, given when a module is made and again later."""

from itertools import chain
from typing import Any, Self, TypeVar

import torch
from torch import Tensor, nn

_M = TypeVar("_M", bound=nn.Module)


class Remade(nn.Module):
    """A module that keeps the arguments that it was made with, to get its initial values again."""

    _made: tuple[tuple[Any, ...], dict[str, Any]]

    def __new__(cls, *args: Any, **options: Any) -> Self:
        self = super().__new__(cls)
        vars(self)["_made"] = args, options
        return self

    @torch.no_grad()
    def reset_parameters(self) -> None:
        """Set all parameters and buffers to initial values, those of the modules within too.

        They are the values of a new instance, made on the CPU with the same arguments: after
        torch.manual_seed, those of one made after the same seed. A model that was built on the
        device `meta` needs this after `to_empty`; its parameters may be DTensors.
        """
        args, options = self._made
        with torch.device("cpu"):
            new = dict(_tensors(type(self)(*args, **options)))
        for name, own in _tensors(self):
            own.copy_(_placed_as(own, new[name]))


def _tensors(module: nn.Module) -> chain[tuple[str, Tensor]]:
    return chain(module.named_parameters(), module.named_buffers())


def _placed_as(own: Tensor, x: Tensor) -> Tensor:
    """Return x, distributed as `own` is if that is a DTensor."""
    if not hasattr(own, "device_mesh"):
        return x
    from torch.distributed.tensor import DTensor, distribute_tensor

    assert isinstance(own, DTensor)
    return distribute_tensor(x.to(own.device), own.device_mesh, own.placements)


def owned(module: _M) -> _M:
    """Make `module.reset_parameters` do nothing, because an encoding changes its initial values.

    Models may call `reset_parameters` of all modules in turn, the encoding's before this one's.
    """
    vars(module)["reset_parameters"] = _left_to_the_encoding
    return module


def _left_to_the_encoding() -> None:
    pass
