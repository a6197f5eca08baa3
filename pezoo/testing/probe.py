"""A small model around an encoding, and helpers that run it, for the checks."""

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from pezoo import adapters
from pezoo.adapters import attention_mask
from pezoo.base import Encoding, Memo, Pass, Shape
from pezoo.functional import at_least_float32

Factory = Callable[[Shape], Encoding]
Check = Callable[[Factory], None]

SHAPE = Shape(d_model=24, n_heads=3, d_head=8, n_layers=2, train_len=16)
VOCAB = 11
_TRAINED = "original_max_position_embeddings=4"
ROTATIONS: tuple[dict[str, Any], ...] = (  # of trained models
    {"layout": "half", "base": 5e5, "rope_parameters": "default"},
    {"layout": "interleaved", "base": 5e5, "rope_parameters": "default"},
    {"layout": "half", "base": 4.0, "rope_parameters": "default"},
    {"layout": "half", "base": 5e5, "rope_parameters": f"yarn(factor=4,{_TRAINED})"},
    {"layout": "interleaved", "base": 5e5, "rope_parameters": f"dynamic(factor=2,{_TRAINED})"},
)


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
        self.table = draw(VOCAB, shape.d_model)
        self.qkv = draw(shape.n_layers, shape.d_model, 3 * size) * shape.d_model**-0.5
        self.out = draw(shape.n_layers, size, shape.d_model) * size**-0.5

    def forward(self, ids: Tensor, ctx: Pass, cache: list[Any] | None = None) -> Tensor:
        """ids (B, T) of the new tokens -> (B, T, D); a cache [None] * n_layers is filled."""
        encoding, shape = self.encoding, self.encoding.shape
        size = shape.n_heads * shape.d_head
        x = self.table[ids]
        ctx = encoding.prepare(replace(ctx, x=x, layer=0))
        x = encoding.embed(x, ctx)
        for layer in range(shape.n_layers):
            here = ctx.at(layer, x, self.qkv[layer][:, size : 2 * size].mT)
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


