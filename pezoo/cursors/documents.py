"""Packed documents: each becomes a row of its own for the cursors.

The sizes of two tensors from `draw` hold the number and the length of documents, because other
hooks cannot read values.
"""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor
from torch.nn.functional import pad

from pezoo.base import Context
from pezoo.cursors.layer import CursorLayer, take, tokens_first
from pezoo.cursors.memory import Past

DOCUMENTS, LONGEST = "cursors.documents", "cursors.longest"


def documents(ctx: Context, read: int) -> dict[str, Tensor]:
    """Return DOCUMENTS (M,), the most in a row, and LONGEST (L,), in tokens; {} without documents.

    Documents that begin among the first `read` tokens do not count.
    """
    if not ctx.packed:
        return {}
    number = ctx.document
    if read and not bool((number[:, -1] > number[:, read - 1]).any()):
        return {}
    most = int(number.max()) + 1
    longest = int(_counts(ctx, most).max())
    return {DOCUMENTS: torch.zeros(most), LONGEST: torch.zeros(longest)}


def by_document(layer: CursorLayer, x: Tensor, ctx: Context) -> tuple[Tensor, Past]:
    """Run `layer` over x (B, S, D): streams, and the past of each row's last document."""
    drawn = ctx.drawn or {}
    (b, s), m, size = x.shape[:2], len(drawn[DOCUMENTS]), len(drawn[LONGEST])
    number = ctx.document.expand(b, -1)
    counts = _counts(ctx, m).expand(b, -1)  # (B, M)
    place = ctx.key_mask.cumsum(1).expand(b, -1) - 1  # of a token in its row
    place = place - (counts.cumsum(1) - counts).gather(1, number)  # and in its document
    slot = (number * size + place).masked_fill(
        ~ctx.key_mask, m * size
    )  # padding goes to a spare slot
    column = torch.arange(s, device=x.device).expand(b, -1)
    column = slot.new_zeros(b, m * size + 1).scatter(1, slot, column)[:, :-1]

    def apart(y: Tensor) -> Tensor:
        """Separate documents: (B|1, T, ...) -> (B M, L, ...), 0 for tokens of earlier passes."""
        y = pad(y, (0, 0) * (y.dim() - 2) + (s - y.shape[1], 0))
        return take(y.expand(b, *y.shape[1:]), column).reshape(b * m, size, *y.shape[2:])

    pos = torch.arange(size, device=x.device)
    pos = torch.where(pos < counts[..., None], pos, -1).flatten(0, 1)  # (B M, L)
    apiece = {name: apart(y) for name, y in drawn.items() if y.dim() > 1} | tokens_first(pos)
    streams, past = layer(apart(x), replace(ctx, pos=pos, n_new=None, drawn=apiece), None)
    streams = streams.reshape(b, m * size, *streams.shape[2:])
    last = torch.arange(b, device=x.device) * m + number[:, -1]
    return take(streams, slot.clamp(max=m * size - 1)), past.reorder(last)


def _counts(ctx: Context, most: int) -> Tensor:
    """Return the number of tokens of each document, (B|1, M)."""
    counts = ctx.pos.new_zeros(len(ctx.pos), most)
    return counts.scatter_add(1, ctx.document, ctx.key_mask.to(counts.dtype))
