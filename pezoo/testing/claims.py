"""Checks of far positions, and of the class attributes by which an encoding describes itself."""

from collections.abc import Iterable
from contextlib import suppress
from dataclasses import replace
from functools import partial
from inspect import signature
from itertools import islice, product
from typing import Any

import torch
from torch import Tensor

from pezoo.adapters import attend
from pezoo.base import Encoding, PositionError, Shape
from pezoo.prf import prf_of
from pezoo.registry import make
from pezoo.testing.probe import (
    ROTATIONS,
    SHAPE,
    Factory,
    Layer,
    build,
    close,
    context,
    decodes,
    draws,
    finite,
    inputs,
    one_layer,
    require,
    run,
    same_tokens,
    task_prf,
    tokens,
    walk,
)
from pezoo.wrapper import Wrapper


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
    """Check positions up to 50,000, or to max_len: finite or a PositionError in every precision."""
    near, longest = torch.arange(10)[None], build(factory).max_len
    far = min(50_000, (longest or 50_010) - 10)
    pos = near + max(far, 0) * (near >= 4)  # four tokens at the start, and six far away
    remedy = "keep products of positions within its range, set max_len, or raise PositionError"
    for dtype in (torch.float32, torch.bfloat16, torch.float16):
        with suppress(PositionError):
            out = run(build(factory), tokens(2), pos, dtype=dtype)
            finite(out, f"at position {far:,} in {dtype}: {remedy}")


def check_bfloat16(factory: Factory) -> None:
    """Check that bfloat16 agrees with float32 at position 20,000 and over 200 tokens.

    Angles, distances and table indices computed in bfloat16 would be off by whole positions, and
    sums over many tokens by whole logits. Attention to 200 tokens is checked under autocast too.
    """
    with suppress(PositionError):
        low, high = (
            _layer(build(factory).bfloat16().to(kind), 3, range(20_000, 20_010), kind)
            for kind in (torch.bfloat16, torch.float32)
        )
        remedy = "in bfloat16 at position 20,000: compute angles and distances in float32 or int64"
        for name in ("embedded", "logits"):
            _agree(name, getattr(low, name), getattr(high, name), 0.05, remedy)
    with suppress(PositionError):
        exact, rounded = (_attention(factory, torch.float32, rounds=x) for x in (False, True))
        allowed = 0.05 + 2 * float((rounded - exact).abs().max())
        remedy = "compute positions and sums in float32, and leave large constants out of a bias"
        message = f"attention to 200 tokens differs in bfloat16: {remedy}"
        close(_attention(factory, torch.bfloat16), exact, allowed, message)
        remedy = "use pezoo.functional.full_precision around matrix products that must be exact"
        message = f"attention to 200 tokens differs under bfloat16 autocast: {remedy}"
        close(_attention(factory, torch.float32, autocast=True), exact, allowed, message)


@torch.no_grad()
def _attention(
    factory: Factory, dtype: torch.dtype, rounds: bool = False, autocast: bool = False
) -> Tensor:
    """Return attention to values 1 and -1; `rounds` rounds what `transform` returns to bfloat16."""
    encoding, ids = build(factory, Shape(48, 12, 4, 1, 16)).bfloat16().to(dtype), tokens(1, 200)
    v = torch.randn(1, 1, 200, 4, generator=draws()).sign().to(dtype)
    ctx = replace(context(ids), drawn=encoding.draw(context(ids), generator=draws()))
    with torch.autocast("cpu", torch.bfloat16, enabled=autocast):
        steps = walk(encoding, ctx, inputs(encoding, 1, 200, dtype))
        *_, (_, (q, k), here) = islice(steps, 3)
        q, k = (x.bfloat16().to(dtype) if rounds else x for x in (q, k))
        return attend(encoding, q, k, v.expand(-1, k.shape[1], -1, -1), here).float()


@torch.no_grad()
def _layer(
    encoding: Encoding, batch: int, positions: Iterable[int], dtype: torch.dtype = torch.float32
) -> Layer:
    pos = torch.tensor([[*positions]])
    ctx = context(tokens(batch, pos.shape[1]), pos)
    ctx = replace(ctx, drawn=encoding.draw(ctx, generator=draws(), progress=0.5))
    return one_layer(encoding, ctx, inputs(encoding, batch, pos.shape[1], dtype))


def _agree(name: str, low: Tensor, high: Tensor, allowed: float, remedy: str) -> None:
    """Check that the finite numbers differ by less than a share of the largest one, or of 1."""
    low, high, real = low.float(), high.float(), high.isfinite()
    other = f"{name}: infinite at other entries {remedy}"
    require(torch.equal(low.isfinite(), real), other)
    gap = float((low - high)[real].abs().max() / high[real].abs().max().clamp(min=1.0))
    require(gap < allowed, f"{name}: off by {gap:.2g} of its size {remedy}")


