"""An encoding and its pass on other devices, for models whose layers lie on several."""

import copy
from dataclasses import fields, replace
from itertools import chain
from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_map

from pezoo.base import Encoding, Pass
from pezoo.context import Memo


class _There(Memo):
    """A memo on a device: values come there when they are read, and stay in the memo as they are.

    What is written goes to the memo.
    """

    def __init__(self, memo: Memo, device: torch.device) -> None:
        super().__init__(memo)
        self.memo, self.device = memo, device

    def __getitem__(self, key: str) -> Any:
        value = moved(super().__getitem__(key), self.device)
        super().__setitem__(key, value)
        return value

    def __setitem__(self, key: str, value: Any) -> None:
        super().__setitem__(key, value)
        self.memo[key] = value

    def get(self, key: str, default: Any = None) -> Any:
        return super().get(key, default) if key not in self else self[key]

    def setdefault(self, key: str, default: Any = None) -> Any:
        if key not in self:
            self[key] = default
        return self[key]


def moved(x: Any, device: torch.device) -> Any:
    """Return x with the tensors in it, in its contexts and in their memos on a device."""

    if isinstance(x, Tensor):
        return x.to(device)

    def move(leaf: Any) -> Any:
        if isinstance(leaf, Tensor):
            return leaf.to(device)
        if isinstance(leaf, Memo):
            return _There(leaf, device)
        if isinstance(leaf, Pass):
            own = {f.name: moved(getattr(leaf, f.name), device) for f in fields(leaf)}
            return replace(leaf, **own)
        return leaf

    return tree_map(move, x)


def placed(encoding: Encoding, device: torch.device) -> Encoding:
    """Return the encoding, or a copy on a device, through which gradients reach its parameters.

    Errors: ValueError for parameters without values, as accelerate leaves those that it offloads.
    """
    own = list(chain(encoding.parameters(), encoding.buffers()))
    if all(x.device == device for x in own):
        return encoding
    if any(x.is_meta for x in own):
        raise ValueError(
            f"the weights of {encoding.name} are offloaded: give the model's module `encoding` a "
            'device, as in device_map={"model.encoding": "cpu", ...}'
        )
    return copy.deepcopy(encoding, {id(x): x.to(device) for x in own})
