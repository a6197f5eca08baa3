"""Checks of how an encoding is constructed, and of the types and shapes that hooks return."""

from __future__ import annotations

from collections.abc import Iterator
from inspect import signature

import torch
from torch import Tensor

from pezoo.base import Columns, Context, Encoding, Pairs, Shape
from pezoo.testing.probe import (
    SHAPE,
    Factory,
    Inputs,
    alone,
    build,
    close,
    context,
    draws,
    first_layer,
    inputs,
    require,
    tokens,
    walk,
)


def check_constructible(factory: Factory) -> None:
    """Check that it can be constructed from a Shape alone, with one head or layer too."""
    _check_globals(factory)
    for shape in (SHAPE, Shape(16, 1, 16, 1, 6), Shape(30, 5, 6, 3, 40)):
        encoding = factory(shape)
        require(
            isinstance(encoding, Encoding), f"expected an Encoding, got {type(encoding).__name__}"
        )
        require(
            encoding.shape == shape,
            "self.shape must be the Shape passed to it: call super().__init__(shape)",
        )
        _check_claims(encoding)
        _check_options(type(encoding))


def _check_claims(encoding: Encoding) -> None:
    """Check the types of class attributes."""
    version, longest, modes = type(encoding).version, encoding.max_len, encoding.modes
    require(
        type(version) is int and version >= 1,
        f"version must be a whole number, at least 1; got {version!r}",
    )
    require(
        longest is None or (type(longest) is int and longest >= 1),
        f"max_len must be None or a whole number, at least 1; got {longest!r}",
    )
    require(
        isinstance(modes, tuple) and all(isinstance(mode, str) for mode in modes),
        f"modes must be a tuple of names, got {modes!r}",
    )


def _check_globals(factory: Factory) -> None:
    """Check that constructing it changes neither torch's settings nor its seed."""
    dtype, states = torch.get_default_dtype(), []
    try:
        for seed in (1, 2):
            with torch.random.fork_rng(devices=[]):
                torch.manual_seed(seed)
                factory(SHAPE)
                states.append(torch.get_rng_state())
        require(
            not torch.equal(*states),
            "constructing it seeds torch's generator, which the model uses too",
        )
        require(torch.get_default_dtype() == dtype, "constructing it changes torch's default dtype")
    finally:
        torch.set_default_dtype(dtype)


def _check_options(cls: type[Encoding]) -> None:
    """Check that options are keywords with a default and an annotation, for NAME(option=value)."""
    for name, option in signature(cls).parameters.items():
        required = option.default is option.empty
        if option.kind is not option.KEYWORD_ONLY:
            require(required, f"option {name} must be keyword-only: write it after a *")
            require(
                option.kind is option.POSITIONAL_OR_KEYWORD,
                f"options must be named parameters, not {option}",
            )
            continue
        require(not required, f"option {name} needs a default value: write {name}=...")
        require(
            option.annotation is not option.empty,
            f"option {name} needs an annotation, such as {name}: {type(option.default).__name__}",
        )


def check_shapes(factory: Factory) -> None:
    """Check shapes, dtypes and devices that hooks return, with shared positions and with padding.

    q and k must stay equally wide, no dtype may become less precise, and padding must give no NaN.
    """
    shared = torch.arange(9)[None]
    padded = torch.stack([shared[0], (shared[0] - 2).clamp(min=-1)])
    for dtype in (torch.float32, torch.float64, torch.bfloat16):
        for pos in (shared, padded):
            _check_hooks(build(factory).to(dtype), pos, dtype)


