"""Checks of parameters: saved, trained, and used in every layer and head."""

import io
from collections.abc import Callable
from dataclasses import replace
from functools import partial

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves

from pezoo.adapters import attention_mask
from pezoo.base import Encoding, Memo, ParamGroup, Pass
from pezoo.testing.probe import (
    SHAPE,
    Factory,
    Inputs,
    Probe,
    build,
    close,
    context,
    draws,
    inputs,
    logits_of,
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
            leaves = [x for x in tree_leaves(value) if isinstance(x, Tensor | nn.Module)]
            require(
                all(id(x) in known for x in leaves),
                f"{f'{name}.{key}'.lstrip('.')} holds a tensor or a module that state_dict() and "
                f".to() do not reach: use nn.Parameter, register_buffer or nn.ModuleList",
            )


def check_reset(factory: Factory) -> None:
    """Check that it can be built on the device meta, and that reset_parameters gives values then.

    After the same seed, these are the values of a new encoding.
    """
    with torch.device("meta"):
        encoding = factory(SHAPE)
    for name, x in encoding.state_dict().items():
        message = f"{name} has values under torch.device('meta'): create it without device="
        require(x.is_meta, message)
    encoding.to_empty(device="cpu")
    with torch.random.fork_rng(devices=[]), torch.no_grad():
        for x in encoding.state_dict().values():
            x.fill_(7)
        torch.manual_seed(4)
        encoding.reset_parameters()
        torch.manual_seed(4)
        new = factory(SHAPE).state_dict()
    for name, x in encoding.state_dict().items():
        message = f"reset_parameters gives {name} other values than __init__: leave it to Encoding"
        require(torch.equal(x, new[name]), message)


def check_gradients(factory: Factory) -> None:
    """Check that every parameter gets a finite gradient that is not zero everywhere.

    With padding it is finite, too, and in float32 that of float64.
    """
    gradients = _gradients(build(factory).train())
    for name, gradient in gradients.items():
        if gradient is None:
            raise AssertionError(f"{name} gets no gradient: use it in a hook, or remove it")
        message = f"the gradient of {name} is not finite: avoid roots, logs and divisions at 0"
        require(_finite(gradient), message)
        message = f"the gradient of {name} is zero everywhere: it must change the output"
        require(bool(gradient.any()), message)
    _check_padded(factory)
    _check_float32(factory, {name: x for name, x in gradients.items() if x is not None})


def _check_padded(factory: Factory) -> None:
    """Check that gradients of a batch with padding are finite."""
    padded = (torch.arange(10) - 2).clamp(min=-1)[None]
    for name, gradient in _gradients(build(factory).train(), pos=padded).items():
        message = (
            f"with padding the gradient of {name} is not finite: its position is -1, so clamp "
            "positions before a log, root or division, also where torch.where drops the result"
        )
        require(_finite(gradient), message)


def _check_float32(factory: Factory, gradients: dict[str, Tensor]) -> None:
    """Check that gradients in float32 are those in float64."""
    found = _gradients(build(factory).train(), dtype=torch.float32)
    sizes = {name: float(x.abs().max()) for name, x in gradients.items()}
    for name, size in sizes.items():
        message = f"in float32 the gradient of {name} differs from that in float64"
        got = found[name]
        allowed = 1e-2 * size + 1e-4 * max(sizes.values())  # where it is 0, rounding is left
        close(gradients[name] * 0 if got is None else got, gradients[name], allowed, message)


def check_start(factory: Factory) -> None:
    """Check that a few training steps from the initial values reach every parameter."""
    encoding = build(factory, noise=0.0).train()
    never = dict(encoding.named_parameters())
    if not never:
        return
    optimiser = torch.optim.Adam(encoding.parameters(), lr=1e-2)
    for _ in range(4):
        optimiser.zero_grad()
        gradients = _gradients(encoding)
        broken = [name for name, x in gradients.items() if not _finite(x)]
        message = f"at its initial values the gradient of {broken} is not finite: start elsewhere"
        require(not broken, message)
        never = {name: x for name, x in never.items() if x.grad is None or not x.grad.any()}
        optimiser.step()
    names = ", ".join(never)
    require(
        not never,
        f"from the initial values on, the gradient of {names} is zero: if two parameters are "
        "multiplied, initialise one of them to another value than 0",
    )


def _finite(gradient: Tensor | None) -> bool:
    return gradient is None or bool(gradient.isfinite().all())


def _gradients(
    encoding: Encoding, pos: Tensor | None = None, dtype: torch.dtype = torch.float64
) -> dict[str, Tensor | None]:
    """Compute the gradients of a weighted sum of a pass -> by the name of the parameter."""
    parameters = dict(encoding.named_parameters())
    if parameters:
        ctx = context(tokens(), pos)
        ctx = replace(ctx, drawn=encoding.draw(ctx, generator=draws(), progress=1.0))
        out = Probe(encoding, dtype)(tokens(), ctx)
        message = "it has parameters, but no hook's output depends on them: return the value"
        require(out.requires_grad, message)
        weight = torch.randn(out.shape, generator=torch.Generator().manual_seed(3)).to(dtype)
        (out * weight).sum().backward()
    return {name: x.grad for name, x in parameters.items()}


def check_layers(factory: Factory) -> None:
    """Check that a parameter with an axis for layers or heads is used in all of them."""
    gradients = _gradients(build(factory, SEVERAL).train())
    for what, remedy in (("layer", "index it with ctx.layer"), ("head", "read all heads")):
        for name, axis in _axes(factory, what).items():
            gradient = gradients[name]
            if gradient is None:  # check_gradients says this
                continue
            used = _entries(gradient, axis)
            unused = [i for i in range(gradient.shape[axis]) if i not in used]
            require(
                not unused,
                f"parameter {name} has an entry for each {what}, but {what} {unused} gets no "
                f"gradient: {remedy}",
            )


SEVERAL = replace(SHAPE, n_layers=5, n_heads=3)


def _axes(factory: Factory, what: str) -> dict[str, int]:
    """Return by name each parameter's axis for layers or heads: the one that grows with them."""
    sizes = {name: x.shape for name, x in build(factory, SEVERAL).named_parameters()}
    more = build(factory, replace(SHAPE, n_layers=7, n_heads=4))
    pair = {"layer": (5, 7), "head": (3, 4)}[what]
    return {
        name: axis
        for name, x in more.named_parameters()
        for axis, found in enumerate(zip(sizes.get(name, ()), x.shape, strict=False))
        if found == pair
    }


def _entries(gradient: Tensor, axis: int) -> list[int]:
    """Return the indices along an axis at which a gradient is not zero everywhere."""
    rows = gradient.movedim(axis, 0).reshape(gradient.shape[axis], -1)
    found: list[int] = rows.any(1).nonzero().flatten().tolist()
    return found


def check_own_layer(factory: Factory) -> None:
    """Check that a layer's hooks read only that layer's entry of a parameter."""
    encoding, axes = build(factory, SEVERAL).double(), _axes(factory, "layer")
    parameters = dict(encoding.named_parameters())
    steps = walk(encoding, context(tokens(2, 9)), inputs(encoding, 2, 9, torch.float64), 5)
    for hook, out, ctx in steps if axes else ():
        outs = out if hook == "transform" else [out] if hook in ("scores", "bias") else []
        sums = [
            (y * y.detach().cos())[y.isfinite()].sum()
            for y in outs
            if y is not None and y.requires_grad
        ]
        if not sums:
            continue
        weights = [parameters[name] for name in axes]
        found = torch.autograd.grad(sums, weights, retain_graph=True, materialize_grads=True)
        for (name, axis), gradient in zip(axes.items(), found, strict=True):
            others = [i for i in _entries(gradient, axis) if i != ctx.layer]
            require(
                not others,
                f"parameter {name} has an entry for each layer, but layer {ctx.layer} reads those "
                f"of layers {others}: index it with ctx.layer",
            )


def check_training(factory: Factory) -> None:
    """Check that `param_groups` lists its own parameters once, and `penalty` has a gradient."""
    encoding = build(factory).train()
    own = {id(x) for x in encoding.parameters()}
    groups = list(encoding.param_groups())
    listed = all(isinstance(group, ParamGroup) for group in groups)
    require(listed, "param_groups: expected a list of pezoo.base.ParamGroup")
    grouped = [id(x) for group in groups for x in group.params]
    message = "param_groups: contains a tensor that is not a parameter of the encoding"
    require(own.issuperset(grouped), message)
    require(len(set(grouped)) == len(grouped), "param_groups: contains a parameter twice")
    penalty = encoding.penalty()
    if penalty is not None:
        scalar = isinstance(penalty, Tensor) and penalty.dim() == 0 and bool(penalty.isfinite())
        require(scalar, f"penalty: expected a finite scalar tensor, got {penalty}")
        message = "penalty: no gradient reaches a parameter: remove detach(), or return None"
        require(penalty.requires_grad, message)
    for noise in (0.0, 0.1):
        encoding = build(factory, noise=noise).train()
        penalty, parameters = encoding.penalty(), dict(encoding.named_parameters())
        if penalty is None:
            continue
        gradients = torch.autograd.grad(penalty, [*parameters.values()], allow_unused=True)
        broken = [name for name, x in zip(parameters, gradients, strict=True) if not _finite(x)]
        message = f"penalty: the gradient of {broken} is not finite: avoid roots and norms at 0"
        require(not broken, message)


STEPS = 1e-4, 1e-6  # the second where the first crosses a kink
LARGE = 1e4  # larger outputs are masks
Hook = tuple[Callable[..., Tensor | None], dict[str, Tensor]]  # and its arguments but the last, ctx


def check_derivatives(factory: Factory) -> None:
    """Gradients of the last layer's hooks and of `penalty` equal finite differences."""
    encoding, (b, t) = build(factory).train().double(), (2, 9)
    given, layers = inputs(encoding, b, t, torch.float64), encoding.shape.n_layers
    x = given.x.clone()
    ctx = context(tokens(b, t), x=x)
    ctx = replace(ctx, drawn=encoding.draw(ctx, generator=draws(), progress=1.0))
    hooks, w_key = _hooks(encoding, given, ctx)
    parameters: dict[str, Tensor] = dict(encoding.named_parameters())
    for leaf in (x, w_key, *(y for _, at in hooks.values() for y in at.values())):
        leaf.requires_grad_()

    def output(hook: str) -> Tensor | None:
        """Call the hooks of all layers in turn, up to this one of the last layer."""
        own = encoding.prepare(replace(ctx, memo=Memo()))
        (_, (embed, at)), *of_layer = hooks.items()
        out = embed(*at.values(), own)
        for layer in range(layers if hook != "embed" else 0):
            own = own.at(layer, x, w_key)
            for name, (call, at) in of_layer:
                out = call(*at.values(), own)
                if hook == name and layer == layers - 1:
                    return out
        return out

    before: dict[str, Tensor] = {}  # inputs of earlier hooks, which ctx.memo may pass on
    for hook, (_, at) in hooks.items():
        if output(hook) is not None:
            leaves = at | {"ctx.x": x, "ctx.w_key": w_key} | before | parameters
            _agree(hook, leaves, partial(output, hook))
        before |= {f"{name} of {hook}": leaf for name, leaf in at.items()}
    if encoding.penalty() is not None:
        _agree("penalty", parameters, encoding.penalty)


def _hooks(encoding: Encoding, given: Inputs, ctx: Pass) -> tuple[dict[str, Hook], Tensor]:
    """Return the hooks with their arguments in the last layer, and its weight of keys."""

    def transform(q: Tensor, k: Tensor, own: Pass) -> Tensor:
        return torch.cat([y.flatten() for y in encoding.transform(q, k, own)])

    def weights(z: Tensor, own: Pass) -> Tensor | None:
        return encoding.weights(z.masked_fill(~attention_mask(own), -torch.inf), own)

    x, q, k = given
    steps = walk(encoding, ctx, given, encoding.shape.n_layers)
    *_, (_, wide, last) = [one for one in steps if one[0] == "transform"]
    q_wide, k_wide = (y.detach().clone() for y in wide)
    assert last.w_key is not None
    return {
        "embed": (encoding.embed, {"x": x.clone()}),
        "transform": (transform, {"q": q, "k": k}),
        "scores": (encoding.scores, {"q": q_wide, "k": k_wide}),
        "bias": (encoding.bias, {"q": q_wide, "k": k_wide}),
        "weights": (weights, {"logits": logits_of(encoding, q_wide, k_wide, None, None)}),
    }, last.w_key


def _agree(hook: str, leaves: dict[str, Tensor], call: Callable[[], Tensor | None]) -> None:
    """Compare derivatives of a weighted sum of the output in two random directions of each leaf."""
    generator = torch.Generator().manual_seed(6)

    def total() -> Tensor:
        out = call()
        assert out is not None
        out = out.double()
        weight = torch.randn(out.shape, generator=draws(), dtype=out.dtype)
        return (out * weight)[out.abs() < LARGE].sum()

    @torch.no_grad()
    def moved(at: Tensor, step: Tensor) -> float:
        kept = at.clone()
        at.add_(step)
        found = float(total())
        at.copy_(kept)
        return found

    own = {name: at for name, at in leaves.items() if at.requires_grad and at.is_floating_point()}
    sums = total() + sum(0 * at.sum() for at in own.values())  # depends on them in any case
    for (name, at), gradient in zip(
        own.items(), torch.autograd.grad(sums, [*own.values()]), strict=True
    ):
        for _ in range(2):
            way = torch.randn(at.shape, generator=generator).double()
            given = float((gradient * way).sum())
            for step in STEPS:
                wanted = (moved(at, step * way) - moved(at, -step * way)) / (2 * step)
                if right := abs(given - wanted) <= 0.05 * abs(wanted) + 0.05:
                    break
            require(
                right,
                f"{hook}: the gradient in {name} is {given:.3g}, expected {wanted:.3g}: do not use "
                f"detach(), no_grad() or round() on what depends on {name}, and check a backward "
                "of your own (a straight-through estimator fails here by design)",
            )