def check_default_dtype(factory: Factory) -> None:
    """Check that a half-precision default dtype neither raises an error nor changes a result.

    The default dtype is that of arange(n) / x, 2.0 ** arange(n), linspace and torch.tensor(0.5).
    """
    shape, near = Shape(40, 5, 8, 2, 16), range(5)
    state, default = build(factory, shape).state_dict(), torch.get_default_dtype()

    def layer(positions: Iterable[int], training: bool) -> Layer:
        encoding = factory(shape).float()
        encoding.load_state_dict(state)
        return _layer(encoding.train(training), 2, positions)

    for training, positions in product((False, True), (near, (*near, *range(4000, 4005)))):
        with suppress(PositionError):
            high = layer(positions, training)
            for dtype in (torch.bfloat16, torch.float16):
                try:
                    torch.set_default_dtype(dtype)
                    low = layer(positions, training)
                finally:
                    torch.set_default_dtype(default)
                remedy = f"if {dtype} is the default dtype: pass dtype= or call .float() first"
                for name in ("embedded", "q", "k", "logits"):
                    _agree(name, getattr(low, name), getattr(high, name), 1e-5, remedy)


WIDTH = 64  # neighbours that are compared with neighbours further away
EIGHT_BITS = 256  # where 8 bits begin anew
NEAR = 512 + WIDTH + 1  # where a table may begin anew
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
    hooks = {"embed": embedded, "transform: q": q, "transform: k": k}
    for name, rows in hooks.items():
        again = _repeats(rows)
        require(not again, f"{name}: position {again} + p gives the same as p: {_remedy(again)}")
    if encoding.relative:
        again = _repeats(logits)
        message = f"the logit at distance {again} + d equals that at d: {_remedy(again)}"
        require(not again, message)
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
        layer = one_layer(encoding, ctx, given)
        logits = layer.logits[0, :, -1]
    return layer.embedded[0], layer.q[0].movedim(1, 0), layer.k[0].movedim(1, 0), logits.mT


def _repeats(rows: Tensor) -> int:
    """Return the offset at which the first WIDTH rows repeat; 0 if never, or if all are equal.

    Also 0 for an offset below WIDTH: such a period is meant, as of hours.
    """
    if _alike(rows[:WIDTH]):
        return 0
    rows = rows.flatten(1)
    blocks = {p: p for p in range(1, NEAR - WIDTH)} | {FAR: len(rows) - WIDTH}
    first = next((p for p, i in blocks.items() if _equal(rows[i : i + WIDTH], rows[:WIDTH])), 0)
    return first if first >= WIDTH else 0


def _remedy(offset: int) -> str:
    table = "beyond a table raise PositionError, in place of starting anew: set max_len"
    if offset not in (EIGHT_BITS, FAR):
        return table
    return f"keep positions and distances int64 until they become floats, and {table}"


def _alike(rows: Tensor) -> bool:
    return _equal(rows, rows[:1].expand_as(rows))


def _equal(a: Tensor, b: Tensor) -> bool:
    return torch.allclose(a, b, rtol=1e-9, atol=1e-9)


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
            plain, moved = (one_layer(encoding, context(ids, p), given).logits for p in (None, pos))
        message = (
            f"heads_with_positions is {first}, but positions change the logits of a later head"
        )
        close(plain[:, first:], moved[:, first:], 1e-9, message)


def check_rotation(factory: Factory) -> None:
    """Check rope_within: as many tokens get the logits of rope, and rope's options are taken.

    `pezoo.adapters.transformers.use` passes a trained model's own. A wrapper has those of its inner
    encoding.
    """
    encoding = build(factory, noise=0.0)
    within, cls = encoding.rope_within, type(encoding)
    if isinstance(encoding, Wrapper):
        _same_within(encoding, encoding.inner, within)
        return
    parts = [one for one in encoding.modules() if isinstance(one, Encoding)]
    turns = any(one.rope_within is not None for one in parts)
    require(within is not None or not turns, "it holds a rope: set rope_within = 0, or higher")
    options = {*ROTATIONS[0]} - {*signature(cls).parameters} if turns else set()
    message = f"it turns pairs, but lacks the options {', '.join(sorted(options))}, as rope has"
    require(not options, message)
    found: list[Tensor] = []
    for rotation in ROTATIONS if turns else ():
        try:
            made = build(partial(cls, **rotation), noise=0.0)
        except ValueError:
            require(rotation["rope_parameters"] != "default", f"it refuses {rotation}")
            continue
        _same_within(made, make("rope", SHAPE, **rotation), made.rope_within)
        found.append(run(made, tokens()))
        message = f"it ignores one of the options {rotation}"
        require(all(not torch.allclose(x, found[-1], atol=1e-9) for x in found[:-1]), message)


def _same_within(encoding: Encoding, other: Encoding, within: int | None) -> None:
    ids = tokens(2, min(within or 0, 2 * SHAPE.train_len))
    message = f"rope_within is {within}, but the output for {ids.shape[1]} tokens is not that of "
    if within:
        close(run(encoding, ids), run(other.eval(), ids), 1e-5, message + other.name)


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


