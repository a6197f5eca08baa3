"""One conformance suite for every encoding, also for those of other packages.

    check_encoding(lambda shape: MyEncoding(shape))

runs every check and raises AssertionError with the first that fails, in plain words. In pytest:

    @parametrize_with_checks({"mine": MyEncoding})
    def test_conformance(check, factory):
        check(factory)
"""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from pezoo import adapters
from pezoo.adapters import attention_mask
from pezoo.base import Context, Encoding, Pairs, PositionError, Shape

Factory = Callable[[Shape], Encoding]
Check = Callable[[Factory], None]

SHAPE = Shape(d_model=24, n_heads=3, d_head=8, n_layers=2, train_len=16)
_VOCAB = 11


class Probe(nn.Module):
    """A small causal attention model around an encoding, with random projections."""

    def __init__(self, encoding: Encoding, dtype: torch.dtype = torch.float64) -> None:
        super().__init__()
        shape = encoding.shape
        generator = torch.Generator().manual_seed(1)
        size = shape.n_heads * shape.d_head

        def draw(*sizes: int) -> Tensor:
            return torch.randn(*sizes, generator=generator, dtype=torch.float64).to(dtype)

        self.encoding = encoding.to(dtype)
        self.table = draw(_VOCAB, shape.d_model)
        self.qkv = draw(shape.n_layers, shape.d_model, 3 * size) * shape.d_model**-0.5
        self.out = draw(shape.n_layers, size, shape.d_model) * size**-0.5

    def forward(self, ids: Tensor, ctx: Context, cache: list[Any] | None = None) -> Tensor:
        """ids (B, T) of the new tokens -> (B, T, D); a cache [None] * n_layers is filled."""
        encoding, shape = self.encoding, self.encoding.shape
        x = self.table[ids]
        ctx = encoding.prepare(replace(ctx, x=x, layer=0))
        x = encoding.embed(x, ctx)
        for layer in range(shape.n_layers):
            here = ctx.at(layer, x)
            q, k, v = (
                (x @ self.qkv[layer]).view(*ids.shape, 3, shape.n_heads, -1).permute(2, 0, 3, 1, 4)
            )
            q, k = encoding.transform(q, k, here)
            if cache is not None:
                if cache[layer] is not None:
                    k, v = (torch.cat(pair, 2) for pair in zip(cache[layer], (k, v), strict=True))
                cache[layer] = (k, v)
            y = adapters.attend(encoding, q, k, v, here, attention_mask(here), "eager")
            x = x + y.transpose(1, 2).flatten(2) @ self.out[layer]
        return x


