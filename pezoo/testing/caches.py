"""Check that an encoding's state follows the model's cache when it is reordered or cropped."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from pezoo.base import Encoding
from pezoo.context import Memo
from pezoo.testing.probe import VOCAB, Factory, Probe, build, close, context, draws, run, tokens


def check_cache(factory: Factory) -> None:
    """Check that decoding after ctx.memo.reorder and ctx.memo.crop equals a full pass."""
    encoding = build(factory)
    if not encoding.prefix_stable:
        return
    shared = torch.arange(12)[None]
    for pos in (shared, torch.stack([shared[0], (shared[0] - 2).clamp(min=-1), shared[0]])):
        decoding = _Decoding(encoding, tokens(3, 12), pos)
        decoding.feed(4)
        decoding.feed(2)
        decoding.reorder(torch.tensor([2, 1, 2]))
        decoding.feed(1, "after ctx.memo.reorder")
        decoding.feed(3, "after ctx.memo.reorder")
        decoding.crop(-2)  # of the last pass
        decoding.feed(3, "after ctx.memo.crop(-2)")
        decoding.crop(5)  # back into another
        decoding.reorder(torch.tensor([1, 0, 2, 1]))
        decoding.feed(1, "after ctx.memo.crop(5)")
        decoding.feed(4, "after ctx.memo.crop(5)")


class _Decoding:
    """Decodes ids (B, S) at pos (B|1, S) with a probe; rows can be reordered, tokens cropped."""

    def __init__(self, encoding: Encoding, ids: Tensor, pos: Tensor) -> None:
        self.encoding, self.ids, self.pos, self.end = encoding, ids, pos, 0
        self.cache: list[Any] = [None] * encoding.shape.n_layers
        self.memo, self.generator = Memo(), draws()
        self.fields: dict[str, Any] = {"scale": torch.tensor([5])}

    def feed(self, new: int, when: str = "") -> None:
        """Decode the next tokens; compare them with a full pass if `when` is given."""
        start, self.end = self.end, self.end + new
        ids, pos = self.ids[:, : self.end], self.pos[:, : self.end]
        ctx = context(ids, pos, n_new=new, memo=self.memo, **self.fields)
        drawn = self.encoding.draw(ctx, generator=self.generator, length=self.ids.shape[1])
        with torch.no_grad():
            ctx = replace(ctx, drawn=drawn)
            got = Probe(self.encoding)(ids[:, start:], ctx, self.cache)
        if when:
            whole = run(self.encoding, ids, pos, length=self.ids.shape[1], **self.fields)
            real = (pos[:, start:] >= 0)[..., None]
            message = f"decoding differs from a full pass {when}: see pezoo.context.Memo"
            close(got * real, whole[:, start:] * real, 1e-5, message)

    def reorder(self, rows: Tensor) -> None:
        """Reorder rows, and continue with other tokens."""
        self.memo.reorder(rows)
        self.cache = [tuple(x[rows] for x in layer) for layer in self.cache]
        self.pos = self.pos if len(self.pos) == 1 else self.pos[rows]
        self.ids = torch.cat([self.ids[rows, : self.end], self._others(len(rows))], 1)

    def crop(self, length: int) -> None:
        """Crop tokens, and continue with other ones."""
        self.memo.crop(length)
        self.end = length if length >= 0 else self.end + length
        self.cache = [tuple(x[:, :, : self.end] for x in layer) for layer in self.cache]
        self.ids = torch.cat([self.ids[:, : self.end], self._others(len(self.ids))], 1)

    def _others(self, rows: int) -> Tensor:
        later = self.ids[:1, self.end :] + torch.arange(1, rows + 1)[:, None]
        return later % VOCAB
