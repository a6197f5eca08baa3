"""Checks that hooks draw no random numbers, read no values, and stay on one device."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from pezoo.base import Encoding
from pezoo.testing.probe import (
    Factory,
    Inputs,
    Probe,
    build,
    close,
    context,
    draws,
    first_layer,
    inputs,
    require,
    tokens,
)


def check_drawn(factory: Factory) -> None:
    """Check that `draw` uses the generator passed to it, and that `prepare` calls `draw`."""
    for encoding in (build(factory), build(factory).train()):
        ids, before = tokens(), torch.get_rng_state()
        drawn = encoding.draw(context(ids), generator=draws(), progress=1.0)
        require(
            torch.equal(before, torch.get_rng_state()),
            "draw uses torch's default generator: use the `generator` passed to it",
        )
        _check_sizes(drawn, tuple(ids.shape))
        x = torch.zeros(*ids.shape, encoding.shape.d_model)
        ctx = encoding.prepare(context(ids, x=x, drawn=drawn))
        require(ctx.prepared, "prepare must begin with ctx = super().prepare(ctx)")
        one, two = (_seeded(seed, encoding, ids, drawn) for seed in (0, 1))
        close(
            one,
            two,
            0,
            "two passes with the same ctx.drawn differ: draw random numbers in draw only",
        )
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            drawn = encoding.draw(context(ids))
        one, two = (_seeded(0, encoding, ids, x) for x in (drawn, None))
        close(
            one,
            two,
            0,
            "without ctx.drawn the output differs: begin prepare with super().prepare(ctx)",
        )


def _seeded(seed: int, encoding: Encoding, ids: Tensor, drawn: dict[str, Tensor] | None) -> Tensor:
    """Run a pass with torch's default generator seeded; without `drawn`, prepare draws."""
    with torch.random.fork_rng(devices=[]), torch.no_grad():
        torch.manual_seed(seed)
        out: Tensor = Probe(encoding)(ids, context(ids, drawn=drawn))
    return out


def _check_sizes(drawn: dict[str, Tensor], size: tuple[int, ...]) -> None:
    b, t = size
    for name, x in drawn.items():
        require(
            x.dim() < 2 or (x.shape[0] in (1, b) and x.shape[1] == t),
            f"draw: {name} must be (B|1, T, ...) with B, T = {b}, {t}, or (n,) or (), was "
            f"{tuple(x.shape)}",
        )


def check_pure(factory: Factory) -> None:
    """Check that after `draw` no hook draws, or reads a tensor's value."""
    encoding, ids = build(factory).train(), tokens(2, 10)
    pos = torch.arange(10)[None].repeat(2, 1)
    pos[1] = (pos[1] - 2).clamp(min=-1)
    for ctx in (context(ids), context(ids, pos)):
        ctx = replace(ctx, drawn=encoding.draw(ctx, generator=draws(), progress=1.0))
        probe = Probe(encoding)
        with torch.no_grad(), _Pure():  # type: ignore[no-untyped-call]
            probe(ids, ctx)


class _Pure(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Rejects operations that draw, or that synchronise with the host."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        waits = {torch.Tag.data_dependent_output, torch.Tag.dynamic_output_shape} & {*func.tags}
        name = func.overloadpacket.__name__
        if name == "index":  # with integers, its size is known
            waits = {x for x in args[1] if x is not None and x.dtype in (torch.bool, torch.uint8)}
        # `pezoo.functional.distinct` uses unique on a CPU alone.
        require(
            not waits or name.startswith(("_unique", "unique")),
            f"{name} reads values of a tensor, as int(), bool(), .item() and x[mask] do, which "
            f"synchronises with the host: do that in draw",
        )
        require(
            torch.Tag.nondeterministic_seeded not in func.tags,
            f"{name} draws random numbers: do that in draw",
        )
        return func(*args, **(kwargs or {}))


_WHERE = ": create tensors with device=ctx.pos.device"


def check_device(factory: Factory) -> None:
    """Check that tensors are created on the device of ctx.pos, with the device `meta`."""
    encoding = build(factory)
    drawn = encoding.draw(context(tokens(2, 9)), generator=draws())
    encoding = encoding.to("meta")
    given = Inputs(*(x.to("meta") for x in inputs(encoding, 2, 9, torch.float32)))
    ctx = context(tokens(2, 9).to("meta"), torch.arange(9, device="meta")[None], drawn=drawn)
    with torch.no_grad(), _OneDevice():  # type: ignore[no-untyped-call]
        layer = first_layer(encoding, ctx, given)
        require(layer.bias is None or layer.bias.is_meta, f"bias: is on the CPU, q is not{_WHERE}")
        encoding.weights(layer.logits, layer.ctx)


class _OneDevice(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Rejects operations on tensors of two devices, some of which `meta` would allow."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = func.overloadpacket.__name__
        devices = {x.device.type for x in tree_leaves((args, kwargs)) if _has_axes(x)}
        require(
            len(devices) < 2 or name in ("_to_copy", "copy_", "index"),
            f"{name} gets tensors of two devices{_WHERE}",
        )
        return func(*args, **(kwargs or {}))


def _has_axes(x: object) -> bool:
    """Return True for tensors with axes; one without goes with any device."""
    return isinstance(x, Tensor) and x.dim() > 0
