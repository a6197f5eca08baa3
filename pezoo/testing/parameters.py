"""Checks of an encoding's parameters: saved, trained, in every layer."""

from __future__ import annotations

import io
from dataclasses import replace

import torch
from torch import Tensor, nn

from pezoo.base import Encoding, ParamGroup
from pezoo.testing.probe import (
    SHAPE,
    Factory,
    Probe,
    axes_that_differ,
    build,
    close,
    context,
    repeated,
    require,
    run,
    tokens,
)


def check_state_dict(factory: Factory) -> None:
    """Saved and loaded into a second instance, it computes the same."""
    first, second = build(factory, seed=1), build(factory, seed=2)
    _check_registered(first)
    buffer = io.BytesIO()
    torch.save(first.state_dict(), buffer)
    buffer.seek(0)
    second.load_state_dict(torch.load(buffer, weights_only=True))
    ids = tokens()
    close(repeated(first, ids), run(second, ids), 0, "a loaded state_dict computes something else")


def _check_registered(encoding: Encoding) -> None:
    for name, _ in encoding.named_buffers():
        require(
            name in encoding.state_dict(),
            f"buffer {name} is not in state_dict(): where a model is built on the device meta and "
            "loaded, as by transformers, it holds junk; leave out persistent=False, or compute it "
            "in the hook that reads it",
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
                f".to() pass over: use nn.Parameter, register_buffer or nn.ModuleList",
            )


def check_gradients(factory: Factory) -> None:
    """Every parameter gets a finite gradient, and each tensor of them somewhere not zero."""
    encoding = build(factory).train()
    if not any(True for _ in encoding.parameters()):
        return
    _backward(encoding)
    for name, parameter in encoding.named_parameters():
        require(parameter.grad is not None, f"parameter {name} gets no gradient")
        assert parameter.grad is not None
        require(bool(parameter.grad.isfinite().all()), f"the gradient of {name} is not finite")
        require(bool((parameter.grad != 0).any()), f"the gradient of {name} is zero everywhere")


def check_start(factory: Factory) -> None:
    """From its initial values, a few steps of training reach every parameter."""
    encoding = build(factory, noise=0.0).train()
    parameters = dict(encoding.named_parameters())
    if not parameters:
        return
    optimiser, reached = torch.optim.Adam(parameters.values(), lr=1e-2), set[str]()
    for _ in range(4):
        optimiser.zero_grad()
        _backward(encoding)
        broken = [n for n, x in parameters.items() if not _finite(x.grad)]
        require(not broken, f"at its initial values the gradient of {broken} is not finite")
        reached |= {n for n, x in parameters.items() if x.grad is not None and bool(x.grad.any())}
        optimiser.step()
    never = ", ".join(name for name in parameters if name not in reached)
    require(
        not never,
        f"from the initial values on, the gradient of {never} is zero: where it is multiplied by "
        "another parameter, start one of the two elsewhere than at 0",
    )


def _finite(gradient: Tensor | None) -> bool:
    return gradient is None or bool(gradient.isfinite().all())


def check_layers(factory: Factory) -> None:
    """A parameter with an axis for layers or heads uses all of it."""
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
    """The gradients of a weighted sum of a pass."""
    ids = tokens()
    out = Probe(encoding)(ids, context(ids))
    require(out.requires_grad, "it has parameters, but no hook returns what depends on them")
    weight = torch.randn(out.shape, dtype=out.dtype, generator=torch.Generator().manual_seed(3))
    (out * weight).sum().backward()


def check_training(factory: Factory) -> None:
    """`param_groups` holds parameters of its own, each once; `penalty` has a gradient."""
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
        "param_groups: holds a tensor that is none of its parameters: list self's nn.Parameters",
    )
    require(len(set(grouped)) == len(grouped), "param_groups: holds a parameter twice")
    penalty = encoding.penalty()
    if penalty is not None:
        require(
            isinstance(penalty, Tensor) and penalty.dim() == 0 and bool(penalty.isfinite()),
            f"penalty: expected a finite scalar tensor, got {penalty}",
        )
        require(
            penalty.requires_grad,
            "penalty: no gradient reaches a parameter: keep detach() and no_grad() away from it, "
            "or return None",
        )
