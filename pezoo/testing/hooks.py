"""Checks of how an encoding is constructed, and of the types and shapes that hooks return."""

from collections.abc import Callable, Iterator
from dataclasses import fields, replace
from difflib import get_close_matches
from functools import partial
from inspect import signature
from typing import Any, Unpack, get_args

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from pezoo.base import BiasForm, Columns, Encoding, Pass, ScoreMod, Shape, Sizes
from pezoo.testing.probe import (
    SHAPE,
    Factory,
    Inputs,
    Probe,
    alone,
    broadcasts,
    build,
    close,
    context,
    draws,
    finite,
    inputs,
    one_layer,
    require,
    run,
    tokens,
    walk,
)


def check_constructible(factory: Factory) -> None:
    """Check that it can be constructed from a Shape alone, with one head or layer too."""
    _check_globals(factory)
    for shape in (SHAPE, Shape(16, 1, 16, 1, 6), Shape(30, 5, 6, 3, 40)):
        encoding = factory(shape)
        _is("it", encoding, Encoding)
        message = "self.shape must be the Shape passed to it: call super().__init__(shape)"
        require(encoding.shape == shape, message)
        _check_claims(encoding)
        _check_options(type(encoding))
    _check_names(type(encoding))


def _check_claims(encoding: Encoding) -> None:
    """Check the types of class attributes."""
    version, longest, modes = type(encoding).version, encoding.max_len, encoding.modes
    numbered = type(version) is int and version >= 1
    limited = longest is None or (type(longest) is int and longest >= 1)
    named = isinstance(modes, tuple) and all(isinstance(mode, str) for mode in modes)
    for name, fits, valid in (
        ("version", numbered, "a whole number, at least 1"),
        ("max_len", limited, "None or a whole number, at least 1"),
        ("modes", named, "a tuple of names"),
    ):
        require(fits, f"{name} must be {valid}; got {getattr(encoding, name)!r}")


def _check_names(cls: type[Encoding]) -> None:
    """Check that no attribute of the class is a misspelt one of Encoding."""
    known = [name for name in vars(Encoding) if not name.startswith("_")]
    for one in cls.__mro__[: cls.__mro__.index(Encoding)]:
        for name in vars(one):
            if name.startswith("_") or hasattr(Encoding, name):
                continue
            turned = [other for other in known if sorted(other) == sorted(name)]
            near = turned or get_close_matches(name, known, 1, 0.87)
            require(not near, f"{one.__name__}.{name} changes nothing; did you mean {near[:1]}?")


def _check_globals(factory: Factory) -> None:
    """Check that constructing it changes neither torch's settings nor its seed."""
    dtype, states = torch.get_default_dtype(), []
    try:
        for seed in (1, 2):
            with torch.random.fork_rng(devices=[]):
                torch.manual_seed(seed)
                factory(SHAPE)
                states.append(torch.get_rng_state())
        message = "constructing it seeds torch's generator, which the model uses too"
        require(not torch.equal(*states), message)
        require(torch.get_default_dtype() == dtype, "constructing it changes torch's default dtype")
    finally:
        torch.set_default_dtype(dtype)


def _check_options(cls: type[Encoding]) -> None:
    """Check that options are keywords with a default and an annotation, for NAME(option=value)."""
    for name, option in signature(cls).parameters.items():
        required = option.default is option.empty
        if name == "shape" or option.annotation == Unpack[Sizes]:  # of a class that takes sizes
            continue
        if option.kind is option.KEYWORD_ONLY:
            example = f"{name}: {type(option.default).__name__}"
            require(not required, f"option {name} needs a default value: write {name}=...")
            require(
                option.annotation is not option.empty,
                f"option {name} needs an annotation, such as {example}",
            )
        else:
            named = option.kind is option.POSITIONAL_OR_KEYWORD
            inner = cls.wraps is not None  # a wrapper's second argument makes what it wraps
            require(required or inner, f"option {name} must be keyword-only: write it after a *")
            require(named, f"options must be named parameters, not {option}")


