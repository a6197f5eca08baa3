"""Checks of heads that share keys, and of layers that share nothing."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from pezoo.base import Shape
from pezoo.testing.probe import (
    SHAPE,
    Factory,
    Inputs,
    axes_that_differ,
    build,
    close,
    context,
    draws,
    first_layer,
    inputs,
    require,
    tokens,
    walk,
)


def check_grouped_heads(factory: Factory) -> None:
    """Keys of fewer heads (grouped-query attention) count as each repeated for its queries."""
    encoding, (b, s) = build(factory, Shape(16, 4, 4, 1, 16)).double(), (2, 9)
    ids = tokens(b, s)
    drawn = encoding.draw(context(ids), generator=draws())
    x, q, k = inputs(encoding, b, s, torch.float64)

    def logits(keys: Tensor) -> Tensor:
        layer = first_layer(encoding, context(ids, drawn=drawn), Inputs(x, q, keys))
        return layer.logits.nan_to_num(neginf=-1e9)

    for n in (1, 2):
        message = (
            f"4 heads of queries share {n} of keys: other logits than with each head of keys "
            f"repeated for its {4 // n} of queries; where heads differ, repeat k in transform, by "
            "repeat_interleave"
        )
        few = k[:, :n]
        with torch.no_grad():
            close(logits(few), logits(few.repeat_interleave(4 // n, 1)), 1e-5, message)


def check_own_layer(factory: Factory) -> None:
    """Where a parameter has an entry for each layer, a layer's hooks read its own alone."""
    n, (b, s) = 5, (2, 9)
    encoding = build(factory, replace(SHAPE, n_layers=n)).double()
    other = build(factory, replace(SHAPE, n_layers=7))
    layered = {
        name: (p, axis)
        for name, p, axis, pair in axes_that_differ(encoding, other)
        if pair == (n, 7)
    }
    weights = [p for p, _ in layered.values()]
    steps = walk(encoding, context(tokens(b, s)), inputs(encoding, b, s, torch.float64), n)
    for hook, out, ctx in steps if layered else ():
        outs = out if hook == "transform" else [out] if hook == "bias" else []
        outs = [y for y in outs if y is not None and y.requires_grad]
        if not outs:
            continue
        sums = [(y * y.detach().cos())[y.isfinite()].sum() for y in outs]
        found = torch.autograd.grad(sums, weights, allow_unused=True, retain_graph=True)
        layer = ctx.layer
        for (name, (_, axis)), gradient in zip(layered.items(), found, strict=True):
            if gradient is None:
                continue
            read = gradient.movedim(axis, 0).reshape(n, -1).any(1).nonzero().flatten().tolist()
            others = [i for i in read if i != layer]
            require(
                not others,
                f"parameter {name} has an entry for each layer, but layer {layer} reads that of "
                f"layer {others}: index it with ctx.layer",
            )