def context(ids: Tensor, pos: Tensor | None = None, **fields: Any) -> Pass:
    """Make a context with every field set, for ids (B, S) at positions 0..S-1 by default."""
    pos = torch.arange(ids.shape[1])[None] if pos is None else pos
    scale = torch.tensor([max(1, ids.shape[1] // 2)], device=ids.device)
    told = {"scale": scale, "task_prf": task_prf, "w_key": key_weight().to(ids.device)}
    told["slots"] = slots(ids, pos)
    return Pass(pos=pos, ids=ids, **{**told, **fields})


def slots(ids: Tensor, pos: Tensor) -> Tensor:
    """Return what a task supplies for each token, (B, S): 0..4, and -1 at padding."""
    return torch.where(pos < 0, -1, (2 * ids + pos) % 5)


def task_prf(i: Tensor, j: Tensor, n: Tensor | None) -> Tensor:
    """Return a task's PRF: 1 for the key n before the query, or at half its position."""
    return torch.eq(j, i // 2 if n is None else i - n).long()


def key_weight(shape: Shape = SHAPE) -> Tensor:
    """Return the weight (H K, D) of a projection to keys."""
    size = shape.n_heads * shape.d_head
    weight = torch.arange(size * shape.d_model).float().sin().view(size, shape.d_model)
    return weight / math.sqrt(shape.d_model)


def draws() -> torch.Generator:
    """Return a generator for `Encoding.draw`, with the same seed each time."""
    return torch.Generator().manual_seed(5)


def tokens(batch: int = 3, length: int = 10, seed: int = 0) -> Tensor:
    """Return (batch, length) random ids."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(VOCAB, (batch, length), generator=generator)


def build(factory: Factory, shape: Shape = SHAPE, seed: int = 0, noise: float = 0.1) -> Encoding:
    """Build the encoding in evaluation mode, with noise added to every parameter.

    A parameter that starts at zero would hide its effect from the checks.
    """
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        encoding = factory(shape)
        with torch.no_grad():
            for parameter in encoding.parameters():
                parameter.add_(noise * torch.randn_like(parameter))
    return encoding.eval()


def run(
    encoding: Encoding,
    ids: Tensor,
    pos: Tensor | None = None,
    *,
    length: int | None = None,
    dtype: torch.dtype = torch.float64,
    **fields: Any,
) -> Tensor:
    """Run the probe on ids (B, T) -> (B, T, D); `fields` are fields of the Context."""
    ctx = context(ids, pos, **fields)
    if ctx.drawn is None:
        ctx = replace(ctx, drawn=encoding.draw(ctx, generator=draws(), length=length))
    with torch.no_grad():
        out: Tensor = Probe(encoding, dtype)(ids, ctx)
    return out


class Decoding:
    """Decodes ids (B, S) at pos (B|1, S) with a cache, whose rows and tokens can be changed."""

    def __init__(
        self,
        encoding: Encoding,
        ids: Tensor,
        pos: Tensor | None = None,
        *,
        length: int | None = None,
        **fields: Any,
    ) -> None:
        self.whole, self.length = context(ids, pos, **fields), length or ids.shape[1]
        self.encoding, self.ids, self.generator, self.end = encoding, ids, draws(), 0
        self.cache: list[Any] = [None] * encoding.shape.n_layers

    def feed(self, new: int) -> Tensor:
        """Run the probe on the next tokens -> (B, new, D)."""
        start, self.end = self.end, self.end + new
        ids, pos = self.ids[:, : self.end], self.whole.pos[:, : self.end]
        coords = None if self.whole.coords is None else self.whole.coords[:, : self.end]
        ctx = replace(self.whole, pos=pos, ids=ids, coords=coords, n_new=new)
        ctx = replace(ctx, slots=slots(ids, pos))
        drawn = self.encoding.draw(ctx, generator=self.generator, length=self.length)
        ctx = replace(ctx, drawn=drawn)
        with torch.no_grad():
            out: Tensor = Probe(self.encoding)(ids[:, start:], ctx, self.cache)
        return out

    def reorder(self, rows: Tensor) -> None:
        """Reorder rows, and continue with other tokens."""
        self.whole.memo.reorder(rows)
        self._keep(rows)

    def crop(self, length: int) -> None:
        """Crop tokens, and continue with other ones."""
        self.whole.memo.crop(length)
        self.end = length if length >= 0 else self.end + length
        self._keep(torch.arange(len(self.ids)))

    def _keep(self, rows: Tensor) -> None:
        self.cache = [tuple(x[rows, :, : self.end] for x in layer) for layer in self.cache]
        pos = self.whole.pos if len(self.whole.pos) == 1 else self.whole.pos[rows]
        self.whole = replace(self.whole, pos=pos)
        later = self.ids[:1, self.end :] + torch.arange(1, len(rows) + 1)[:, None]
        self.ids = torch.cat([self.ids[rows, : self.end], later % VOCAB], 1)


def decodes(
    encoding: Encoding,
    ids: Tensor,
    chunks: Iterable[list[int]],
    when: str = "",
    *,
    between: Callable[[], object] = lambda: None,
    **given: Any,
) -> None:
    """Check that decoding in chunks equals a full pass, with `between` called after each chunk."""
    if not encoding.prefix_stable:
        return
    full = run(encoding, ids, **given)
    pos = given.get("pos")
    real = 1 if pos is None else (pos >= 0)[..., None]
    for sizes in chunks:
        decoding, parts = Decoding(encoding, ids, **given), []
        for size in sizes:
            parts.append(decoding.feed(size))
            between()
        message = f"decoding in chunks of {sizes} differs from a full pass{when}"
        close(full * real, torch.cat(parts, 1) * real, 1e-5, message)


class Inputs(NamedTuple):
    """Inputs of one layer: x (B, T, D), q and k (B, H, T, K)."""

    x: Tensor
    q: Tensor
    k: Tensor


def inputs(encoding: Encoding, batch: int, length: int, dtype: torch.dtype) -> Inputs:
    """Return random inputs that bfloat16 can represent, the same each time."""
    shape, generator = encoding.shape, torch.Generator().manual_seed(2)
    size = 2, batch, shape.n_heads, length, shape.d_head
    x = torch.randn(batch, length, shape.d_model, generator=generator, dtype=torch.float32)
    q, k = torch.randn(size, generator=generator, dtype=torch.float32)
    return Inputs(*(y.bfloat16().to(dtype) for y in (x, q, k)))


def same_tokens(encoding: Encoding, length: int, dtype: torch.dtype) -> Inputs:
    """Return inputs (1, length) that are the same for every token."""
    x, q, k = inputs(encoding, 1, 1, dtype)
    return Inputs(x.expand(1, length, -1), *(y.expand(-1, -1, length, -1) for y in (q, k)))


def walk(
    encoding: Encoding, ctx: Pass, given: Inputs, layers: int = 1
) -> Iterator[tuple[str, Any, Pass]]:
    """Call the hooks in the order of a model, and yield the name, result and context of each."""
    x, q, k = given
    ctx = encoding.prepare(replace(ctx, x=x))
    yield "prepare", ctx, ctx
    x = encoding.embed(x, ctx)
    yield "embed", x, ctx
    for layer in range(layers):
        here = ctx.at(layer, x, key_weight(encoding.shape).to(x))
        wide = encoding.transform(q, k, here)
        yield "transform", wide, here
        scores = encoding.scores(*wide, here)
        yield "scores", scores, here
        bias = encoding.bias(*wide, here)
        yield "bias", bias, here
        logits = logits_of(encoding, *wide, scores, bias)
        masked = logits.masked_fill(~attention_mask(here), -torch.inf)
        yield "weights", encoding.weights(masked, here), here


def logits_of(
    encoding: Encoding, q: Tensor, k: Tensor, scores: Tensor | None, bias: Tensor | None
) -> Tensor:
    """Return the logits (B, H, T, S) before the mask, float32 at least."""
    q, k = (at_least_float32(x) for x in (q, k.repeat_interleave(q.shape[1] // k.shape[1], 1)))
    logits = (q @ k.mT) * encoding.shape.d_head**-0.5 if scores is None else scores
    if bias is None:
        return logits
    broadcasts(tuple(bias.shape), tuple(logits.shape))
    return logits + bias


def broadcasts(shape: tuple[int, ...], size: tuple[int, ...]) -> None:
    """Check that a bias of this shape broadcasts to that of the logits, (B, H, T, S)."""
    t, s = size[-2:]
    hint = "" if t == s else f": the last {t} tokens read all {s}, see ctx.with_earlier"
    aligned = zip(reversed(shape), reversed(size), strict=False)
    require(
        len(shape) <= 4 and all(n in (1, m) for n, m in aligned),
        f"bias: expected a shape that broadcasts to (B, H, T, S) = {size}, got {shape}{hint}",
    )


@dataclass
class Layer:
    """Results of the hooks for one layer; ctx as it was before `scores`."""

    ctx: Pass
    embedded: Tensor
    q: Tensor
    k: Tensor
    bias: Tensor | None
    logits: Tensor  # (B, H, T, S)


def one_layer(
    encoding: Encoding, ctx: Pass, given: Inputs, n_new: int = 0, layer: int = 0
) -> Layer:
    """Run a layer; with n_new, the first, on its last n_new tokens after a pass over the others."""
    s, generator = given.x.shape[1], draws()
    ends, start, earlier = ([s - n_new, s] if n_new else [s]), 0, given.k
    for end in ends:
        part = Inputs(given.x[:, start:end], given.q[:, :, start:end], given.k[:, :, start:end])
        ids = None if ctx.ids is None else ctx.ids[:, :end]
        slots = None if ctx.slots is None else ctx.slots[:, :end]
        here = replace(ctx, pos=ctx.pos[:, :end], ids=ids, slots=slots, n_new=end - start)
        if n_new:
            here = replace(here, drawn=encoding.draw(here, generator=generator, length=s))
        steps = islice(walk(encoding, here, part, layer + 1), 3 + 4 * layer)
        _, (_, embedded, _), *_, (_, (q, k), here) = steps
        share = q.shape[1] // max(1, k.shape[1])
        require(
            share * k.shape[1] == q.shape[1] == encoding.shape.n_heads,
            f"transform returned {q.shape[1]} heads of q and {k.shape[1]} of k: return k with as "
            "many heads as it had, or as many as q",
        )
        k = k.repeat_interleave(share, 1)
        k = torch.cat([earlier, k], 2) if start else k
        before, scores = alone(here), encoding.scores(q, k, here)
        bias = encoding.bias(q, k, here)
        logits = logits_of(encoding, q, k, scores, bias)
        encoding.weights(logits.masked_fill(~attention_mask(here), -torch.inf), here)
        found = Layer(before, embedded, q, k, bias, logits)
        start, earlier = end, k
    return found


def alone(ctx: Pass) -> Pass:
    """Return the context with a copy of its memo, so that calls do not affect each other."""
    return replace(ctx, memo=Memo(ctx.memo))


def require(condition: bool, message: str) -> None:
    """Raise AssertionError with the message unless the condition holds."""
    if not condition:
        raise AssertionError(message)


def finite(out: Tensor, where: str) -> None:
    """Raise AssertionError if the output of a pass has an infinite value or NaN."""
    require(bool(out.isfinite().all()), f"the output is not finite {where}")


def close(a: Tensor, b: Tensor, tolerance: float, message: str) -> None:
    """Raise AssertionError if two numbers differ by more than the tolerance."""
    gap = float((a - b).abs().max())
    require(not math.isnan(gap), f"NaN or infinite values: {message}")
    require(gap <= tolerance, f"{message} (by {gap:.2g}, allowed {tolerance:.2g})")