def check_shapes(factory: Factory) -> None:
    """Check shapes and dtypes that hooks return, with shared positions, padding and a cache.

    q and k must stay equally wide, no dtype may become less precise, and padding must give no NaN.
    """
    shared = torch.arange(9)[None]
    padded = torch.stack([shared[0], (shared[0] - 2).clamp(min=-1)])
    for dtype in (torch.float32, torch.float64, torch.bfloat16):
        for pos in (shared, padded):
            _check_hooks(build(factory).to(dtype), pos, dtype)
    encoding = build(factory)
    if encoding.prefix_stable:
        one_layer(encoding, context(tokens(2, 9)), inputs(encoding, 2, 9, torch.float32), n_new=2)


def _check_hooks(encoding: Encoding, pos: Tensor, dtype: torch.dtype) -> None:
    ids, given, (b, t) = tokens(2, 9), inputs(encoding, 2, 9, dtype), (2, 9)
    heads, width = encoding.shape.n_heads, encoding.shape.d_head
    drawn = encoding.draw(context(ids, pos), generator=draws())
    _is("draw", drawn, dict)
    for name, value in drawn.items():
        _is(f"draw: {name}", value, Tensor)
    steps = walk(encoding, context(ids, pos), given)
    _, ctx, _ = next(steps)
    _is("prepare", ctx, Pass)
    message = "prepare: begin it with ctx = super().prepare(ctx), and return the result"
    require(ctx.prepared, message)
    _, embedded, _ = next(steps)
    _is("embed", embedded, Tensor)
    _shaped("embed", embedded, "(B, T, D)", tuple(given.x.shape))
    message = f"embed: {dtype} became {embedded.dtype}: end with .to(x.dtype)"
    require(embedded.dtype == dtype, message)
    _, both, _ = next(steps)
    pair = isinstance(both, tuple) and len(both) == 2
    require(
        pair and all(isinstance(x, Tensor) for x in both), "transform: expected the tuple (q, k)"
    )
    made = {"embed": embedded, "transform: q": both[0], "transform: k": both[1]}
    for name, y in zip(("transform: q", "transform: k"), both, strict=True):
        size = b, heads, t, max(width, both[0].shape[-1])
        _shaped(name, y, "(B, H, T, K), where K may grow, alike for q and k,", size)
        _precise(name, y, dtype)
    for hook, given_back, _ in steps:  # scores, bias, weights
        if given_back is not None:
            _check_logits(hook, given_back, (b, heads, t, t), dtype)
            made[hook] = given_back
    remedy = "Padding has position -1: clamp positions before a log, root or division"
    for hook, found in made.items():
        require(not found.isnan().any(), f"{hook}: NaN. {remedy}")


def _check_logits(hook: str, x: object, size: tuple[int, ...], dtype: torch.dtype) -> None:
    """Check what "scores", "bias" or "weights" returned, of size (B, H, T, S)."""
    _is(hook, x, Tensor)
    assert isinstance(x, Tensor)
    if hook == "bias":
        broadcasts(tuple(x.shape), size)
    else:
        _shaped(hook, x, "(B, H, T, S)", size)
    if hook != "weights":
        _precise(hook, x, dtype)


def _precise(hook: str, x: Tensor, dtype: torch.dtype) -> None:
    """Check for a dtype that is precise enough; `attend` casts it to the model's."""
    valid = (dtype, torch.float32, torch.float64)
    require(x.dtype in valid, f"{hook}: expected {dtype} as q has, or a finer one; got {x.dtype}")


def _is(hook: str, found: object, kind: type) -> None:
    message = f"{hook}: expected a {kind.__name__}, got {type(found).__name__}"
    require(isinstance(found, kind), message)


def _shaped(hook: str, x: Tensor, letters: str, size: tuple[int, ...]) -> None:
    require(x.shape == size, f"{hook}: expected {letters} = {size}, got {tuple(x.shape)}")


