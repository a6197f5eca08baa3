"""Attention over a long text, computed for some queries at a time.

The queries from `start` to `stop` attend as they would in decoding: the tokens after them do not
exist yet. So a part needs nothing but a shorter ctx, and never holds (B, H, T, S).
"""

from collections.abc import Iterator
from dataclasses import replace

import torch
from torch import Tensor

from pezoo.base import Encoding, Pass

WHOLE = 2**27  # logits (B, H, T, S) up to which all queries are computed at once
PART = 2**24  # logits of a part


def cuts(encoding: Encoding, q: Tensor, k: Tensor, v: Tensor) -> Iterator[tuple[int, int]]:
    """Yield where each part begins and ends among the T queries; nothing if one will do.

    Rotations alone (q as wide as v, and no bias) leave it to a fused kernel, which holds no logits
    either.
    """
    b, h, t, _ = q.shape
    cls, logits = type(encoding), b * h * k.shape[2]  # of one query
    plain = q.shape[-1] == v.shape[-1] and not (
        encoding.replaces_scores or encoding.replaces_softmax
    )
    plain = plain and (cls.bias, cls.bias_form) == (Encoding.bias, Encoding.bias_form)
    if torch.compiler.is_compiling() or torch.is_grad_enabled() or plain or t * logits <= WHOLE:
        return
    size = max(1, PART // logits)
    if size < t:
        yield from ((start, min(start + size, t)) for start in range(0, t, size))


def part(ctx: Pass, start: int, stop: int) -> Pass:
    """Return the ctx of the queries from `start` to `stop`, without the tokens after them."""
    end = ctx.pos.shape[1] - ctx.new + stop
    columns = {
        name: x[:, :end]
        for name in ("pos", "ids", "slots", "coords", "true_pos")
        if (x := getattr(ctx, name)) is not None
    }
    x = None if ctx.x is None else ctx.x[:, start:stop]
    inner = tuple(part(one, start, stop) for one in ctx.inner)
    return replace(ctx, **columns, x=x, inner=inner, n_new=stop - start)
