"""Checks that a pass leaves nothing behind: not in its inputs, not in the encoding."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import fields, replace
from typing import TypeVar

import torch
from torch import Tensor

from pezoo.base import Encoding
from pezoo.testing.probe import (
    Factory,
    build,
    close,
    context,
    draws,
    key_weight,
    require,
    run,
    stream,
    tokens,
)

_T = TypeVar("_T")


def check_inputs(factory: Factory) -> None:
    """What hooks are given, parameters, and torch's generator stay as they are."""
    encoding, (b, t) = build(factory), (2, 9)
    encoding.train()
    shape, generator = encoding.shape, torch.Generator().manual_seed(2)
    x = torch.randn(b, t, shape.d_model, generator=generator)
    q, k, logits = (
        torch.randn(b, shape.n_heads, t, width, generator=generator)
        for width in (shape.d_head, shape.d_head, t)
    )
    ctx = context(tokens(b, t), distances=torch.arange(t) if encoding.reads_distance else None)
    ctx = replace(ctx, drawn=encoding.draw(ctx, generator=draws(), progress=1.0))
    given = {"x": x, "q": q, "k": k, "logits": logits}
    told = {f.name: getattr(ctx, f.name) for f in fields(ctx)}
    given |= {f"ctx.{name}": value for name, value in told.items() if isinstance(value, Tensor)}
    given |= {f"ctx.drawn[{name!r}]": value for name, value in (ctx.drawn or {}).items()}
    given |= {**dict(encoding.named_parameters()), **dict(encoding.named_buffers())}
    ctx = replace(ctx, x=x)
    with torch.no_grad():
        ctx = _leaves("prepare", given, lambda: encoding.prepare(ctx))
        _leaves("embed", given, lambda: encoding.embed(x, ctx))
        ctx = ctx.at(0, x)
        wide = _leaves("transform", given, lambda: encoding.transform(q, k, ctx))
        given |= {"q": wide[0], "k": wide[1]}
        _leaves("bias", given, lambda: encoding.bias(*wide, ctx))
        _leaves("bias_pairs", given, lambda: encoding.bias_pairs(*wide, ctx))
        _leaves("bias_columns", given, lambda: encoding.bias_columns(*wide, ctx))
        _leaves("weights", given, lambda: encoding.weights(logits, ctx))


def _leaves(hook: str, given: dict[str, Tensor], call: Callable[[], _T]) -> _T:
    """What the call returns. `_version` counts writes to a tensor and its views, but by `.data`."""
    before = {name: (x._version, x.clone()) for name, x in given.items()}
    generator = torch.get_rng_state()
    found = call()
    require(
        torch.equal(generator, torch.get_rng_state()),
        f"{hook} draws from torch's own generator, or seeds it: draw in draw alone",
    )
    for name, x in given.items():
        version, copy = before[name]
        require(
            x._version == version and torch.equal(x, copy),
            f"{hook} changes {name} in place, which the model still needs: return a new tensor",
        )
    return found


def check_stateless(factory: Factory) -> None:
    """Passes over other tokens, before it or in between while decoding, change nothing."""
    encoding, ids = build(factory), tokens()
    fresh = run(encoding, ids)

    def others() -> None:
        run(encoding.train(), tokens(2, 14, seed=1))
        run(encoding.eval(), tokens(1, 3, seed=2))

    others()
    message = "keep what a sequence needs in ctx.memo, nothing in self"
    close(fresh, run(encoding, ids), 0, f"a pass changes the passes after it: {message}")
    if encoding.prefix_stable:
        chunks = stream(encoding, ids, [4, 1, 5], between=others)
        close(fresh, chunks, 1e-5, f"decoding changes when other passes come between: {message}")
    one, other = (torch.tensor([n]) for n in (5, 9))
    ours = tokens(2, 8), torch.arange(8)[None], one
    theirs = tokens(2, 8, seed=1), 2 * torch.arange(8)[None], other
    alone = list(_hook_by_hook(encoding, *ours))
    turns = zip(_hook_by_hook(encoding, *ours), _hook_by_hook(encoding, *theirs), strict=True)
    for (hook, before), ((_, after), _) in zip(alone, turns, strict=True):
        what = "changes when the hooks of another pass come between, as under checkpointing"
        require(torch.equal(before, after), f"{hook} {what}: {message}")


@torch.no_grad()
def _hook_by_hook(
    encoding: Encoding, ids: Tensor, pos: Tensor, scale: Tensor
) -> Iterator[tuple[str, Tensor]]:
    """What each hook of a pass returns, one at a time."""
    (b, t), shape, generator = ids.shape, encoding.shape, torch.Generator().manual_seed(2)
    x = torch.randn(b, t, shape.d_model, generator=generator)
    q, k = torch.randn(2, b, shape.n_heads, t, shape.d_head, generator=generator)
    ctx = context(ids, pos, scale=scale)
    drawn = encoding.draw(ctx, generator=draws(), length=16)
    ctx = encoding.prepare(replace(ctx, x=x, drawn=drawn))
    yield "prepare", x
    x = encoding.embed(x, ctx)
    yield "embed", x
    for layer in range(shape.n_layers):
        here = ctx.at(layer, x, key_weight())
        wide = encoding.transform(q, k, here)
        yield "transform", torch.cat(wide)
        bias = encoding.bias(*wide, here)
        yield "bias", x if bias is None else bias