def check_inputs(factory: Factory) -> None:
    """Check that hooks do not change their inputs, cached keys, parameters or torch's generator."""
    encoding, (b, t) = build(factory).train(), (2, 9)
    x, q, k = whole = inputs(encoding, b, t, torch.float32)
    ctx = context(tokens(b, t), distances=torch.arange(t) if encoding.reads_distance else None)
    ctx = replace(ctx, drawn=encoding.draw(ctx, generator=draws(), progress=1.0))
    given = {"x": x, "q": q, "k": k} | {f"ctx.{f.name}": getattr(ctx, f.name) for f in fields(ctx)}
    given |= {f"ctx.drawn[{name!r}]": value for name, value in (ctx.drawn or {}).items()}
    given |= {**dict(encoding.named_parameters()), **dict(encoding.named_buffers())}
    given = {name: value for name, value in given.items() if isinstance(value, Tensor)}
    ctx = replace(ctx, x=x)
    with torch.no_grad():
        ctx = _leaves("prepare", given, lambda: encoding.prepare(ctx))
        given["x"] = x = _leaves("embed", given, lambda: encoding.embed(x, ctx))
        ctx = ctx.at(0, x)
        q, k = _leaves("transform", given, lambda: encoding.transform(q, k, ctx))
        given |= {"q": q, "k": k, "logits": q @ k.mT}
        _leaves("scores", given, partial(encoding.scores, q, k, alone(ctx)))
        _leaves("bias", given, partial(encoding.bias, q, k, alone(ctx)))
        for kind in get_args(BiasForm):
            _leaves("bias_form", given, partial(encoding.bias_form, q, k, alone(ctx), kind))
        _leaves("weights", given, lambda: encoding.weights(given["logits"], ctx))
        if encoding.prefix_stable:
            last = one_layer(encoding.eval(), context(tokens(b, t)), whole, n_new=2)
            given = {"q": last.q, "k": last.k}
            for hook in ("scores", "bias"):
                call = partial(getattr(encoding, hook), last.q, last.k, alone(last.ctx))
                _leaves(f"with a cache, {hook}", given, call)


def _leaves(hook: str, given: dict[str, Tensor], call: Callable[[], Any]) -> Any:
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


def check_deterministic(factory: Factory) -> None:
    """Check that the same seed gives the same encoding, and the same tokens the same output."""
    first, second = (build(factory, seed=4) for _ in range(2))
    before = {**vars(first)}
    one, again, other = (run(encoding, tokens()) for encoding in (first, first, second))
    finite(one, "(a query may be left without any key, even itself)")
    message = (
        "two passes over the same tokens differ: draw random numbers only in draw, from its "
        "generator, and keep no state in self"
    )
    close(one, again, 0, message)
    kept = [name for name, own in vars(first).items() if before.get(name, before) is not own]
    require(not kept, f"a pass sets self.{''.join(kept[:1])}: keep what it computes in ctx.memo")
    message = "two instances built with one seed differ: use torch's generator for initial values"
    close(one, other, 0, message)


def check_bias_forms(factory: Factory) -> None:
    """Check that the bias in every form that `bias_form` has equals `bias`, with its gradients."""
    encoding, (b, s) = build(factory, Shape(12, 3, 4, 2, 40)).double(), (2, 14)
    shared, own = torch.arange(s)[None], torch.arange(s).clamp(max=9) + torch.tensor([[0], [5]])
    cases: list[tuple[int, Tensor, int, int, Tensor | None]]
    cases = [(0, shared, 0, 1, None), (1, shared, 0, 1, None), (0, shared, 4, 1, None)]
    cases += [(0, own, 0, b, None), (0, shared, 0, b, None)]
    cases += [(0, shared, 0, 1, 2 * torch.arange(s))] * encoding.reads_distance
    for at, pos, n_new, rows, distances in cases:
        ctx = context(tokens(b, s), pos, scale=torch.arange(4, 4 + rows), distances=distances)
        layer = one_layer(encoding, ctx, inputs(encoding, b, s, torch.float64), n_new, at)
        q, k = (y.detach().requires_grad_() for y in (layer.q, layer.k))
        if not (forms := [*_other_forms(encoding, q, k, layer.ctx)]):
            continue
        bias, where = encoding.bias(q, k, alone(layer.ctx)), f" in layer {at}" * (at > 0)
        leaves = {"q": q, "k": k, **dict(encoding.named_parameters())}
        for name, form, tolerance in forms:
            if bias is None:
                raise AssertionError(f"bias_form returns {name}, but bias returns None")
            message = f"bias_form: {name} differs from bias{where}"
            close(_finite(form), _finite(bias), tolerance, message)
            most = max(len(bias), len(form))
            both = (y.expand(most, -1, -1, -1) for y in (bias, form))
            wanted, got = (_gradients(y, leaves) for y in both)
            for key in wanted:
                message = f"bias_form: {name}: the gradient of {key} differs from bias's{where}"
                allowed = 10 * tolerance * max(1.0, float(wanted[key].abs().max()))
                close(got[key], wanted[key], allowed, message)


