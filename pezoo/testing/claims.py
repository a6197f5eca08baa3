"""Checks of the class attributes by which an encoding describes itself."""

from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from pezoo.base import Encoding, PositionError
from pezoo.prf import prf_of
from pezoo.testing.probe import (
    SHAPE,
    Factory,
    build,
    close,
    context,
    decodes,
    draws,
    finite,
    first_layer,
    inputs,
    require,
    run,
    same_tokens,
    task_prf,
    tokens,
)


def check_order(factory: Factory) -> None:
    """Check order_blind: the order of earlier tokens changes the last output, unless it is True."""
    ids = torch.tensor([[1, 2, 3, 4, 5, 6, 7, 8, 9, 10]])
    swapped = ids[:, [0, 2, 1, 3, 8, 5, 6, 4, 7, 9]]
    encoding = build(factory, replace(SHAPE, n_layers=1, n_heads=4))  # heads may differ in pairs
    gap = float((run(encoding, ids)[:, -1] - run(encoding, swapped)[:, -1]).abs().max())
    if encoding.order_blind:
        message = f"order_blind is True, but the order of tokens changes the output by {gap:.2g}"
        require(gap < 1e-9, message)
    else:
        message = "the order of tokens does not matter: set order_blind = True if that is intended"
        require(gap > 1e-6, message)


def check_distances(factory: Factory) -> None:
    """Check reads_distance: a table that doubles distances equals doubled positions."""
    encoding, ids = build(factory), tokens(2, 8)
    if not encoding.reads_distance:
        return
    double = 2 * torch.arange(8)
    plain, moved = run(encoding, ids, distances=double), run(encoding, ids, double[None])
    message = (
        "reads_distance is True, but the output does not depend on ctx.distance() alone: read it "
        "instead of ctx.pos, or set reads_distance = False"
    )
    close(plain, moved, 1e-5, message)


def check_heads(factory: Factory) -> None:
    """Check heads_with_positions: positions do not change the logits of the later heads."""
    encoding = build(factory).double()
    first, ids = encoding.heads_with_positions, tokens(2, 8)
    given = inputs(encoding, 2, 8, torch.float64)
    for pos in [] if first is None else [2 * torch.arange(8)[None]]:
        with torch.no_grad():
            plain, moved = (
                first_layer(encoding, context(ids, p), given).logits for p in (None, pos)
            )
        message = (
            f"heads_with_positions is {first}, but positions change the logits of a later head"
        )
        close(plain[:, first:], moved[:, first:], 1e-9, message)


def check_max_len(factory: Factory) -> None:
    """Check that `draw` and `prepare` accept positions up to max_len - 1, and no more."""
    encoding = build(factory)
    n = encoding.max_len or 0
    for hook in ("draw", "prepare") if n else ():
        message = f"max_len is {n}, but {hook} refuses position {n - 1}: accept 0..{n - 1}"
        require(not _refuses(encoding, hook, n - 1), message)
        message = f"max_len is {n}, but {hook} accepts position {n} without a PositionError"
        require(_refuses(encoding, hook, n), f"{message}: begin it with super().{hook}(ctx)")


def _refuses(encoding: Encoding, hook: str, last: int) -> bool:
    x = torch.zeros(2, 2, encoding.shape.d_model)
    ctx = context(tokens(2, 2), torch.tensor([[max(0, last - 1), last]]), x=x)
    try:
        encoding.draw(ctx, generator=draws()) if hook == "draw" else encoding.prepare(ctx)
    except PositionError:
        return True
    return False


def check_scale(factory: Factory) -> None:
    """Check needs_scale: without it ctx.scale is not read, with it a missing one is an error."""
    _check_told(build(factory), "scale", torch.tensor([9]))


def check_slots(factory: Factory) -> None:
    """Check needs_slots: without it ctx.slots is not read, with it a missing one is an error."""
    _check_told(build(factory), "slots", torch.arange(10)[None] % 5)


