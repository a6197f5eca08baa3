"""Checks of heads that share keys, and of layers that share nothing."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from pezoo.base import Shape
from pezoo.testing.probe import (
    SHAPE,
    Factory,
    axes_that_differ,
    build,
    close,
    context,
    draws,
    key_weight,
    require,
    tokens,
)


def check_grouped_heads(factory: Factory) -> None:
    """Keys of fewer heads (grouped-query attention) count as each repeated for its queries."""
    encoding, (b, s) = build(factory, Shape(16, 4, 4, 1, 16)).double(), (2, 9)
    generator, shape = torch.Generator().manual_seed(6), encoding.shape
    x = torch.randn(b, s, shape.d_model, generator=generator).double()
    q, k = torch.randn(2, b, 4, s, shape.d_head, generator=generator).double()
    ids = tokens(b, s)
    drawn = encoding.draw(context(ids), generator=draws())
    weight = key_weight(shape)

    def logits(keys: Tensor) -> Tensor:
        here = encoding.prepare(context(ids, x=x, drawn=drawn)).at(0, x, weight)
        wide, keys = encoding.transform(q, keys, here)
        require(
            4 % keys.shape[1] == 0 and wide.shape[1] == 4,
            f"transform: of 4 heads of queries and {n} of keys it makes {wide.shape[1]} and "
            f"{keys.shape[1]}: give keys as many heads as they had, or as queries have",
        )
        keys = keys.repeat_interleave(4 // keys.shape[1], 1)
        bias = encoding.bias(wide, keys, here)
        scores = wide @ keys.mT
        return scores if bias is None else scores + bias.nan_to_num(neginf=-1e9)

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
    shape, generator = encoding.shape, draws()
    x = torch.randn(b, s, shape.d_model, generator=generator).double()
    q, k = torch.randn(2, b, shape.n_heads, s, shape.d_head, generator=generator).double()
    ctx = encoding.prepare(context(tokens(b, s), x=x))
    inputs = [p for p, _ in layered.values()]
    for layer in range(n if layered else 0):
        here = ctx.at(layer, x)
        wide = encoding.transform(q, k, here)
        outs = [x for x in (*wide, encoding.bias(*wide, here)) if x is not None and x.requires_grad]
        if not outs:
            continue
        sums = [(x * x.detach().cos())[x.isfinite()].sum() for x in outs]
        found = torch.autograd.grad(sums, inputs, allow_unused=True, retain_graph=True)
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