def _other_forms(
    encoding: Encoding, q: Tensor, k: Tensor, ctx: Pass
) -> Iterator[tuple[str, Tensor, float]]:
    """Yield the name, value and tolerance of each form: sinusoids are float32."""
    (b, h, t, _), s = q.shape, k.shape[2]
    for kind in get_args(BiasForm):
        form = encoding.bias_form(q, k, alone(ctx), kind)
        if form is None:
            continue
        _is(f"bias_form with kind={kind.__name__}", form, kind)
        if isinstance(form, Columns):
            _shaped("Columns: q", form.q, "(B, H, T, W)", (b, h, t, form.q.shape[-1]))
            _shaped("Columns: k", form.k, "(B, H, S, W)", (b, h, s, form.q.shape[-1]))
            added = form.q @ form.k.mT - q @ k.mT
            yield "Columns", added * encoding.shape.d_head**-0.5, 1e-4
        elif isinstance(form, ScoreMod):
            yield "ScoreMod", _score_mod(form, h, ctx), 1e-9


def _score_mod(form: ScoreMod, heads: int, ctx: Pass) -> Tensor:
    """Return the dense bias after a check of the function that FlexAttention calls by pairs."""
    dense = form.dense(heads, ctx)
    tokens = [place.unbind() for place in ctx.places(form.axes)[0]] if form.axes else ctx.pos[0]
    head, last = torch.tensor(heads - 1), tokens[-1]
    pairs = torch.stack([form.value(head, last, j) for j in tokens]).expand(ctx.pos.shape[1])
    same = dense.expand(len(ctx.pos), heads, ctx.new, -1)[0, -1, -1]
    message = "ScoreMod of one pair differs from that of all: use elementwise operations"
    close(_finite(pairs), _finite(same), 1e-9, message)
    return dense


def _finite(bias: Tensor) -> Tensor:
    return bias.detach().nan_to_num(nan=torch.nan, neginf=-1e9)


def _gradients(bias: Tensor, inputs: dict[str, Tensor]) -> dict[str, Tensor]:
    """Return the gradients of a weighted sum of the bias, by name."""
    weight = torch.linspace(-1, 2, bias.numel(), dtype=bias.dtype).view(bias.shape)
    # Every input takes part, so that autograd has a graph where the bias ignores them all.
    total = (bias * weight).sum() + 0 * sum(x.sum() for x in inputs.values())
    found = torch.autograd.grad(total, [*inputs.values()], retain_graph=True)
    return dict(zip(inputs, found, strict=True))


