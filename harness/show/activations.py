"""Attention, bias and the encoding's pictures of one forward pass."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from harness.model.transformer import Cache, Transformer
from harness.show.examples import Example, positions
from harness.show.relation import relation_picture
from pezoo.base import Context
from pezoo.pictures import Picture


@dataclass(frozen=True)
class Activations:
    """A model on one example: attention and bias (layers, H, T, T), the encoding's pictures.

    bias holds the layers that have one; None if no layer has.
    """

    example: Example
    attention: Tensor
    bias: Tensor | None
    pictures: list[Picture]
    causal: bool = True


@torch.no_grad()
def activations(model: Transformer, example: Example, mode: str | None = None) -> Activations:
    """Run the model on the example, recording what its encoding's hooks read and return.

    Errors: PositionError if the encoding cannot represent the example.
    """
    encoding, backend, ids = model.encoding, model.attention, example.inputs
    transform, bias, weights = encoding.transform, encoding.bias, encoding.weights
    contexts: list[Context] = []
    biases: list[Tensor] = []
    attention: list[Tensor] = []

    def record_transform(q: Tensor, k: Tensor, ctx: Context) -> tuple[Tensor, Tensor]:
        contexts.append(ctx)
        return transform(q, k, ctx)

    def record_bias(*args: Any) -> Tensor | None:
        if (found := bias(*args)) is not None:
            biases.append(found)
        return found

    def record_weights(logits: Tensor, ctx: Context) -> Tensor:
        own = weights(logits, ctx)
        attention.append(logits.softmax(-1) if own is None else own)
        return attention[-1]

    hooks = {"transform": record_transform, "bias": record_bias, "weights": record_weights}
    vars(encoding).update(hooks)  # of this object, in front of those of its class
    model.attention = "eager"
    try:
        model.eval()(
            ids,
            torch.arange(ids.shape[1])[None],
            scale=torch.tensor([example.length]),
            generator=positions(example.length),
            cache=Cache(length=example.planned),
            mode=mode,
        )
    finally:
        model.attention = backend
        for name in hooks:
            del vars(encoding)[name]
    pictures = [*relation_picture(model, example), *encoding.pictures(contexts)]
    every = torch.cat(attention)
    added = torch.cat([one.expand_as(every[:1]) for one in biases]) if biases else None
    return Activations(example, every, added, pictures, model.track == "decoder")
