"""Checks of what an encoding makes of tokens: order, length, shift, precision and streaming."""

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
    """Later tokens change nothing before them."""
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
        "later tokens change earlier outputs",
    )
    if encoding.stochastic or encoding.needs_scale:
        return
    short, far = run(encoding, ids[:, :6]), torch.arange(260)
    message = "earlier outputs: let none depend on ctx.pos.shape[1] or ctx.pos.max()"
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
    """Token by token, and in chunks, with a cache, it computes what the full pass does."""
    encoding = build(factory)
    if not encoding.prefix_stable:
        return
    ids = tokens()
    full = run(encoding, ids)
    for chunks in ([1] * 10, [4, 1, 5], [9, 1]):
        close(full, stream(encoding, ids, chunks), 1e-5, f"decoding in chunks of {chunks} differs")
    scale = torch.tensor([5])
    padded, pos = padding_between(ids)
    chunked = stream(encoding, padded, [3, 5, 1, 4], pos, scale=scale, length=10)
    full = run(encoding, ids, scale=scale)
    close(full, chunked[:, pos[0] >= 0], 1e-5, f"while decoding, {BETWEEN}")


def check_shift_invariance(factory: Factory) -> None:
    """If it claims to be relative, moving every position by the same amount changes nothing."""
    encoding = build(factory)
    ids = tokens()
    plain = run(encoding, ids)
    for shift in (1, 7, 123, 1000, 32_763, 65_531):  # across the ends of 8 and 16 bits
        if encoding.relative and shift + ids.shape[1] <= (encoding.max_len or shift + 10):
            moved = run(encoding, ids, pos=torch.arange(ids.shape[1])[None] + shift)
            allowed = 1e-5 if shift <= 1000 else 1e-2  # angles in float32
            message = f"it claims to be relative, but a shift by {shift} changes it"
            close(plain, moved, allowed, message)


def check_long(factory: Factory) -> None:
    """Four times the training length works, is finite and streams, or raises PositionError."""
    encoding = build(factory)
    ids = tokens(1, 4 * encoding.shape.train_len)
    try:
        out = run(encoding, ids)
    except PositionError as error:
        require(len(str(error)) > 10, "PositionError must say what can be represented")
        return
    require(bool(out.isfinite().all()), "not finite at four times the training length")
    if encoding.prefix_stable:
        where = f"decoding beyond the training length of {encoding.shape.train_len}"
        close(out, stream(encoding, ids, [40, 1, 23]), 1e-5, f"{where} differs")


def check_bfloat16(factory: Factory) -> None:
    """In bfloat16 at position 20,000 it agrees with float32 to bfloat16's precision.

    Angles, distances and table indices computed in bfloat16 would be wrong by whole positions.
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
            bool((a.isfinite() == b.isfinite()).all()), f"{name}: infinite elsewhere in bfloat16"
        )
        gap = (a.float() - b)[b.isfinite()].abs().max() / size
        require(
            float(gap) < 0.05,
            f"{name}: off by {float(gap):.3f} of its size in bfloat16 at position 20,000",
        )


def check_far(factory: Factory) -> None:
    """At positions around 50,000 it is finite, also in half precision, or raises PositionError."""
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
            f"not finite at position 50,000 in {dtype}: keep factors and products of positions "
            "within its range, or set max_len",
        )


def check_deterministic(factory: Factory) -> None:
    """The same seed gives the same encoding, and the same tokens the same outputs."""
    ids = tokens()
    a, b = (repeated(build(factory, seed=4), ids) for _ in range(2))
    close(a, b, 0, "two built under one seed differ: draw initial values from torch's generator")


def check_order(factory: Factory) -> None:
    """The last token sees in which order the earlier ones stand, unless declared order-blind."""
    ids = torch.tensor([[1, 2, 3, 4, 5, 6, 7, 8, 9, 10]])
    swapped = ids[:, [0, 2, 1, 3, 8, 5, 6, 4, 7, 9]]
    encoding = build(factory, replace(SHAPE, n_layers=1, n_heads=4))  # heads may differ in pairs
    gap = float((run(encoding, ids)[:, -1] - run(encoding, swapped)[:, -1]).abs().max())
    if encoding.order_blind:
        require(gap < 1e-9, f"declared order-blind, but the order changes its output by {gap:.2g}")
    else:
        require(gap > 1e-6, "blind to the order of tokens: set order_blind = True if that is meant")
