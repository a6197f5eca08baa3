"""Checks that a pass leaves nothing behind: not in its inputs, not in the encoding."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import torch
from torch import Tensor

from pezoo.testing.probe import Factory, build, close, context, require, run, stream, tokens

_T = TypeVar("_T")


def check_inputs(factory: Factory) -> None:
    """Hooks return new tensors: what they are given, and parameters, stay as they are."""
    encoding, (b, t) = build(factory), (2, 9)
    encoding.train()
    shape, generator = encoding.shape, torch.Generator().manual_seed(2)
    x = torch.randn(b, t, shape.d_model, generator=generator)
    q, k, logits = (
        torch.randn(b, shape.n_heads, t, width, generator=generator)
        for width in (shape.d_head, shape.d_head, t)
    )
    ids = tokens(b, t)
    ctx = context(ids, x=x)
    given = {"x": x, "q": q, "k": k, "logits": logits, "ctx.pos": ctx.pos, "ctx.ids": ids}
    given |= {**dict(encoding.named_parameters()), **dict(encoding.named_buffers())}
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
    found = call()
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
