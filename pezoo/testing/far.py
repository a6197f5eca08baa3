"""A check that far positions and distances are told apart."""

from __future__ import annotations

import torch
from torch import Tensor

from pezoo.base import Encoding, PositionError
from pezoo.testing.probe import Factory, Inputs, build, context, first_layer, inputs, require

WIDTH = 64  # neighbours that are compared with neighbours further away
NEAR = 5 * WIDTH + 1  # 8 bits begin anew at 256
FAR = 65_536  # where 16 bits begin anew


def check_far_values(factory: Factory) -> None:
    """Check that far positions and distances neither wrap around nor are clamped silently.

    Tokens, q and k are the same everywhere, so that rows differ by their position alone.
    """
    encoding = build(factory).double()
    near = torch.arange(NEAR)
    pos = torch.cat([near, torch.arange(FAR, FAR + WIDTH)])
    back = FAR + WIDTH - pos.flip(0)  # the last token has the distances `pos` to the others
    try:
        embedded, q, k, _ = _hooks(encoding, pos)
        logits = _hooks(encoding, back)[-1].flip(0)
    except PositionError:
        return
    remedy = "keep positions and distances int64 until they become floats"
    hooks = {"embed": embedded, "transform: q": q, "transform: k": k}
    for name, rows in hooks.items():
        again = _repeats(rows)
        require(not again, f"{name}: position {again} + p gives the same as p: {remedy}")
    if encoding.relative:
        again = _repeats(logits)
        require(not again, f"the logit at distance {again} + d equals that at d: {remedy}")
    first = embedded[4 : encoding.shape.train_len]  # the first tokens may differ for other reasons
    clamped = _alike(embedded[-WIDTH:]) and not _alike(first)
    start = next((n for n in range(NEAR) if clamped and _alike(embedded[n:])), FAR)
    require(
        not clamped,
        f"embed: all positions from {start} on give the same: set max_len, so that positions "
        "beyond a table raise PositionError",
    )


def _hooks(encoding: Encoding, pos: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return rows (S, ...) of embed, q and k at pos (S,), and the last query's logits (S, H)."""
    (s,) = pos.shape
    one = inputs(encoding, 1, 1, torch.float64)
    given = Inputs(one.x.expand(1, s, -1), *(y.expand(-1, -1, s, -1) for y in one[1:]))
    ctx = context(pos.new_ones(1, s), pos[None], scale=torch.tensor([5]))
    with torch.no_grad():
        layer = first_layer(encoding, ctx, given)
        logits = layer.logits[0, :, -1]
    return layer.embedded[0], layer.q[0].movedim(1, 0), layer.k[0].movedim(1, 0), logits.mT


def _repeats(rows: Tensor) -> int:
    """Return the offset at which the first WIDTH rows repeat; 0 if never, or if all are equal."""
    if _alike(rows[:WIDTH]):
        return 0
    rows = rows.flatten(1)
    blocks = {p: p for p in range(WIDTH, NEAR - WIDTH)} | {FAR: len(rows) - WIDTH}
    return next((p for p, i in blocks.items() if _equal(rows[i : i + WIDTH], rows[:WIDTH])), 0)


def _alike(rows: Tensor) -> bool:
    return _equal(rows, rows[:1].expand_as(rows))


def _equal(a: Tensor, b: Tensor) -> bool:
    return torch.allclose(a, b, rtol=1e-9, atol=1e-9)