def _check_hooks(encoding: Encoding, pos: Tensor, dtype: torch.dtype) -> None:
    b, t, s = 2, 9, encoding.shape
    drawn = encoding.draw(context(tokens(b, t), pos), generator=draws())
    _is("draw", drawn, dict)
    for name, value in drawn.items():
        _is(f"draw: {name}", value, Tensor)
    x = inputs(encoding, b, t, dtype).x
    steps = walk(encoding, context(tokens(b, t), pos), inputs(encoding, b, t, dtype))
    ctx = next(steps).out
    _is("prepare", ctx, Context)
    require(
        ctx.prepared, "prepare: begin it with ctx = super().prepare(ctx), and return the result"
    )
    embedded = next(steps).out
    _is("embed", embedded, Tensor)
    require(
        embedded.shape == x.shape,
        f"embed: {tuple(x.shape)} became {tuple(embedded.shape)}: keep (B, T, D)",
    )
    require(
        embedded.dtype == dtype, f"embed: {dtype} became {embedded.dtype}: end with .to(x.dtype)"
    )
    both = next(steps).out
    _is("transform", both, tuple)
    q, k = both
    require(
        q.shape == k.shape, f"transform: q {tuple(q.shape)} and k {tuple(k.shape)} differ in shape"
    )
    require(
        q.shape[:3] == (b, s.n_heads, t) and q.shape[3] >= s.d_head,
        f"transform: q {(b, s.n_heads, t, s.d_head)} became {tuple(q.shape)}: only K may grow",
    )
    for y in (q, k):
        require(_precise(y, dtype), f"transform: {dtype} became the less precise {y.dtype}")
    bias = next(steps).out
    if bias is not None:
        _is("bias", bias, Tensor)
        _check_bias_shape(bias, (b, s.n_heads, t, t))
        require(
            _precise(bias, dtype),
            f"bias: expected {dtype} as q has, float32 or float64; got {bias.dtype}",
        )
        require(bias.device == q.device, f"bias: is on {bias.device}, q on {q.device}")
    made = {"embed": embedded, "transform: q": q, "transform: k": k, "bias": bias}
    for hook, found in made.items():
        require(
            found is None or not found.isnan().any(),
            f"{hook}: NaN. Padding has position -1: clamp positions before a log, root or division",
        )


def _precise(x: Tensor, dtype: torch.dtype) -> bool:
    """Return True for a dtype that is precise enough; `attend` casts it to the model's."""
    return x.dtype in (dtype, torch.float32, torch.float64)


def _is(hook: str, found: object, kind: type) -> None:
    require(
        isinstance(found, kind),
        f"{hook}: expected a {kind.__name__}, got {type(found).__name__}",
    )


def _check_bias_shape(bias: Tensor, size: tuple[int, int, int, int]) -> None:
    given = tuple(bias.shape)
    aligned = zip(reversed(given), reversed(size), strict=False)
    require(
        len(given) <= 4 and all(n in (1, m) for n, m in aligned),
        f"bias: expected a shape that broadcasts to (B, H, T, S) = {size}, got {given}",
    )


def check_bias_forms(factory: Factory) -> None:
    """Check that `bias_pairs` and `bias_columns` equal `bias`, with their gradients."""
    encoding, (b, s) = build(factory, Shape(12, 3, 4, 2, 40)).double(), (2, 14)
    shared, own = torch.arange(s)[None], torch.arange(s).clamp(max=9) + torch.tensor([[0], [5]])
    cases: list[tuple[Tensor, int, int, Tensor | None]]
    cases = [(shared, 0, 1, None), (shared, 4, 1, None), (own, 0, b, None), (shared, 0, b, None)]
    cases += [(shared, 0, 1, 2 * torch.arange(s))] * encoding.reads_distance
    for pos, n_new, rows, distances in cases:
        ctx = context(tokens(b, s), pos, scale=torch.arange(4, 4 + rows), distances=distances)
        layer = first_layer(encoding, ctx, inputs(encoding, b, s, torch.float64), n_new)
        q, k = (y.detach().requires_grad_() for y in (layer.q, layer.k))
        bias = encoding.bias(q, k, alone(layer.ctx))
        leaves = {"q": q, "k": k, **dict(encoding.named_parameters())}
        for name, form, tolerance in _other_forms(encoding, q, k, layer.ctx):
            if bias is None:
                raise AssertionError(f"{name} returns a bias, but bias returns None")
            close(form.detach(), bias.detach(), tolerance, f"{name} differs from bias")
            wanted, got = (_gradients(y, leaves) for y in (bias, form))
            for key in wanted:
                message = f"{name}: the gradient of {key} differs from that of bias"
                allowed = 10 * tolerance * max(1.0, float(wanted[key].abs().max()))
                close(got[key], wanted[key], allowed, message)


