"""Checks of whole passes: order of tokens, batches, padding, packed documents, decoding."""

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace

import torch
from torch import Tensor
from torch.nn.functional import pad

from pezoo.base import Encoding, PositionError
from pezoo.testing.probe import (
    SHAPE,
    VOCAB,
    Decoding,
    Factory,
    Probe,
    build,
    close,
    context,
    decodes,
    draws,
    inputs,
    key_weight,
    require,
    run,
    tokens,
    walk,
)

Rows = tuple[tuple[int, ...], ...]  # positions; -1 is padding


def check_prefix_stability(factory: Factory) -> None:
    """Check prefix_stable: later tokens do not change earlier outputs."""
    encoding, ids = build(factory), tokens()
    if not encoding.prefix_stable:
        return

    def earlier(ids: Tensor, pos: Tensor | None = None) -> Tensor:
        return run(encoding, ids, pos)[:, :6]

    other = ids.clone()
    other[:, 6:] = (other[:, 6:] + 1) % VOCAB
    message = (
        "later tokens change earlier outputs: a hook reads the future. Read earlier tokens alone, "
        "or set prefix_stable = False, without which keys are cached"
    )
    close(earlier(ids), earlier(other), 1e-6, message)
    if encoding.stochastic or encoding.needs_scale:
        return
    message = "earlier outputs: they must not depend on ctx.pos.shape[1] or ctx.pos.max()"
    close(earlier(ids), earlier(ids[:, :6]), 1e-6, f"a longer sequence changes {message}")
    ids, near = tokens(3, 260), torch.arange(260)
    far = near + 70_000 * (near >= 6)
    with suppress(PositionError):
        for pos, what in ((near, "a sequence of 260 tokens"), (far, "a later position of 70,000")):
            close(earlier(ids, pos[None]), earlier(ids[:, :6]), 1e-6, f"{what} changes {message}")


def check_streaming(factory: Factory) -> None:
    """Check that decoding with a cache, token by token and in chunks, equals a full pass."""
    when = (
        ": new tokens have the positions ctx.query_pos, not 0 to T - 1; what later tokens need "
        "belongs in ctx.memo, under a key of its own in each layer"
    )
    encoding = build(factory, replace(SHAPE, n_layers=3))
    decodes(encoding, tokens(), ([1] * 10, [4, 1, 5], [9, 1]), when)


def check_batch(factory: Factory) -> None:
    """Check that samples are independent: permuting the batch permutes the output."""
    encoding = build(factory)
    ids, order = tokens(9), torch.tensor([2, 0, 3, 1, 8, 6, 7, 5, 4])
    message = "samples of a batch depend on each other"
    whole = run(encoding, ids)
    close(whole[order], run(encoding, ids[order]), 1e-6, message)
    if encoding.stochastic:
        return
    close(whole[:2], run(encoding, ids[:2]), 1e-6, "the number of samples changes the output")
    near = tuple(range(10))
    if encoding.needs_scale:
        message = "a row uses the scale of another: ctx.scale is (B|1,)"
        _independent(encoding, (near, near), message, scale=(5, 9))
    with suppress(PositionError):
        message = "a row uses the positions of another: ctx.pos is (B|1, S), a row for each sample"
        _independent(encoding, (near, (*near[:4], *range(2004, 2010))), message)


PADDED: Rows = (
    (0, 1, 2, 3, -1, -1, 4, 5, 6, -1, 7, 8, 9),
    (-1, -1, -1, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9),
    tuple(range(13)),
)


def check_positions(factory: Factory) -> None:
    """Check that positions come from ctx.pos: padding (-1) left of or between tokens is nothing."""
    message = (
        "padding changes the output: take positions from ctx.pos and ctx.distance(), not from a "
        "token's column"
    )
    for rows in (PADDED[:1], PADDED[1:]):
        _independent(build(factory), rows, message)


DOCUMENTS: Rows = (
    (0, 1, 2, 3, 0, 1, 2, 3, 4, 5),
    (0, 0, 1, 2, 3, 0, 1, 0, 1, 2),
    (-1, -1, 0, 1, 2, -1, 1, 2, 3, 4),
    (2, 3, 4, 5, 6, 7, 8, 9, 10, 11),
)


