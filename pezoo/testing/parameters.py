"""Checks of parameters: saved, trained, and used in every layer and head."""

from __future__ import annotations

import io
from collections.abc import Callable
from dataclasses import replace

import torch
from torch import Tensor, nn

from pezoo.base import Encoding, ParamGroup
from pezoo.testing.probe import (
    SHAPE,
    Factory,
    Probe,
    alone,
    axes_that_differ,
    build,
    close,
    context,
    draws,
    inputs,
    require,
    run,
    tokens,
    walk,
)


def check_state_dict(factory: Factory) -> None:
    """Check that a state_dict loaded into a second instance gives the same output."""
    first, second = build(factory, seed=1), build(factory, seed=2)
    _check_registered(first)
    buffer = io.BytesIO()
    torch.save(first.state_dict(), buffer)
    buffer.seek(0)
    second.load_state_dict(torch.load(buffer, weights_only=True))
    ids = tokens()
    message = "after load_state_dict the output differs: keep state in parameters or buffers"
    close(run(first, ids), run(second, ids), 0, message)


def _check_registered(encoding: Encoding) -> None:
    for name, _ in encoding.named_buffers():
        require(
            name in encoding.state_dict(),
            f"buffer {name} is not in state_dict(), so that a model loaded by transformers, which "
            "is built on the device meta, leaves it empty: remove persistent=False",
        )
    known = {id(x) for x in (*encoding.parameters(), *encoding.buffers(), *encoding.modules())}
    for name, module in encoding.named_modules():
        for key, value in vars(module).items():
            if key in ("_parameters", "_buffers", "_modules"):
                continue
            values = value.values() if isinstance(value, dict) else value
            parts = list(values) if isinstance(value, list | tuple | dict) else [value]
            require(
                all(id(x) in known for x in parts if isinstance(x, Tensor | nn.Module)),
                f"{f'{name}.{key}'.lstrip('.')} holds a tensor or a module that state_dict() and "
                f".to() do not reach: use nn.Parameter, register_buffer or nn.ModuleList",
            )


def check_gradients(factory: Factory) -> None:
    """Check that every parameter gets a finite gradient that is not zero everywhere."""
    encoding = build(factory).train()
    if not any(True for _ in encoding.parameters()):
        return
    _backward(encoding)
    for name, parameter in encoding.named_parameters():
        require(
            parameter.grad is not None,
            f"parameter {name} gets no gradient: use it in a hook, or remove it",
        )
        assert parameter.grad is not None
        require(
            bool(parameter.grad.isfinite().all()),
            f"the gradient of {name} is not finite: avoid roots, logarithms and divisions at 0",
        )
        require(
            bool((parameter.grad != 0).any()),
            f"the gradient of {name} is zero everywhere: it must change the output",
        )


def check_start(factory: Factory) -> None:
    """Check that a few training steps from the initial values reach every parameter."""
    encoding = build(factory, noise=0.0).train()
    parameters = dict(encoding.named_parameters())
    if not parameters:
        return
    optimiser, reached = torch.optim.Adam(parameters.values(), lr=1e-2), set[str]()
    for _ in range(4):
        optimiser.zero_grad()
        _backward(encoding)
        broken = [n for n, x in parameters.items() if not _finite(x.grad)]
        require(
            not broken,
            f"at its initial values the gradient of {broken} is not finite: start elsewhere",
        )
        reached |= {n for n, x in parameters.items() if x.grad is not None and bool(x.grad.any())}
        optimiser.step()
    never = ", ".join(name for name in parameters if name not in reached)
    require(
        not never,
        f"from the initial values on, the gradient of {never} is zero: if two parameters are "
        "multiplied, initialise one of them to another value than 0",
    )


def _finite(gradient: Tensor | None) -> bool:
    return gradient is None or bool(gradient.isfinite().all())


def check_layers(factory: Factory) -> None:
    """Check that a parameter with an axis for layers or heads is used in all of them."""
    encoding = build(factory, replace(SHAPE, n_layers=5, n_heads=3)).train()
    other = build(factory, replace(SHAPE, n_layers=7, n_heads=4))
    if not any(True for _ in encoding.parameters()):
        return
    _backward(encoding)
    for name, x, axis, pair in axes_that_differ(encoding, other):
        what = {(5, 7): "layer", (3, 4): "head"}.get(pair)
        if what is None or x.grad is None:  # check_gradients says the latter
            continue
        used = (x.grad != 0).movedim(axis, 0).reshape(pair[0], -1).any(1)
        unused = (~used).nonzero().flatten().tolist()
        remedy = "index it with ctx.layer" if what == "layer" else "read all heads"
        require(
            not unused,
            f"parameter {name} has an entry for each {what}, but {what} {unused} gets no "
            f"gradient: {remedy}",
        )