def _check_told(encoding: Encoding, field: str, value: Tensor) -> None:
    ids, missing = tokens(), dict[str, Any]({field: None})
    if not getattr(encoding, f"needs_{field}"):
        message = f"ctx.{field} changes the output: set needs_{field} = True"
        for fields in (missing | {field: value}, missing):
            close(run(encoding, ids), run(encoding, ids, **fields), 0, message)
        return
    x = torch.zeros(*ids.shape, encoding.shape.d_model)
    try:
        encoding.prepare(context(ids, x=x, drawn={}, **missing))
    except ValueError:
        return
    raise AssertionError(
        f"needs_{field} is True, but prepare accepts a context without {field}: begin it with "
        "ctx = super().prepare(ctx)"
    )


def check_modes(factory: Factory) -> None:
    """Check that each mode (ctx.mode) runs, is finite, and decodes as it computes."""
    encoding, ids, scale = build(factory), tokens(), torch.tensor([5])
    for mode in encoding.modes:
        finite(run(encoding, ids, scale=scale, mode=mode), f"in mode {mode!r}")
        decodes(encoding, ids, ([4, 1, 5],), f" in mode {mode!r}", scale=scale, mode=mode)


def check_stochastic(factory: Factory) -> None:
    """Check that evaluation does not depend on what is drawn, unless stochastic is True.

    If training draws nothing either, training and evaluation must compute the same.
    """
    encoding, ids = build(factory), tokens()
    if encoding.stochastic:
        return

    def output(seed: int) -> Tensor:
        generator = torch.Generator().manual_seed(seed)
        return run(encoding, ids, drawn=encoding.draw(context(ids), generator=generator))

    message = "what draw returns in evaluation changes the output: set stochastic = True"
    plain = output(0)
    close(plain, output(1), 0, message)
    drawn = encoding.train().draw(context(ids), generator=draws(), progress=1.0)
    if not drawn:
        message = (
            "training and evaluation give different outputs, though draw returns nothing: put "
            "another way to run into `modes`, see ctx.mode"
        )
        close(plain, run(encoding, ids, drawn=drawn), 1e-6, message)


def check_future(factory: Factory) -> None:
    """Check that without a causal mask, a bias that falls with distance falls on both sides."""
    encoding, (t, d) = build(factory).double(), (40, 30)
    if encoding.causal_only or (encoding.max_len or t) < t:
        return
    given = inputs(encoding, 1, t, torch.float64)
    with torch.no_grad():
        bias = first_layer(encoding, context(tokens(1, t)), given).bias
    if bias is None or bias.shape[-2:] != (t, t):
        return
    earlier, later = bias.diagonal(-d, -2, -1), bias.diagonal(d, -2, -1)
    near = bias.diagonal(0, -2, -1)[..., :1]
    require(
        not bool(((earlier < near - 1e-3) & ((later - near) + (earlier - near) == 0)).all()),
        "the bias falls with the distance to earlier keys but grows for later keys, which encoders "
        "see: use ctx.distance().abs(), or set causal_only = True",
    )


TOLERANCE = 1e-5


def check_prf(factory: Factory) -> None:
    """Check that pairs with equal `prf` get equal logits from equal queries and keys."""
    encoding, n = build(factory), 9
    prf = prf_of(encoding, n, scale=n // 2, task_prf=task_prf)
    if prf is None:
        return
    if prf.is_floating_point():
        message = "prf returns a distribution that does not sum to 1"
        require(bool((prf.sum(-1) - 1).abs().max() < TOLERANCE), message)
    given = same_tokens(encoding, n, torch.float32)
    with torch.no_grad():
        layer = first_layer(encoding, context(tokens(1, 1).expand(1, n)), given)
        logits = layer.logits[0].flatten(1)  # (H, pairs)
    later = torch.ones(n, n, dtype=torch.bool).triu(1).flatten()
    kinds = torch.unique(prf.flatten(0, 1), dim=0, return_inverse=True)[1]
    if encoding.causal_only:
        logits, kinds = logits[:, ~later], kinds[~later]
    for kind in kinds.unique():
        same = logits[:, kinds == kind]
        gap = float((same - same[:, :1]).nan_to_num(0.0, 0.0).abs().max())
        require(
            gap <= TOLERANCE,
            f"prf is the same for {int((kinds == kind).sum())} pairs of positions, but their "
            f"logits from equal queries and keys differ by {gap:.2g}",
        )