def check_documents(factory: Factory) -> None:
    """Check that packed documents are independent: each is computed as if it were alone."""
    message = "packed documents depend on each other: reset state where ctx.document rises"
    _independent(build(factory), DOCUMENTS, message)


def _independent(
    encoding: Encoding, rows: Rows, message: str, scale: tuple[int, ...] = (5,)
) -> None:
    """Check that each document in the rows of positions is computed as if it were alone.

    Whole passes are compared, and decoding in chunks with them; `scale` is one, or one a row.
    """
    pos, scales = torch.tensor(rows), torch.tensor(scale)
    ids, length = tokens(*pos.shape), int(pos.max()) + 1
    chunks = ([4, 1, 1, 1, pos.shape[1] - 7], [6, pos.shape[1] - 6])
    full = run(encoding, ids, pos, scale=scales, length=length)
    document = context(ids, pos).document
    for row, scale_of_row in enumerate(scales.expand(len(pos))):
        for number in range(int(document[row].max()) + 1):
            columns = (document[row] == number) & (pos[row] >= 0)
            one = ids[row, columns][None], pos[row, columns][None]
            alone = run(encoding, *one, scale=scale_of_row[None], length=length)
            close(full[row, columns], alone[0], 1e-5, message)
    when = " with padding or several documents in a row"
    decodes(encoding, ids, chunks, when, pos=pos, scale=scales, length=length)


def check_parts(factory: Factory) -> None:
    """Check that a training batch can be split: rows with their share of `drawn` give the same."""
    encoding, ids = build(factory).train(), tokens(4)
    drawn = encoding.draw(context(ids), generator=draws(), progress=1.0)

    def part(first: int, stop: int) -> Tensor:
        own = {n: x[first:stop] if x.dim() > 1 and len(x) > 1 else x for n, x in drawn.items()}
        return run(encoding, ids[first:stop], drawn=own)

    message = f"a batch in parts gives another output than the whole: {CONVENTION}"
    close(part(0, 4), torch.cat([part(0, 1), part(1, 4)]), 1e-6, message)


CONVENTION = "draw must return (B|1, T, ...) for each token, or (n,) or () for the whole batch"


def check_right_padding(factory: Factory) -> None:
    """Check that in training, columns of padding on the right change nothing before them."""
    encoding, ids = build(factory).train(), tokens(2, 13)
    if not encoding.prefix_stable:
        return
    pos = torch.stack([torch.arange(13), (torch.arange(13) - 2).clamp(min=-1)])
    pos[:, 10:] = pos[:, 9:10]
    ctx = context(ids[:, :10], pos[:, :10], scale=torch.tensor([5]))
    drawn = encoding.draw(ctx, generator=draws(), progress=1.0)
    longer = {name: _longer(x, 3) for name, x in drawn.items()}
    plain = run(encoding, ids[:, :10], ctx.pos, scale=ctx.scale, drawn=drawn)
    full = run(encoding, ids, pos, scale=ctx.scale, drawn=longer)[:, :10]
    real = ctx.key_mask[..., None]
    message = f"padding on the right changes the tokens before it: {CONVENTION}"
    close(plain * real, full * real, 1e-6, message)


def _longer(x: Tensor, more: int) -> Tensor:
    """Append columns of zeros to (B|1, T, ...); (n,) becomes longer too."""
    axis = min(1, x.dim() - 1)
    return pad(x.movedim(axis, -1), (0, more)).movedim(-1, axis) if x.dim() else x


def check_cache(factory: Factory) -> None:
    """Check that decoding after ctx.memo.reorder and ctx.memo.crop equals a full pass."""
    encoding, scale, shared = build(factory), torch.tensor([5]), torch.arange(12)
    if not encoding.prefix_stable:
        return
    for pos in (shared[None], torch.stack([shared, (shared - 2).clamp(min=-1), shared])):
        decoding = Decoding(encoding, tokens(3, 12), pos, scale=scale)
        decoding.feed(4)
        decoding.feed(2)
        decoding.reorder(torch.tensor([2, 1, 2]))
        _continues(decoding, (1, 3), "ctx.memo.reorder")
        decoding.crop(-2)  # of the last pass
        _continues(decoding, (3,), "ctx.memo.crop(-2)")
        decoding.crop(5)  # back into another
        decoding.reorder(torch.tensor([1, 0, 2, 1]))
        _continues(decoding, (1, 4), "ctx.memo.crop(5)")


