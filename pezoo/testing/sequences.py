"""Checks of order, length, shifts, precision and decoding."""

from __future__ import annotations

from dataclasses import replace

import torch

from pezoo.base import PositionError
from pezoo.testing.probe import (
    BETWEEN,
    SHAPE,
    VOCAB,
    Factory,
    alone,
    build,
    close,
    context,
    first_layer,
    inputs,
    padding_between,
    repeated,
    require,
    run,
    stream,
    tokens,
)


def check_prefix_stability(factory: Factory) -> None:
    """Check prefix_stable: later tokens do not change earlier outputs."""
    encoding = build(factory)
    if not encoding.prefix_stable:
        return
    ids = tokens()
    other = ids.clone()
    other[:, 6:] = (other[:, 6:] + 1) % VOCAB
    close(
        run(encoding, ids)[:, :6],
        run(encoding, other)[:, :6],
        1e-6,
        "later tokens change earlier outputs: set prefix_stable = False if that is intended",
    )
    if encoding.stochastic or encoding.needs_scale:
        return
    short, far = run(encoding, ids[:, :6]), torch.arange(260)
    message = "earlier outputs: they must not depend on ctx.pos.shape[1] or ctx.pos.max()"
    close(run(encoding, ids)[:, :6], short, 1e-6, f"a longer sequence changes {message}")
    try:
        long = run(encoding, tokens(3, 260), far[None])
        far[6:] += 70_000
        late = run(encoding, tokens(3, 260), far[None])
    except PositionError:
        return
    ids = tokens(3, 260)[:, :6]
    close(long[:, :6], run(encoding, ids), 1e-6, f"a sequence of 260 tokens changes {message}")
    close(late[:, :6], run(encoding, ids), 1e-6, f"a later position of 70,000 changes {message}")


def check_streaming(factory: Factory) -> None:
    """Check that decoding with a cache, token by token and in chunks, equals a full pass."""
    encoding = build(factory)
    if not encoding.prefix_stable:
        return
    ids = tokens()
    full = run(encoding, ids)
    for chunks in ([1] * 10, [4, 1, 5], [9, 1]):
        close(
            full,
            stream(encoding, ids, chunks),
            1e-5,
            f"decoding in chunks of {chunks} differs from a full pass",
        )
    scale = torch.tensor([5])
    padded, pos = padding_between(ids)
    chunked = stream(encoding, padded, [3, 5, 1, 4], pos, scale=scale, length=10)
    full = run(encoding, ids, scale=scale)
    close(full, chunked[:, pos[0] >= 0], 1e-5, f"while decoding, {BETWEEN}")


def check_shift_invariance(factory: Factory) -> None:
    """Check relative: shifting every position by the same amount changes nothing."""
    encoding = build(factory)
    ids = tokens()
    plain = run(encoding, ids)
    for shift in (1, 7, 123, 1000, 32_763, 65_531):  # across the ends of 8 and 16 bits
        if encoding.relative and shift + ids.shape[1] <= (encoding.max_len or shift + 10):
            moved = run(encoding, ids, pos=torch.arange(ids.shape[1])[None] + shift)
            allowed = 1e-5 if shift <= 1000 else 1e-2  # angles in float32
            message = f"relative is True, but shifting positions by {shift} changes the output"
            close(plain, moved, allowed, message)


def check_long(factory: Factory) -> None:
    """Check four times the training length: finite and decodable, or a PositionError."""
    encoding = build(factory)
    ids = tokens(1, 4 * encoding.shape.train_len)
    try:
        out = run(encoding, ids)
    except PositionError as error:
        require(len(str(error)) > 10, "PositionError must say which positions can be represented")
        return
    require(
        bool(out.isfinite().all()), "the output is not finite at four times the training length"
    )
    if encoding.prefix_stable:
        where = f"decoding beyond the training length of {encoding.shape.train_len}"
        close(out, stream(encoding, ids, [40, 1, 23]), 1e-5, f"{where} differs from a full pass")


def check_bfloat16(factory: Factory) -> None:
    """Check that bfloat16 agrees with float32 at position 20,000.

    Angles, distances and table indices computed in bfloat16 would be off by whole positions.
    """
    low = build(factory).to(torch.bfloat16)
    high = build(factory).to(torch.bfloat16).float()
    ctx = context(tokens(), torch.arange(20_000, 20_010)[None])
    made = []
    try:
        for encoding, dtype in ((low, torch.bfloat16), (high, torch.float32)):
            with torch.no_grad():
                layer = first_layer(encoding, alone(ctx), inputs(encoding, 3, 10, dtype))
            layer.q, layer.k = layer.q.float(), layer.k.float()
            made.append((layer.embedded.float(), layer.logits))
    except PositionError:
        return
    for name, a, b in zip(("embed", "logits"), *made, strict=True):
        size = b[b.isfinite()].abs().max().clamp(min=1.0)
        require(
            bool((a.isfinite() == b.isfinite()).all()),
            f"{name}: infinite at other entries in bfloat16 than in float32",
        )
        gap = (a.float() - b)[b.isfinite()].abs().max() / size
        require(
            float(gap) < 0.05,
            f"{name}: off by {float(gap):.3f} of its size in bfloat16 at position 20,000: compute "
            "angles and distances in float32 or int64",
        )


def check_far(factory: Factory) -> None:
    """Check positions around 50,000: finite, also in half precision, or a PositionError."""
    ids = tokens(2, 10)
    near = torch.arange(10)[None]
    pos = near + 50_000 * (near >= 4)  # four tokens at the start, and six far away
    for dtype in (torch.float32, torch.bfloat16, torch.float16):
        try:
            out = run(build(factory), ids, pos, dtype=dtype)
        except PositionError:
            return
        require(
            bool(out.isfinite().all()),
            f"the output is not finite at position 50,000 in {dtype}: keep products of positions "
            "within its range, or set max_len",
        )


def check_deterministic(factory: Factory) -> None:
    """Check that the same seed gives the same encoding, and the same tokens the same output."""
    ids = tokens()
    a, b = (repeated(build(factory, seed=4), ids) for _ in range(2))
    close(
        a,
        b,
        0,
        "two instances built with one seed differ: use torch's generator for initial values",
    )


def check_order(factory: Factory) -> None:
    """Check order_blind: the order of earlier tokens changes the last output, unless it is True."""
    ids = torch.tensor([[1, 2, 3, 4, 5, 6, 7, 8, 9, 10]])
    swapped = ids[:, [0, 2, 1, 3, 8, 5, 6, 4, 7, 9]]
    encoding = build(factory, replace(SHAPE, n_layers=1, n_heads=4))  # heads may differ in pairs
    gap = float((run(encoding, ids)[:, -1] - run(encoding, swapped)[:, -1]).abs().max())
    if encoding.order_blind:
        require(
            gap < 1e-9,
            f"order_blind is True, but the order of tokens changes the output by {gap:.2g}",
        )
    else:
        require(
            gap > 1e-6,
            "the order of tokens does not matter: set order_blind = True if that is intended",
        )
