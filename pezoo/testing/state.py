"""Checks that a pass changes neither its inputs nor the encoding."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import fields, replace
from functools import partial
from typing import TypeVar

import torch
from torch import Tensor

from pezoo.base import Encoding
from pezoo.testing.probe import (
    Factory,
    alone,
    build,
    close,
    context,
    draws,
    inputs,
    require,
    run,
    stream,
    tokens,
    walk,
)

_T = TypeVar("_T")


def check_inputs(factory: Factory) -> None:
    """Check that hooks do not change their inputs, parameters or torch's generator."""
    encoding, (b, t) = build(factory).train(), (2, 9)
    x, q, k = inputs(encoding, b, t, torch.float32)
    ctx = context(tokens(b, t), distances=torch.arange(t) if encoding.reads_distance else None)
    ctx = replace(ctx, drawn=encoding.draw(ctx, generator=draws(), progress=1.0))
    given = {"x": x, "q": q, "k": k}
    told = {f.name: getattr(ctx, f.name) for f in fields(ctx)}
    given |= {f"ctx.{name}": value for name, value in told.items() if isinstance(value, Tensor)}
    given |= {f"ctx.drawn[{name!r}]": value for name, value in (ctx.drawn or {}).items()}
    given |= {**dict(encoding.named_parameters()), **dict(encoding.named_buffers())}
    ctx = replace(ctx, x=x)
    with torch.no_grad():
        ctx = _leaves("prepare", given, lambda: encoding.prepare(ctx))
        given["x"] = x = _leaves("embed", given, lambda: encoding.embed(x, ctx))
        ctx = ctx.at(0, x)
        q, k = wide = _leaves("transform", given, lambda: encoding.transform(q, k, ctx))
        given |= {"q": q, "k": k, "logits": q @ k.mT}
        for hook in (encoding.bias, encoding.bias_pairs, encoding.bias_columns):
            _leaves(hook.__name__, given, partial(hook, *wide, alone(ctx)))
        _leaves("weights", given, lambda: encoding.weights(given["logits"], ctx))


def _leaves(hook: str, given: dict[str, Tensor], call: Callable[[], _T]) -> _T:
    """Return the call's result after comparing. `_version` misses writes through `.data`."""
    before = {name: (x._version, x.clone()) for name, x in given.items()}
    generator = torch.get_rng_state()
    found = call()
    require(
        torch.equal(generator, torch.get_rng_state()),
        f"{hook} uses or seeds torch's default generator: draw random numbers only in draw",
    )
    for name, x in given.items():
        version, copy = before[name]
        require(
            x._version == version and torch.equal(x, copy),
            f"{hook} changes {name} in-place, which the model still needs: return a new tensor",
        )
    return found


def check_stateless(factory: Factory) -> None:
    """Check that passes over other tokens, before or during decoding, change nothing."""
    encoding, ids = build(factory), tokens()
    fresh = run(encoding, ids)

    def others() -> None:
        run(encoding.train(), tokens(2, 14, seed=1))
        run(encoding.eval(), tokens(1, 3, seed=2))

    others()
    message = "keep the state of a sequence in ctx.memo, not in self"
    close(fresh, run(encoding, ids), 0, f"a pass changes later passes: {message}")
    if encoding.prefix_stable:
        chunks = stream(encoding, ids, [4, 1, 5], between=others)
        close(fresh, chunks, 1e-5, f"decoding changes if other passes run in between: {message}")
    undisturbed = [*_hook_by_hook(encoding, tokens(2, 8), 1)]
    turns = zip(
        _hook_by_hook(encoding, tokens(2, 8), 1),
        _hook_by_hook(encoding, tokens(2, 8, seed=1), 2),
        strict=True,
    )
    for (hook, before), ((_, after), _) in zip(undisturbed, turns, strict=True):
        what = "changes if the hooks of another pass run in between, as under checkpointing"
        require(torch.equal(before, after), f"{hook} {what}: {message}")


@torch.no_grad()
def _hook_by_hook(encoding: Encoding, ids: Tensor, step: int) -> Iterator[tuple[str, Tensor]]:
    """Yield the output of each hook of a pass, at positions 0, step, 2 step, ..."""
    ctx = context(ids, step * torch.arange(8)[None], scale=torch.tensor([4 + step]))
    ctx = replace(ctx, drawn=encoding.draw(ctx, generator=draws(), length=16))
    given = inputs(encoding, len(ids), 8, torch.float64)
    for hook, out, _ in walk(encoding, ctx, given, encoding.shape.n_layers):
        out = torch.cat(out) if hook == "transform" else out
        yield hook, out if isinstance(out, Tensor) else given.x