def context(ids: Tensor, pos: Tensor | None = None, **fields: Any) -> Context:
    """A context for the ids (B, S), with positions 0..S-1 unless given."""
    pos = torch.arange(ids.shape[1])[None] if pos is None else pos
    generator = torch.Generator().manual_seed(5)
    scale = torch.tensor([max(1, ids.shape[1] // 2)], device=ids.device)
    return Context(pos=pos, ids=ids, scale=scale, generator=generator, **fields)


def tokens(batch: int = 3, length: int = 10, seed: int = 0) -> Tensor:
    """(batch, length) random ids."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(_VOCAB, (batch, length), generator=generator)


def build(factory: Factory, shape: Shape = SHAPE, seed: int = 0) -> Encoding:
    """The encoding in evaluation mode with every parameter moved off its initial value.

    A parameter that starts at zero would hide what it does from the checks.
    """
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        encoding = factory(shape)
        with torch.no_grad():
            for parameter in encoding.parameters():
                parameter.add_(0.1 * torch.randn_like(parameter))
    return encoding.eval()


def check_constructible(factory: Factory) -> None:
    """It can be built from a Shape alone, also with one head, one layer and other widths."""
    for shape in (SHAPE, Shape(16, 1, 16, 1, 6), Shape(30, 5, 6, 3, 40)):
        encoding = factory(shape)
        _true(
            isinstance(encoding, Encoding), f"expected an Encoding, got {type(encoding).__name__}"
        )
        _true(encoding.shape == shape, "self.shape must be the Shape it was given")


def check_state_dict(factory: Factory) -> None:
    """Saved and loaded into a second instance, it computes the same."""
    first, second = build(factory, seed=1), build(factory, seed=2)
    buffer = io.BytesIO()
    torch.save(first.state_dict(), buffer)
    buffer.seek(0)
    second.load_state_dict(torch.load(buffer, weights_only=True))
    ids = tokens()
    _close(_run(first, ids), _run(second, ids), 0, "a loaded state_dict computes something else")


def check_shapes(factory: Factory) -> None:
    """Hooks keep batch, heads, tokens, dtype and device; q and k stay equally wide."""
    for dtype in (torch.float32, torch.float64, torch.bfloat16):
        encoding = build(factory).to(dtype)
        b, t, s = 2, 9, encoding.shape
        x = torch.randn(b, t, s.d_model).to(dtype)
        ctx = encoding.prepare(context(tokens(b, t), x=x))
        embedded = encoding.embed(x, ctx)
        _true(embedded.shape == x.shape, f"embed: {tuple(x.shape)} became {tuple(embedded.shape)}")
        _true(embedded.dtype == dtype, f"embed: {dtype} became {embedded.dtype}")
        q, k = torch.randn(2, b, s.n_heads, t, s.d_head).to(dtype).unbind(0)
        q, k = encoding.transform(q, k, ctx.at(0, x))
        _true(q.shape == k.shape, f"transform: q {tuple(q.shape)} and k {tuple(k.shape)} differ")
        _true(q.shape[:3] == (b, s.n_heads, t), f"transform: q became {tuple(q.shape)}")
        _true(q.dtype == k.dtype == dtype, f"transform: {dtype} became {q.dtype}, {k.dtype}")
        bias = encoding.bias(q, k, ctx.at(0, x))
        if bias is not None:
            _true(bias.dtype == dtype, f"bias: expected {dtype}, got {bias.dtype}")
            _true(bias.device == q.device, f"bias: on {bias.device}, q on {q.device}")
            bias.expand(b, s.n_heads, t, t)


def check_bias_forms(factory: Factory) -> None:
    """Where `pairs` or `widened` give the bias too, they are `bias`, values and gradients."""
    encoding, (b, s) = build(factory, Shape(12, 3, 4, 2, 40)).double(), (2, 14)
    generator = torch.Generator().manual_seed(4)
    shared, own = torch.arange(s)[None], torch.arange(s).clamp(max=9) + torch.tensor([[0], [5]])
    for pos, n_new, rows in ((shared, s, 1), (shared, 4, 1), (own, s, b), (shared, s, b)):
        x = torch.randn(b, s, encoding.shape.d_model, generator=generator).double()
        scale = torch.arange(4, 4 + rows)
        ctx = encoding.prepare(replace(context(tokens(b, s), pos, x=x), scale=scale))
        ctx = ctx.at(0, x)
        size = 2, b, encoding.shape.n_heads, s, encoding.shape.d_head
        q, k = torch.randn(size, generator=generator).double()
        q, k = (x.detach().requires_grad_() for x in encoding.transform(q, k, ctx))
        q, ctx = q[:, :, s - n_new :], replace(ctx, n_new=n_new)
        bias = encoding.bias(q, k, ctx)
        inputs = {"q": q, "k": k, **dict(encoding.named_parameters())}
        for name, form, tolerance in _other_forms(encoding, q, k, ctx):
            if bias is None:
                raise AssertionError(f"{name} gives a bias, but bias gives none")
            _close(form.detach(), bias.detach(), tolerance, f"{name} differs from bias")
            wanted, got = (_gradients(y, inputs) for y in (bias, form))
            for key in wanted:
                message = f"{name}: another gradient of {key} than bias"
                allowed = 10 * tolerance * max(1.0, float(wanted[key].abs().max()))
                _close(got[key], wanted[key], allowed, message)


def _other_forms(
    encoding: Encoding, q: Tensor, k: Tensor, ctx: Context
) -> Iterator[tuple[str, Tensor, float]]:
    """Name, bias and tolerance of each that the encoding gives: sinusoids are float32."""
    (b, h, t, _), s = q.shape, k.shape[2]
    pairs = encoding.pairs(q, k, ctx)
    if pairs is not None:
        _check_pairs_shape(pairs, (b, h, t, s))
        yield "pairs", pairs.dense(), 1e-9
    wide = encoding.widened(q, k, ctx)
    if wide is not None:
        sizes = [tuple(x.shape) for x in wide]
        _true(
            sizes[0][:3] == (b, h, t) and sizes[1] == (b, h, s, sizes[0][-1]),
            f"widened: q and k must be (B, H, T, W) and (B, H, S, W), were {sizes}",
        )
        yield "widened", (wide[0] @ wide[1].mT - q @ k.mT) * encoding.shape.d_head**-0.5, 1e-4


def _check_pairs_shape(pairs: Pairs, size: tuple[int, int, int, int]) -> None:
    (b, h, t, s), (reader, rows) = size, pairs
    p = reader.shape[-1]
    _true(
        reader.shape == (b, h, t, p),
        f"pairs: the reader must be (B, H, T, P) = {(b, h, t, p)}, was {tuple(reader.shape)}",
    )
    _true(
        rows.shape == (1, t, s, h, p),
        f"pairs: rows must be (1, T, S, H, P) = {(1, t, s, h, p)}, were {tuple(rows.shape)}; "
        f"return None where samples differ",
    )
    _true(
        reader.dtype == rows.dtype == torch.float64,
        f"pairs: expected the dtype of q, torch.float64, got {reader.dtype} and {rows.dtype}",
    )


def _gradients(bias: Tensor, inputs: dict[str, Tensor]) -> dict[str, Tensor]:
    """Of a weighted sum of the bias, by name."""
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


def check_gradients(factory: Factory) -> None:
    """Every parameter gets a finite gradient, and each tensor of them somewhere not zero."""
    encoding = build(factory).train()
    if not any(True for _ in encoding.parameters()):
        return
    ids = tokens()
    out = Probe(encoding)(ids, context(ids))
    weight = torch.randn(out.shape, dtype=out.dtype, generator=torch.Generator().manual_seed(3))
    (out * weight).sum().backward()
    for name, parameter in encoding.named_parameters():
        _true(parameter.grad is not None, f"parameter {name} gets no gradient")
        assert parameter.grad is not None
        _true(bool(parameter.grad.isfinite().all()), f"the gradient of {name} is not finite")
        _true(bool((parameter.grad != 0).any()), f"the gradient of {name} is zero everywhere")


def check_prefix_stability(factory: Factory) -> None:
    """Later tokens change nothing before them."""
    encoding = build(factory)
    if not encoding.prefix_stable:
        return
    ids = tokens()
    other = ids.clone()
    other[:, 6:] = (other[:, 6:] + 1) % _VOCAB
    _close(
        _run(encoding, ids)[:, :6],
        _run(encoding, other)[:, :6],
        1e-9,
        "later tokens change earlier outputs",
    )
    if not (encoding.stochastic or encoding.needs_scale):
        short = _run(encoding, ids[:, :6])
        _close(_run(encoding, ids)[:, :6], short, 1e-9, "a longer sequence changes earlier outputs")


def check_streaming(factory: Factory) -> None:
    """Token by token, and in chunks, with a cache, it computes what the full pass does."""
    encoding = build(factory)
    if not encoding.prefix_stable:
        return
    ids = tokens()
    full = _run(encoding, ids)
    for chunks in ([1] * 10, [4, 1, 5], [9, 1]):
        _close(
            full, _stream(encoding, ids, chunks), 1e-5, f"decoding in chunks of {chunks} differs"
        )


def check_shift_invariance(factory: Factory) -> None:
    """If it claims to be relative, moving every position by the same amount changes nothing."""
    encoding = build(factory)
    ids = tokens()
    plain = _run(encoding, ids)
    for shift in (1, 7, 1000):
        if encoding.relative:
            moved = _run(encoding, ids, pos=torch.arange(ids.shape[1])[None] + shift)
            _close(
                plain, moved, 1e-5, f"it claims to be relative, but a shift by {shift} changes it"
            )


def check_long(factory: Factory) -> None:
    """Four times the training length works and is finite, or raises PositionError."""
    encoding = build(factory)
    ids = tokens(1, 4 * encoding.shape.train_len)
    try:
        out = _run(encoding, ids)
    except PositionError as error:
        _true(len(str(error)) > 10, "PositionError must say what can be represented")
        return
    _true(bool(out.isfinite().all()), "not finite at four times the training length")


def check_bfloat16(factory: Factory) -> None:
    """In bfloat16 at position 20,000 it agrees with float32 to bfloat16's precision.

    Angles, distances and table indices computed in bfloat16 would be wrong by whole positions.
    """
    low = build(factory).to(torch.bfloat16)
    high = build(factory).to(torch.bfloat16).float()
    ids, pos = tokens(), torch.arange(20_000, 20_010)[None]
    try:
        outs = [_hooks(low, ids, pos, torch.bfloat16), _hooks(high, ids, pos, torch.float32)]
    except PositionError:
        return
    for name, a, b in zip(("embed", "logits"), *outs, strict=True):
        size = b[b.isfinite()].abs().max().clamp(min=1.0)
        _true(bool((a.isfinite() == b.isfinite()).all()), f"{name}: infinite elsewhere in bfloat16")
        gap = (a.float() - b)[b.isfinite()].abs().max() / size
        _true(
            float(gap) < 0.05,
            f"{name}: off by {float(gap):.3f} of its size in bfloat16 at position 20,000",
        )


def check_deterministic(factory: Factory) -> None:
    """The same seed gives the same encoding and the same outputs."""
    ids = tokens()
    a, b = (_run(build(factory, seed=4), ids) for _ in range(2))
    _close(a, b, 0, "two runs with one seed differ: draw from ctx.generator")


def check_order(factory: Factory) -> None:
    """The last token sees in which order the earlier ones stand, unless declared order-blind."""
    encoding = build(factory)
    ids = torch.tensor([[1, 2, 3, 4, 5, 6, 7, 8, 9, 10]])
    swapped = ids[:, [0, 2, 1, 3, 8, 5, 6, 4, 7, 9]]
    one = Shape(**{**vars(SHAPE), "n_layers": 1})
    encoding = build(factory, one)
    gap = float((_run(encoding, ids)[:, -1] - _run(encoding, swapped)[:, -1]).abs().max())
    if encoding.order_blind:
        _true(gap < 1e-9, f"declared order-blind, but the order changes its output by {gap:.2g}")
    else:
        _true(gap > 1e-6, "blind to the order of tokens: set order_blind = True if that is meant")


def check_batch(factory: Factory) -> None:
    """Permuting the batch permutes the output: samples do not see each other."""
    encoding = build(factory)
    ids, order = tokens(4), torch.tensor([2, 0, 3, 1])
    _close(
        _run(encoding, ids)[order],
        _run(encoding, ids[order]),
        1e-9,
        "samples of a batch see each other",
    )


def check_parts(factory: Factory) -> None:
    """In training, a batch computed in parts (`Context.part`) gives the rows of the whole one."""
    encoding, ids = build(factory).train(), tokens(4)
    whole = _run(encoding, ids, progress=1.0)
    parts = [_run(encoding, ids[a:b], progress=1.0, part=(a, 4)) for a, b in ((0, 1), (1, 4))]
    _close(
        whole,
        torch.cat(parts),
        1e-9,
        "a batch in parts draws other numbers than the whole: draw by ctx.drawn",
    )


def check_right_padding(factory: Factory) -> None:
    """In training, padding on the right (`Context.padding`) changes nothing before it."""
    encoding, ids = build(factory).train(), tokens(2, 10)
    if not encoding.prefix_stable:
        return
    pos = torch.arange(10)[None].repeat(2, 1)
    pos[1] = (pos[1] - 2).clamp(min=-1)  # this row begins with two of padding on the left
    padded = torch.cat([ids, ids[:, :3]], 1), torch.cat([pos, pos[:, -1:].expand(-1, 3)], 1)
    scale = torch.tensor([5])
    plain = _run(encoding, ids, pos, scale=scale, progress=1.0)
    full = _run(encoding, *padded, scale=scale, progress=1.0, padding=3)[:, :10]
    message = "padding on the right changes what is before it: draw by ctx.drawn or ctx.length"
    _close(plain[0], full[0], 1e-9, message)
    _close(plain[1, 2:], full[1, 2:], 1e-9, message)


def check_left_padding(factory: Factory) -> None:
    """Padding on the left (position -1) moves nothing, in the full pass and while decoding."""
    encoding = build(factory)
    ids = tokens(2, 10)
    pos = torch.arange(10)[None].repeat(2, 1)
    padded = torch.cat([torch.zeros(2, 3, dtype=torch.long), ids], 1)
    pos = torch.cat([torch.full((2, 3), -1), pos], 1)
    padded[1], pos[1] = (
        padded[1].roll(-3),
        pos[1].roll(-3),
    )  # one row padded, one with junk after it
    pos[1, 10:] = torch.arange(10, 13)
    scale = torch.tensor([5])
    plain = _run(encoding, ids, scale=scale, total=13)
    full = _run(encoding, padded, pos, scale=scale, total=13)
    _close(plain[:1], full[:1, 3:], 1e-5, "padding on the left moves positions")
    _close(plain[1:], full[1:, :10], 1e-5, "a row without padding changes beside one with padding")
    if encoding.prefix_stable:
        chunks = _stream(encoding, padded, [2, 4, 1, 6], pos, scale=scale, total=13)
        _close(
            plain[:1], chunks[:1, 3:], 1e-5, "padding on the left moves positions while decoding"
        )


CHECKS: tuple[Check, ...] = (
    check_constructible,
    check_state_dict,
    check_shapes,
    check_bias_forms,
    check_gradients,
    check_prefix_stability,
    check_streaming,
    check_shift_invariance,
    check_long,
    check_bfloat16,
    check_deterministic,
    check_order,
    check_batch,
    check_parts,
    check_right_padding,
    check_left_padding,
)


def check_encoding(factory: Factory, *, expected_failures: Mapping[str, str] | None = None) -> None:
    """Run every check on the encodings that `factory(shape)` makes.

    expected_failures maps a check's name ("check_long") to the written reason why it fails; such a
    check must fail: once it passes, that is an error too.
    Errors: AssertionError naming the check, ValueError for an unknown check or an empty reason.
    """
    expected = dict(expected_failures or {})
    _check_reasons(expected)
    for check in CHECKS:
        run_check(check, factory, expected.get(check.__name__))


def run_check(check: Check, factory: Factory, expected: str | None = None) -> None:
    """One check, which must fail if a reason to expect that is given."""
    try:
        check(factory)
    except Exception as error:
        if expected is None:
            raise AssertionError(f"{check.__name__}: {_plain(check, error)}") from error
        return
    if expected is not None:
        raise AssertionError(
            f"{check.__name__} passes now, though it was expected to fail ({expected}): "
            f"remove the expectation"
        )


def parametrize_with_checks(
    factories: Mapping[str, Factory],
    expected_failures: Mapping[str, Mapping[str, str]] | None = None,
) -> Any:
    """A pytest decorator: the test gets `check` (a callable on a factory) and `factory`."""
    import pytest

    expected = {name: dict(reasons) for name, reasons in (expected_failures or {}).items()}
    cases = []
    for name, factory in factories.items():
        reasons = expected.pop(name, {})
        _check_reasons(reasons)
        for check in CHECKS:
            bound = _bind(check, reasons.get(check.__name__))
            cases.append(pytest.param(bound, factory, id=f"{name}-{check.__name__[6:]}"))
    if expected:
        raise ValueError(f"expected_failures names no such encoding: {', '.join(expected)}")
    return pytest.mark.parametrize(("check", "factory"), cases)


def _bind(check: Check, expected: str | None) -> Check:
    return lambda factory: run_check(check, factory, expected)


def _check_reasons(expected: Mapping[str, str]) -> None:
    known = [check.__name__ for check in CHECKS]
    for name, reason in expected.items():
        if name not in known:
            raise ValueError(f"no check is called {name!r}; known: {', '.join(known)}")
        if not reason.strip():
            raise ValueError(f"the expected failure of {name} needs a written reason")


def _plain(check: Check, error: Exception) -> str:
    if isinstance(error, AssertionError):
        return str(error)
    what = (check.__doc__ or "").splitlines()[0]
    return f"{type(error).__name__}: {error} (while checking: {what})"


def _run(encoding: Encoding, ids: Tensor, pos: Tensor | None = None, **fields: Any) -> Tensor:
    ctx = replace(context(ids, pos), **fields)
    with torch.no_grad():
        out: Tensor = Probe(encoding)(ids, ctx)
    return out


def _stream(
    encoding: Encoding, ids: Tensor, chunks: list[int], pos: Tensor | None = None, **fields: Any
) -> Tensor:
    fields = {"total": ids.shape[1], **fields}
    whole = replace(context(ids, pos), **fields)
    cache: list[Any] = [None] * encoding.shape.n_layers
    probe, outs, end = Probe(encoding), [], 0
    with torch.no_grad():
        for size in chunks:
            start, end = end, end + size
            ctx = replace(whole, pos=whole.pos[:, :end], ids=ids[:, :end], n_new=size)
            outs.append(probe(ids[:, start:end], ctx, cache))
    return torch.cat(outs, 1)


def _hooks(
    encoding: Encoding, ids: Tensor, pos: Tensor, dtype: torch.dtype
) -> tuple[Tensor, Tensor]:
    """The embedding and the first layer's logits for bfloat16 inputs, held in `dtype`."""
    shape = encoding.shape
    generator = torch.Generator().manual_seed(2)
    x = torch.randn(*ids.shape, shape.d_model, generator=generator).bfloat16().to(dtype)
    q, k = (
        torch.randn(2, ids.shape[0], shape.n_heads, ids.shape[1], shape.d_head, generator=generator)
        .bfloat16()
        .to(dtype)
        .unbind(0)
    )
    with torch.no_grad():
        ctx = encoding.prepare(context(ids, pos, x=x))
        embedded = encoding.embed(x, ctx)
        q, k = encoding.transform(q, k, ctx.at(0, x))
        bias = encoding.bias(q, k, ctx.at(0, x))
        logits = (q.float() @ k.float().mT) * shape.d_head**-0.5
        return embedded.float(), logits if bias is None else logits + bias.float()


def _true(condition: bool, message: str) -> None:
    if not condition:
        raise AssertionError(message)


def _close(a: Tensor, b: Tensor, tolerance: float, message: str) -> None:
    gap = float((a - b).abs().max())
    _true(gap <= tolerance, f"{message} (by {gap:.2g}, allowed {tolerance:.2g})")
