"""What happens inside a decoder during one forward pass, without changing it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import Tensor

from harness.model.decoder import Decoder
from harness.show.examples import Example, positions
from pezoo.base import Context, Encoding
from pezoo.pictures import Picture


@dataclass(frozen=True)
class View:
    """A model on one example: attention and bias (layers, H, T, T), the encoding's pictures.

    bias holds the layers that have one; None where none has.
    """

    example: Example
    attention: Tensor
    bias: Tensor | None
    pictures: list[Picture]


class Watch(Encoding):
    """Another encoding, and a note of what passes through it in each layer."""

    def __init__(self, inner: Encoding) -> None:
        super().__init__(inner.shape)
        self.inner = inner
        self.contexts: list[Context] = []
        self.biases: list[Tensor | None] = []
        self.attention: list[Tensor] = []

    def prepare(self, ctx: Context) -> Context:
        return self.inner.prepare(ctx)

    def embed(self, x: Tensor, ctx: Context) -> Tensor:
        return self.inner.embed(x, ctx)

    def transform(self, q: Tensor, k: Tensor, ctx: Context) -> tuple[Tensor, Tensor]:
        self.contexts.append(ctx)
        return self.inner.transform(q, k, ctx)

    def bias(self, q: Tensor, k: Tensor, ctx: Context) -> Tensor | None:
        self.biases.append(self.inner.bias(q, k, ctx))
        return self.biases[-1]

    def weights(self, logits: Tensor, ctx: Context) -> Tensor:
        own = self.inner.weights(logits, ctx)
        self.attention.append(logits.softmax(-1) if own is None else own)
        return self.attention[-1]


@torch.no_grad()
def view(model: Decoder, example: Example, mode: str | None = None) -> View:
    """Run the model over the example's tokens but the last, and note what it does.

    Errors: PositionError where the encoding cannot represent the example.
    """
    with _watched(model.eval()) as watch:
        ids = example.ids[:, :-1]
        model(
            ids,
            torch.arange(ids.shape[1])[None],
            scale=torch.tensor([example.length]),
            generator=positions(example.length),
            total=example.planned,
            mode=mode,
        )
        pictures = watch.inner.pictures(watch.contexts)
    attention = torch.cat(watch.attention)
    biases = [b for b in watch.biases if b is not None]
    bias = torch.cat([b.expand_as(attention[:1]) for b in biases]) if biases else None
    return View(example, attention, bias, pictures)


@contextmanager
def _watched(model: Decoder) -> Iterator[Watch]:
    encoding, backend = model.encoding, model.attention
    watch = Watch(encoding)
    model.encoding, model.attention = watch, "eager"
    try:
        yield watch
    finally:
        model.encoding, model.attention = encoding, backend