def _other_forms(
    encoding: Encoding, q: Tensor, k: Tensor, ctx: Context
) -> Iterator[tuple[str, Tensor, float]]:
    """Yield the name, value and tolerance of each form: sinusoids are float32."""
    (b, h, t, _), s = q.shape, k.shape[2]
    pairs = encoding.bias_pairs(q, k, alone(ctx))
    if pairs is not None:
        _is("bias_pairs", pairs, Pairs)
        _check_pairs_shape(pairs, (b, h, t, s))
        yield "Pairs", pairs.dense(), 1e-9
    wide = encoding.bias_columns(q, k, alone(ctx))
    if wide is not None:
        _is("bias_columns", wide, Columns)
        sizes = [tuple(x.shape) for x in wide]
        require(
            sizes[0][:3] == (b, h, t) and sizes[1] == (b, h, s, sizes[0][-1]),
            f"Columns: q and k must be (B, H, T, W) and (B, H, S, W), got {sizes}",
        )
        yield "Columns", (wide.q @ wide.k.mT - q @ k.mT) * encoding.shape.d_head**-0.5, 1e-4


def _check_pairs_shape(pairs: Pairs, size: tuple[int, int, int, int]) -> None:
    (b, h, t, s), (reader, rows) = size, pairs
    p = reader.shape[-1]
    require(
        reader.shape == (b, h, t, p),
        f"Pairs: the reader must be (B, H, T, P) = {(b, h, t, p)}, got {tuple(reader.shape)}",
    )
    require(
        rows.shape == (1, t, s, h, p),
        f"Pairs: rows must be (1, T, S, H, P) = {(1, t, s, h, p)}, got {tuple(rows.shape)}; "
        f"return None where samples differ",
    )
    require(
        reader.dtype == rows.dtype == torch.float64,
        f"Pairs: expected the dtype of q, torch.float64, got {reader.dtype} and {rows.dtype}",
    )


def _gradients(bias: Tensor, inputs: dict[str, Tensor]) -> dict[str, Tensor]:
    """Return the gradients of a weighted sum of the bias, by name."""
    weight = torch.linspace(-1, 2, bias.numel(), dtype=bias.dtype).view(bias.shape)
    if not bias.requires_grad:
        return {name: torch.zeros_like(x) for name, x in inputs.items()}
    found = torch.autograd.grad(
        (bias * weight).sum(),
        [*inputs.values()],
        retain_graph=True,
        allow_unused=True,
        materialize_grads=True,
    )
    return dict(zip(inputs, found, strict=True))


def check_grouped_heads(factory: Factory) -> None:
    """Check that grouped-query attention equals repeating each head of keys for its queries."""
    encoding, (b, s) = build(factory, Shape(16, 4, 4, 1, 16)).double(), (2, 9)
    ids = tokens(b, s)
    drawn = encoding.draw(context(ids), generator=draws())
    x, q, k = inputs(encoding, b, s, torch.float64)

    def logits(keys: Tensor) -> Tensor:
        layer = first_layer(encoding, context(ids, drawn=drawn), Inputs(x, q, keys))
        return layer.logits.nan_to_num(neginf=-1e9)

    for n in (1, 2):
        message = (
            f"with {n} key heads for 4 query heads, logits differ from those with k repeated: if "
            "heads differ, call k.repeat_interleave(H // G, 1) in transform"
        )
        few = k[:, :n]
        with torch.no_grad():
            close(logits(few), logits(few.repeat_interleave(4 // n, 1)), 1e-5, message)