def _backward(encoding: Encoding) -> None:
    """Compute the gradients of a weighted sum of a pass."""
    ids = tokens()
    out = Probe(encoding)(ids, context(ids))
    require(
        out.requires_grad,
        "it has parameters, but no hook's output depends on them: return the value",
    )
    weight = torch.randn(out.shape, dtype=out.dtype, generator=torch.Generator().manual_seed(3))
    (out * weight).sum().backward()


def check_training(factory: Factory) -> None:
    """Check that `param_groups` lists its own parameters once, and `penalty` has a gradient."""
    encoding = build(factory).train()
    own = {id(x) for x in encoding.parameters()}
    groups = list(encoding.param_groups())
    require(
        all(isinstance(group, ParamGroup) for group in groups),
        "param_groups: expected a list of pezoo.base.ParamGroup",
    )
    grouped = [id(x) for group in groups for x in group.params]
    require(
        own.issuperset(grouped),
        "param_groups: contains a tensor that is not a parameter of the encoding",
    )
    require(len(set(grouped)) == len(grouped), "param_groups: contains a parameter twice")
    penalty = encoding.penalty()
    if penalty is not None:
        require(
            isinstance(penalty, Tensor) and penalty.dim() == 0 and bool(penalty.isfinite()),
            f"penalty: expected a finite scalar tensor, got {penalty}",
        )
        require(
            penalty.requires_grad,
            "penalty: no gradient reaches a parameter: remove detach(), or return None",
        )


def check_own_layer(factory: Factory) -> None:
    """Check that a layer's hooks read only that layer's entry of a parameter."""
    n, (b, s) = 5, (2, 9)
    encoding = build(factory, replace(SHAPE, n_layers=n)).double()
    other = build(factory, replace(SHAPE, n_layers=7))
    layered = {
        name: (p, axis)
        for name, p, axis, pair in axes_that_differ(encoding, other)
        if pair == (n, 7)
    }
    weights = [p for p, _ in layered.values()]
    steps = walk(encoding, context(tokens(b, s)), inputs(encoding, b, s, torch.float64), n)
    for hook, out, ctx in steps if layered else ():
        outs = out if hook == "transform" else [out] if hook == "bias" else []
        outs = [y for y in outs if y is not None and y.requires_grad]
        if not outs:
            continue
        sums = [(y * y.detach().cos())[y.isfinite()].sum() for y in outs]
        found = torch.autograd.grad(sums, weights, allow_unused=True, retain_graph=True)
        layer = ctx.layer
        for (name, (_, axis)), gradient in zip(layered.items(), found, strict=True):
            if gradient is None:
                continue
            read = gradient.movedim(axis, 0).reshape(n, -1).any(1).nonzero().flatten().tolist()
            others = [i for i in read if i != layer]
            require(
                not others,
                f"parameter {name} has an entry for each layer, but layer {layer} reads those of "
                f"layers {others}: index it with ctx.layer",
            )


STEP = 1e-4


def check_derivatives(factory: Factory) -> None:
    """Gradients of embed, transform and bias equal finite differences."""
    encoding, (b, t) = build(factory).double(), (2, 9)
    x, q, k = inputs(encoding, b, t, torch.float64)
    ctx = encoding.prepare(context(tokens(b, t), x=x))
    _agrees("embed", "x", x, lambda z: encoding.embed(z, alone(ctx)))
    here = ctx.at(0, encoding.embed(x, ctx).detach())
    _agrees("transform", "q", q, lambda z: encoding.transform(z, k, alone(here))[0])
    _agrees("transform", "k", k, lambda z: encoding.transform(q, z, alone(here))[1])
    wide_q, wide_k = (y.detach() for y in encoding.transform(q, k, here))
    _agrees("bias", "q", wide_q, lambda z: encoding.bias(z, wide_k, alone(here)))
    _agrees("bias", "k", wide_k, lambda z: encoding.bias(wide_q, z, alone(here)))


def _agrees(hook: str, name: str, at: Tensor, call: Callable[[Tensor], Tensor | None]) -> None:
    """Compare derivatives of a weighted sum of the hook's output in a few random directions."""
    generator = draws()

    def total(z: Tensor) -> Tensor:
        out = call(z)
        out = z.new_zeros(1) if out is None else out.double()
        weight = torch.linspace(-1, 2, out.numel(), dtype=out.dtype).view(out.shape)
        return (out * weight)[out.isfinite()].sum()

    z = at.clone().requires_grad_()
    sums = total(z)
    gradient = torch.zeros_like(z)
    if sums.requires_grad:
        (found,) = torch.autograd.grad(sums, z, allow_unused=True)
        gradient = gradient if found is None else found
    for _ in range(3):
        way = torch.randn(at.shape, generator=generator).double()
        with torch.no_grad():
            wanted = float(total(at + STEP * way) - total(at - STEP * way)) / (2 * STEP)
        given = float((gradient * way).sum())
        require(
            abs(given - wanted) <= 0.05 * abs(wanted) + 0.05,
            f"{hook}: the gradient in {name} is {given:.3g}, expected {wanted:.3g}: do not use "
            f"detach() or no_grad() on what depends on {name}",
        )
