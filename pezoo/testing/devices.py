"""A check that every tensor is made on the device where the model is."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from pezoo.testing.probe import (
    Factory,
    Inputs,
    build,
    context,
    draws,
    first_layer,
    inputs,
    require,
    tokens,
)

_WHERE = ": make tensors with device=ctx.pos.device"


def check_device(factory: Factory) -> None:
    """Tensors are made where ctx.pos is. The device `meta` has shapes alone, on every machine."""
    encoding = build(factory)
    drawn = encoding.draw(context(tokens(2, 9)), generator=draws())
    encoding = encoding.to("meta")
    given = Inputs(*(x.to("meta") for x in inputs(encoding, 2, 9, torch.float32)))
    ctx = context(tokens(2, 9).to("meta"), torch.arange(9, device="meta")[None], drawn=drawn)
    with torch.no_grad(), _OneDevice():  # type: ignore[no-untyped-call]
        layer = first_layer(encoding, ctx, given)
        require(layer.bias is None or layer.bias.is_meta, f"bias: on the CPU, q elsewhere{_WHERE}")
        encoding.weights(layer.logits, layer.ctx)


class _OneDevice(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Refuses operations on tensors of two devices; some take them on `meta`, not on a GPU."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = func.overloadpacket.__name__
        devices = {x.device.type for x in tree_leaves((args, kwargs)) if _has_axes(x)}
        require(
            len(devices) < 2 or name in ("_to_copy", "copy_", "index"),
            f"{name} meets tensors of two devices{_WHERE}",
        )
        return func(*args, **(kwargs or {}))


def _has_axes(x: object) -> bool:
    """A tensor without axes is a number, which goes with any device."""
    return isinstance(x, Tensor) and x.dim() > 0
