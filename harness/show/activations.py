"""What a model computes inside during one forward pass."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from harness.model.transformer import Cache, Transformer
from harness.show.examples import Example, positions
from harness.show.relation import relation_picture
from pezoo.base import Context, Encoding
from pezoo.pictures import Picture


@dataclass(frozen=True)
class Activations:
    """A model on one example: attention and bias (layers, H, T, T), the encoding's pictures.

    bias holds the layers that have one; None where none has.
    """

    example: Example
    attention: Tensor
    bias: Tensor | None
    pictures: list[Picture]
    causal: bool = True


class Recorder(Encoding):
    """Another encoding, and the context, bias and attention of each layer."""

    def __init__(self, inner: Encoding) -> None:
        super().__init__(inner.shape)
        self.inner = inner
        self.contexts: list[Context] = []
        self.biases: list[Tensor] = []
        self.attention: list[Tensor] = []

    def draw(self, ctx: Context, **plan: Any) -> dict[str, Tensor]:
        return self.inner.draw(ctx, **plan)

    def prepare(self, ctx: Context) -> Context:
        return self.inner.prepare(ctx)

    def embed(self, x: Tensor, ctx: Context) -> Tensor:
        return self.inner.embed(x, ctx)

    def transform(self, q: Tensor, k: Tensor, ctx: Context) -> tuple[Tensor, Tensor]:
        self.contexts.append(ctx)
        return self.inner.transform(q, k, ctx)

    def bias(self, q: Tensor, k: Tensor, ctx: Context) -> Tensor | None:
        bias = self.inner.bias(q, k, ctx)
        if bias is not None:
            self.biases.append(bias)
        return bias

    def weights(self, logits: Tensor, ctx: Context) -> Tensor:
        own = self.inner.weights(logits, ctx)
        self.attention.append(logits.softmax(-1) if own is None else own)
        return self.attention[-1]


@torch.no_grad()
def activations(model: Transformer, example: Example, mode: str | None = None) -> Activations:
    """Run the model over what it reads of the example; the model stays as it was.

    Errors: PositionError where the encoding cannot represent the example.
    """
    encoding, backend = model.encoding, model.attention
    recorder, ids = Recorder(encoding), example.inputs
    model.encoding, model.attention = recorder, "eager"
    try:
        model.eval()(
            ids,
            torch.arange(ids.shape[1])[None],
            scale=torch.tensor([example.length]),
            generator=positions(example.length),
            cache=Cache(length=example.planned),
            mode=mode,
        )
        pictures = encoding.pictures(recorder.contexts)
    finally:
        model.encoding, model.attention = encoding, backend
    pictures = [*relation_picture(model, example), *pictures]
    attention = torch.cat(recorder.attention)
    biases = [bias.expand_as(attention[:1]) for bias in recorder.biases]
    causal, bias = model.track == "decoder", torch.cat(biases) if biases else None
    return Activations(example, attention, bias, pictures, causal)