def _continues(decoding: Decoding, chunks: tuple[int, ...], call: str) -> None:
    """Check that the next chunks equal a full pass over all tokens so far."""
    for new in chunks:
        got, ctx = decoding.feed(new), decoding.whole
        ids, pos = decoding.ids[:, : decoding.end], ctx.pos[:, : decoding.end]
        full = run(decoding.encoding, ids, pos, length=12, scale=ctx.scale)[:, -new:]
        real = (pos[:, -new:] >= 0)[..., None]
        message = f"decoding differs from a full pass after {call}: see pezoo.context.Memo"
        close(got * real, full * real, 1e-5, message)


def check_stateless(factory: Factory) -> None:
    """Check that passes over other tokens, before or during decoding, change nothing."""
    encoding, ids = build(factory), tokens()
    fresh = run(encoding, ids)

    def others() -> None:
        ctx = context(tokens(2, 14, seed=1))
        drawn = encoding.train().draw(ctx, generator=draws(), progress=1.0)
        Probe(encoding)(ctx.ids, replace(ctx, drawn=drawn))
        run(encoding.eval(), tokens(1, 3, seed=2))

    others()
    message = "keep the state of a sequence in ctx.memo, not in self"
    close(fresh, run(encoding, ids), 0, f"a pass changes later passes: {message}")
    when = f" if other passes run in between: {message}"
    decodes(encoding, ids, ([4, 1, 5],), when, between=others)
    one, other = tokens(2, 8), tokens(2, 8, seed=1)
    undisturbed = [*_hook_by_hook(encoding, one, 1)]
    turns = zip(_hook_by_hook(encoding, one, 1), _hook_by_hook(encoding, other, 2), strict=True)
    for (hook, before), ((_, after), _) in zip(undisturbed, turns, strict=True):
        what = "changes if the hooks of another pass run in between, as under checkpointing"
        require(_equal(before, after), f"{hook} {what}: {message}")


def _equal(a: Tensor, b: Tensor) -> bool:
    """Return True if all numbers are equal; NaN, which other checks report, equals NaN."""
    return a.shape == b.shape and torch.allclose(a, b, rtol=0, atol=0, equal_nan=True)


@torch.no_grad()
def _hook_by_hook(encoding: Encoding, ids: Tensor, step: int) -> Iterator[tuple[str, Tensor]]:
    """Yield the output of each hook of a pass, at positions 0, step, 2 step, ..."""
    ctx = context(ids, step * torch.arange(8)[None], scale=torch.tensor([4 + step]))
    ctx = replace(ctx, drawn=encoding.draw(ctx, generator=draws(), length=16))
    given = inputs(encoding, len(ids), 8, torch.float64)
    for hook, out, _ in walk(encoding, ctx, given, encoding.shape.n_layers):
        out = torch.cat(out) if hook == "transform" else out
        yield hook, out if isinstance(out, Tensor) else given.x


@torch.no_grad()
def check_recomputed(factory: Factory) -> None:
    """Check that a layer's hooks can be called twice, as activation checkpointing does."""
    encoding, ctx = build(factory), context(tokens(2, 9))
    x, q, k = inputs(encoding, 2, 9, torch.float32)
    ctx = replace(ctx, x=x, drawn=encoding.draw(ctx, generator=draws()))
    here = encoding.prepare(ctx).at(0, x, key_weight(encoding.shape).to(x))

    def layer() -> list[Tensor]:
        wide = encoding.transform(q, k, here)
        bias = encoding.bias(*wide, here)
        return [*wide] if bias is None else [*wide, bias]

    require(
        all(map(_equal, layer(), layer())),
        "the hooks of a layer differ when called again, as activation checkpointing does: read "
        "only the tokens before the new ones in ctx.memo",
    )