def check_grouped_heads(factory: Factory) -> None:
    """Check that grouped-query attention equals repeating each head of keys for its queries."""
    encoding, (b, s) = build(factory, Shape(16, 4, 4, 1, 16)).double(), (2, 9)
    ids = tokens(b, s)
    drawn = encoding.draw(context(ids), generator=draws())
    x, q, k = inputs(encoding, b, s, torch.float64)

    def logits(keys: Tensor) -> Tensor:
        layer = one_layer(encoding, context(ids, drawn=drawn), Inputs(x, q, keys))
        return layer.logits.nan_to_num(neginf=-1e9)

    for n in (1, 2):
        message = (
            f"with {n} key heads for 4 query heads, logits differ from those with k repeated: if "
            "heads differ, call k.repeat_interleave(H // G, 1) in transform"
        )
        few = k[:, :n]
        with torch.no_grad():
            close(logits(few), logits(few.repeat_interleave(4 // n, 1)), 1e-5, message)


def check_drawn(factory: Factory) -> None:
    """Check that `draw` uses the generator passed to it, and that `prepare` calls `draw`."""
    ids = tokens()
    for encoding in (build(factory), build(factory).train()):
        before = torch.get_rng_state()
        drawn = encoding.draw(context(ids), generator=draws(), progress=1.0)
        message = "draw uses torch's default generator: use the `generator` passed to it"
        require(torch.equal(before, torch.get_rng_state()), message)
        for name, x in drawn.items():
            require(
                x.dim() < 2 or (x.shape[0] in (1, len(ids)) and x.shape[1] == ids.shape[1]),
                f"draw: {name} must be (B|1, T, ...) with B, T = {len(ids)}, {ids.shape[1]}, or "
                f"(n,) or (), was {tuple(x.shape)}",
            )
        message = "two passes with the same ctx.drawn differ: draw random numbers in draw only"
        one, two = (_seeded(seed, encoding, ids, drawn) for seed in (0, 1))
        close(one, two, 0, message)
        message = "without ctx.drawn the output differs: begin prepare with super().prepare(ctx)"
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            try:
                drawn = encoding.draw(context(ids))
            except ValueError:  # in training, it may need the progress
                require(encoding.training, "draw must do without optional arguments in evaluation")
                continue
        one, two = (_seeded(0, encoding, ids, x) for x in (drawn, None))
        close(one, two, 0, message)


def _seeded(seed: int, encoding: Encoding, ids: Tensor, drawn: dict[str, Tensor] | None) -> Tensor:
    """Run a pass with torch's default generator seeded; without `drawn`, prepare draws."""
    with torch.random.fork_rng(devices=[]), torch.no_grad():
        torch.manual_seed(seed)
        out: Tensor = Probe(encoding)(ids, context(ids, drawn=drawn))
    return out


def check_pure(factory: Factory) -> None:
    """Check that after `draw` no hook draws, or reads a tensor's value."""
    encoding, ids, shared = build(factory).double().train(), tokens(2), torch.arange(10)
    given = inputs(encoding, 2, 10, torch.float64)
    for pos in (shared[None], torch.stack([shared, (shared - 2).clamp(min=-1)])):
        ctx = context(ids, pos)
        ctx = replace(ctx, drawn=encoding.draw(ctx, generator=draws(), progress=1.0))
        with torch.no_grad(), _Pure():  # type: ignore[no-untyped-call]
            for _ in walk(encoding, ctx, given, encoding.shape.n_layers):
                pass


_WHERE = ": create tensors with device=ctx.pos.device"


def check_device(factory: Factory) -> None:
    """Check that tensors are created on the device of ctx.pos, with the device `meta`."""
    encoding = build(factory)
    drawn = encoding.draw(context(tokens(2, 9)), generator=draws())
    encoding = encoding.to("meta")
    given = Inputs(*(x.to("meta") for x in inputs(encoding, 2, 9, torch.float32)))
    ctx = context(tokens(2, 9).to("meta"), torch.arange(9, device="meta")[None], drawn=drawn)
    with torch.no_grad(), _Pure():  # type: ignore[no-untyped-call]
        for hook, out, _ in walk(encoding, ctx, given):
            meta = all(x.is_meta for x in tree_leaves(out) if isinstance(x, Tensor))
            require(meta, f"{hook}: is on the CPU, q is not{_WHERE}")


class _Pure(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Rejects operations that draw, synchronise with the host, or mix devices, as `meta` may."""

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
        tensors = [x for x in tree_leaves((args, kwargs)) if isinstance(x, Tensor)]
        devices = {x.device for x in tensors if x.dim()}  # one without axes goes with any device
        require(
            len(devices) < 2 or name in ("_to_copy", "copy_", "index"),
            f"{name} gets tensors of two devices{_WHERE}",
        )
        return func(*args, **(kwargs or {}))