def check_axes(factory: Factory) -> None:
    """Check axes: equal coordinates are positions, and relative is meant along every axis."""
    encoding, ids, near = build(factory), tokens(), torch.arange(10)
    plain, axes = run(encoding, ids), encoding.axes
    for same in {1, axes}:
        message = f"coords that equal pos on {same} axes change the output: read ctx.places(axes)"
        close(plain, run(encoding, ids, coords=near[None, :, None].expand(1, 10, same)), 0, message)
    grid = torch.stack([0 * near] * (axes - 2) + [near // 5, near % 5], -1)[None]
    if axes == 1:
        message = "ctx.coords changes the output: set axes to how many it reads"
        close(plain, run(encoding, ids, coords=grid), 0, message)
        return
    there = run(encoding, ids, coords=grid)
    gap = float((plain - there).abs().max())
    require(gap > 1e-6, f"axes is {axes}, but coords do not change the output: read ctx.places()")
    for axis, shift in product(range(axes), (1, 7, 123, 1000) if encoding.relative else ()):
        moved = grid + shift * (torch.arange(axes) == axis)
        allowed = min(1e-2, 1e-5 + 1e-6 * shift)
        message = f"relative is True, but shifting axis {axis} by {shift} changes the output"
        close(there, run(encoding, ids, coords=moved), allowed, message)
    decodes(encoding, ids, ([4, 1, 5],), " with coords", coords=grid)


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
    """Check that without a causal mask, a bias that falls with distance falls on both sides.

    A bias that depends on the side alone, such as a sign, is allowed.
    """
    encoding, (t, less, d) = build(factory).double(), (40, 10, 30)
    if encoding.causal_only or (encoding.max_len or t) < t:
        return
    given = inputs(encoding, 1, t, torch.float64)
    with torch.no_grad():
        bias = one_layer(encoding, context(tokens(1, t)), given).bias
    if bias is None or bias.shape[-2:] != (t, t):
        return
    near = bias.diagonal(0, -2, -1)[..., :1]
    earlier, later, closer = (bias.diagonal(n, -2, -1) - near for n in (-d, d, -less))
    opposite = (later + earlier == 0).all(-1)  # (B|1, H|1)
    far, close_by = (change.abs().amin(-1) for change in (earlier, closer))
    require(
        not bool((opposite & (far > 1e-3) & (far > 1.2 * close_by)).any()),
        "the bias falls with the distance to keys on one side and grows on the other, which "
        "encoders see: use ctx.distance().abs(), or set causal_only = True",
    )


def check_causal_only(factory: Factory) -> None:
    """Check that without a causal mask attention is finite, or refused if causal_only is True.

    An encoding that has a causal_only one within it must be causal_only too.
    """
    encoding = build(factory)
    parts = {type(x).__name__ for x in encoding.modules() if getattr(x, "causal_only", False)}
    message = f"causal_only is False, but {' and '.join(parts)} within it is causal_only"
    require(encoding.causal_only or not parts, f"{message}: set causal_only = True")
    layer, every = _layer(encoding, 2, range(9)), torch.ones(9, 9, dtype=torch.bool)
    v = torch.ones(2, layer.k.shape[1], 9, encoding.shape.d_head)
    try:
        out = attend(encoding, layer.q, layer.k, v, layer.ctx, every)
    except ValueError:
        require(encoding.causal_only, "attention without a causal mask raises: set causal_only")
        return
    finite(out, "without a causal mask: mind that distances are negative, or set causal_only")


def check_both_sides(factory: Factory) -> None:
    """Check that without a causal mask, distances that are alike for earlier keys are for later.

    Of far keys with equal vectors, it counts the logits that differ from those of the next key.
    """
    encoding, side = build(factory).double(), 5 * SHAPE.train_len
    t = 2 * side + 1
    if encoding.causal_only or (encoding.max_len or t) < t:
        return
    same = torch.ones(1, t, dtype=torch.long)
    ctx = context(same, slots=same)
    ctx = replace(ctx, drawn=encoding.draw(ctx, generator=draws()))
    with torch.no_grad():
        logits = one_layer(encoding, ctx, same_tokens(encoding, t, torch.float64)).logits
    earlier, later = logits[0, :, side, :side].flip(-1), logits[0, :, side, side + 1 :]
    few, many = (_changes(x[:, side // 2 :].nan_to_num(neginf=-1e9)) for x in (earlier, later))
    require(
        few > side // 8 or many <= 2 * few + 2,
        f"of {side // 2} far keys, {few} earlier and {many} later ones differ in their logits from "
        "the next: encoders see both, so test the absolute distance, or set causal_only = True",
    )


def _changes(rows: Tensor) -> int:
    return int((rows.diff(dim=-1).abs() > 1e-4).any(0).sum())


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
        layer = one_layer(encoding, context(tokens(1, 1).expand(1, n)), given)
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
