"""Checks of far positions: shifted, beyond the training length, and in half precision."""

from contextlib import suppress

import torch
from torch import Tensor

from pezoo.base import Encoding, PositionError
from pezoo.testing.probe import (
    Factory,
    alone,
    build,
    close,
    context,
    decodes,
    finite,
    first_layer,
    inputs,
    require,
    run,
    same_tokens,
    tokens,
)


def check_shift_invariance(factory: Factory) -> None:
    """Check relative: shifting every position by the same amount changes nothing."""
    encoding, ids, pos = build(factory), tokens(), torch.arange(10)[None]
    plain = run(encoding, ids)
    for shift in (1, 7, 123, 1000, 32_763, 65_531):  # across the ends of 8 and 16 bits
        if encoding.relative and shift + 10 <= (encoding.max_len or shift + 10):
            allowed = min(1e-2, 1e-5 + 1e-6 * shift)  # angles in float32
            message = f"relative is True, but shifting positions by {shift} changes the output"
            close(plain, run(encoding, ids, pos + shift), allowed, message)


def check_long(factory: Factory) -> None:
    """Check four times the training length: finite and decodable, or a PositionError."""
    encoding = build(factory)
    ids = tokens(1, 4 * encoding.shape.train_len)
    try:
        finite(run(encoding, ids), "at four times the training length")
    except PositionError as error:
        require(len(str(error)) > 10, "PositionError must say which positions can be represented")
        return
    when = f" beyond the training length of {encoding.shape.train_len}"
    decodes(encoding, ids, ([40, 1, 23],), when)


def check_far(factory: Factory) -> None:
    """Check positions around 50,000: finite, also in half precision, or a PositionError."""
    near = torch.arange(10)[None]
    pos = near + 50_000 * (near >= 4)  # four tokens at the start, and six far away
    remedy = "keep products of positions within its range, or set max_len"
    with suppress(PositionError):
        for dtype in (torch.float32, torch.bfloat16, torch.float16):
            out = run(build(factory), tokens(2), pos, dtype=dtype)
            finite(out, f"at position 50,000 in {dtype}: {remedy}")


def check_bfloat16(factory: Factory) -> None:
    """Check that bfloat16 agrees with float32 at position 20,000.

    Angles, distances and table indices computed in bfloat16 would be off by whole positions.
    """
    ctx = context(tokens(), torch.arange(20_000, 20_010)[None])

    @torch.no_grad()
    def embedded_and_logits(dtype: torch.dtype) -> tuple[Tensor, Tensor]:
        encoding = build(factory).to(torch.bfloat16).to(dtype)
        layer = first_layer(encoding, alone(ctx), inputs(encoding, 3, 10, dtype))
        return layer.embedded.float(), layer.logits.float()

    with suppress(PositionError):
        both = embedded_and_logits(torch.bfloat16), embedded_and_logits(torch.float32)
        for name, low, high in zip(("embed", "logits"), *both, strict=True):
            real = high.isfinite()
            require(
                torch.equal(low.isfinite(), real),
                f"{name}: infinite at other entries in bfloat16 than in float32",
            )
            gap = float((low - high)[real].abs().max() / high[real].abs().max().clamp(min=1.0))
            require(
                gap < 0.05,
                f"{name}: off by {gap:.3f} of its size in bfloat16 at position 20,000: compute "
                "angles and distances in float32 or int64",
            )


WIDTH = 64  # neighbours that are compared with neighbours further away
NEAR = 5 * WIDTH + 1  # 8 bits begin anew at 256
FAR = 65_536  # where 16 bits begin anew


def check_far_values(factory: Factory) -> None:
    """Check that far positions and distances neither wrap around nor are clamped silently.

    Tokens, slots, q and k are the same everywhere, so that rows differ by their position alone.
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
    given = same_tokens(encoding, len(pos), torch.float64)
    same = torch.ones_like(pos)[None]
    ctx = context(same, pos[None], scale=torch.tensor([5]), slots=same)
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
