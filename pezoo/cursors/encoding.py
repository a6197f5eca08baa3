"""The base class of encodings with learned cursors."""

import math
from inspect import Signature, signature
from typing import Any, ClassVar, Unpack

import torch
from einops import rearrange
from torch import Tensor, nn

from pezoo.base import Context, Encoding, ParamGroup, Pass, Plan, Shape
from pezoo.compiling import untraced
from pezoo.cursors.layer import DOCUMENTS, CursorLayer, by_document, documents, tokens_first
from pezoo.cursors.memory import Memory
from pezoo.cursors.options import CursorOptions
from pezoo.cursors.positions import Scan, scaled
from pezoo.functional import at_least_float32, for_each_head, full_precision


class CursorEncoding(Encoding):
    """Add the scores of position streams to those of content (Algorithms 3 and 4, Equation 9).

        scaling  s_t = sqrt(d_pe) / |e_t|, over the C cursors of a head          (Algorithm 3)
        score    mu q k / sqrt(K) + (1-mu) sum_c |alpha_c| <e_q, e_k> / sqrt(C d_pe)    (Eq. 9)

    Shapes: ctx.x (B, T, D); q, k (B, H, T, K) -> (B, H, T, K + C d_pe), so that the score is one
    inner product. The first layer of cursors reads the token embeddings; any further one reads the
    normalised input of the model's layer that it precedes. Streams are at least float32. With
    top_weight, each pair has a learned weight for the highest frequency; with lead, a learned
    number is added to the query cursor's position before it is compared with the key's.
    """

    modes = ("snapped",)
    relative = True
    Options: ClassVar[type[CursorOptions]] = CursorOptions  # a class without __init__ takes these
    options: CursorOptions

    def __init_subclass__(cls, **kwargs: Any) -> None:
        """Give the class the fields of `Options` as keywords, for help() and the registry."""
        super().__init_subclass__(**kwargs)
        shape, sizes = signature(Encoding).parameters.values()
        fields = signature(cls.Options, eval_str=True).parameters.values()
        own = "__init__" in vars(cls)
        cls.__signature__ = None if own else Signature([shape, *fields, sizes])  # type: ignore[attr-defined]

    def __init__(self, shape: Shape | None = None, **options: Any) -> None:
        known = signature(self.Options).parameters
        sizes: Any = {name: value for name, value in options.items() if name not in known}
        super().__init__(shape, **sizes)
        shape = self.shape
        own = self.Options(**{k: v for k, v in options.items() if k in known}).sized(shape)
        self.options = own
        self.starts = _starts(own.before, shape.n_layers)
        ends = [*self.starts[1:], shape.n_layers]
        self.layers = nn.ModuleList(
            CursorLayer(
                shape, (end - start) * shape.n_heads, own, self.scan, key=f"cursors.{group}"
            )
            for group, (start, end) in enumerate(zip(self.starts, ends, strict=True))
        )
        self.norms = nn.ModuleList(nn.LayerNorm(shape.d_model) for _ in self.starts[1:])
        sizes = shape.n_layers, shape.n_heads, own.cursors
        self.alpha = nn.Parameter(torch.full(sizes, own.alpha))
        self.mu = nn.Parameter(torch.full((shape.n_layers, shape.n_heads), own.mu))
        weight = torch.full(sizes, own.top_weight) if own.top_weight else None
        self.top_weight = None if weight is None else nn.Parameter(weight)
        self.lead = nn.Parameter(torch.zeros(sizes)) if own.lead else None

    def scan(self, cursors: int) -> Scan:
        """Return the recurrence of the positions of `cursors` cursors."""
        raise NotImplementedError

    def draw(self, ctx: Context, **plan: Unpack[Plan]) -> dict[str, Tensor]:
        """Draw the cursors' noise, and with padding the order of the new tokens."""
        memory, earlier = self.memory(0, ctx), ctx.pos.shape[1] - ctx.new
        marks = memory.crop(earlier).marks if earlier else ()
        read = marks[-1].length if marks else 0
        drawn = super().draw(ctx) | documents(ctx, read)
        if len(ctx.pos) > 1 or bool((ctx.pos < 0).any()):
            drawn |= tokens_first(ctx.query_pos)
        progress = plan.get("progress")
        ramp = 1.0 if progress is None else min(1.0, 2 * progress)
        for layer in self._cursor_layers():
            drawn |= layer.noise((ctx.batch, ctx.new), ramp, plan.get("generator"))
        return drawn

    def prepare(self, ctx: Context) -> Pass:
        x = ctx.x_for(self.name)
        if torch.compiler.is_exporting():
            raise ValueError(
                f"{self.name} does not support torch.export, because its kernels cannot be "
                "traced; torch.compile works"
            )
        prepared = super().prepare(ctx)
        self._read(0, x, prepared)
        return prepared

    def transform(self, q: Tensor, k: Tensor, ctx: Pass) -> tuple[Tensor, Tensor]:
        ctx.check_prepared()
        group = self.group_of(ctx.layer)
        if group and ctx.layer == self.starts[group]:
            assert ctx.x is not None
            self._read(group, self.norms[group - 1](ctx.x), ctx)
        streams = self.memory(group, ctx).streams
        if not streams:
            raise ValueError(
                f"{self.name} computes its streams before layer {self.starts[group]}, which has "
                f"not run: call the layers in order"
            )
        e_q, e_k = streams[ctx.layer - self.starts[group]]
        mu = at_least_float32(self.mu[ctx.layer]).sigmoid()[:, None, None]  # (H, 1, 1)
        # With grouped-query attention, each query head gets its own keys: their streams differ.
        k = for_each_head(k, q)
        q = torch.cat([q * mu.to(q.dtype), e_q.transpose(1, 2).to(q.dtype)], -1)
        return q, torch.cat([k, e_k.transpose(1, 2).to(k.dtype)], -1)

    def param_groups(self) -> list[ParamGroup]:
        own = [p for p in (self.alpha, self.top_weight, self.lead) if p is not None]
        return [ParamGroup(own, lr=0.03, betas=(0.8, 0.92), weight_decay=0.0)]

    def penalty(self) -> Tensor | None:
        """Return orthogonal |W W' - 1|^2 over the controllers' hidden-to-hidden blocks W."""
        found = [layer.controller.recurrent_blocks() for layer in self._cursor_layers()]
        blocks = [block for block in found if block is not None]
        if not self.options.orthogonal or not blocks:
            return None
        w = torch.cat(blocks)
        eye = torch.eye(w.shape[-1], device=w.device, dtype=w.dtype)
        return (w @ w.mT - eye).square().sum() * self.options.orthogonal

    def _cursor_layers(self) -> list[CursorLayer]:
        return [layer for layer in self.layers if isinstance(layer, CursorLayer)]

    def _read(self, group: int, x: Tensor, ctx: Pass) -> None:
        """Call `_run` outside torch.compile, which cannot trace its kernels."""
        run = untraced(self._run) if torch.compiler.is_compiling() else self._run
        run(group, x, ctx)

    def _run(self, group: int, x: Tensor, ctx: Pass) -> None:
        """Run one layer of cursors, and put the scaled streams of its layers into the memo."""
        memory = self.memory(group, ctx).before(x, ctx.pos.shape[1] - ctx.new, self.name)
        read, past = memory.marks[-1] if memory.marks else (0, None)
        with full_precision(x.device.type):  # rounded gates would add up
            x = memory.joined(x.to(self.alpha.dtype))
            if DOCUMENTS in (ctx.drawn or {}):
                e, past = by_document(self._cursor_layers()[group], x, ctx)
            else:
                e, past = self.layers[group](x[:, read:], ctx, past)
        e = e if e.shape[1] == ctx.new else e[:, -ctx.new :]  # whose gradient is a copy
        e = rearrange(e, "b t (g c) d -> b t g c d", c=self.options.cursors)
        e = scaled(e, self._coefficients(group))
        # Unbound where tokens come first, so that gradients are stacked in memory order.
        heads = "b t (role layer h) c d -> b t role layer h (c d)"  # the queries' come first
        queries, keys = rearrange(e, heads, role=2, h=self.shape.n_heads).unbind(2)
        queries = self._compared(queries, group)
        streams = tuple(zip(queries.unbind(2), keys.unbind(2), strict=True))
        ctx.memo[f"{self.name}.{group}"] = memory.after(x, past, streams)

    def memory(self, group: int, ctx: Context) -> Memory:
        """Return the state of a layer of cursors in ctx.memo."""
        found: Memory = ctx.memo.get(f"{self.name}.{group}", Memory())
        return found

    def _coefficients(self, group: int) -> Tensor:
        """Return (G, C): (1 - mu) |alpha_c| sqrt(K / (C d_pe)) for queries, 1 for keys (Eq. 9)."""
        own = _slice(self.served(group))
        alpha = at_least_float32(self.alpha[own]).abs()
        gate = 1 - at_least_float32(self.mu[own]).sigmoid()
        size = math.sqrt(self.shape.d_head / (alpha.shape[-1] * self.options.width))
        queries = (alpha * gate[..., None] * size).flatten(0, 1)
        return torch.cat([queries, torch.ones_like(queries)])

    def _compared(self, queries: Tensor, group: int) -> Tensor:
        """Apply top_weight and lead to queries' streams (B, T, layers, H, C d_pe)."""
        if self.top_weight is None and self.lead is None:
            return queries
        own, weights = _slice(self.served(group)), None
        w = self.options.frequencies(queries.device)
        if self.top_weight is not None:  # (layers, H, C, d_pe/2), as cos and sin below
            top = at_least_float32(self.top_weight[own])[..., None]
            weights = torch.where(torch.arange(len(w), device=w.device) == w.argmax(), top, 1.0)
        if self.lead is None:
            assert weights is not None
            return queries * torch.cat([weights, weights], -1).flatten(-2)
        angle = at_least_float32(self.lead[own])[..., None] * w
        cos, sin = (f if weights is None else f * weights for f in (angle.cos(), angle.sin()))
        cos, sin = torch.stack([cos, cos], -2), torch.stack([-sin, sin], -2)
        e = rearrange(queries, "... (c two f) -> ... c two f", two=2, f=len(w))
        return torch.addcmul(e * cos, e.flip(-2), sin).flatten(-3)

    def group_of(self, layer: int) -> int:
        """Return the layer of cursors that serves a layer of the model."""
        return max(i for i, start in enumerate(self.starts) if start <= layer)

    def served(self, group: int) -> range:
        """Return the layers of the model that a layer of cursors serves."""
        return range(*[*self.starts, self.shape.n_layers][group : group + 2])


def _slice(layers: range) -> slice:
    return slice(layers.start, layers.stop)


def _starts(before: Any, n_layers: int) -> list[int]:
    """ "0+3" -> [0, 3]. Errors: ValueError."""
    parts = str(before).split("+")
    starts = [int(part) for part in parts if part.isdecimal()]
    if len(starts) < len(parts) or starts[0] != 0 or starts != sorted(set(starts)):
        raise ValueError(
            f"before must begin with layer 0 and rise, such as '0' or '0+3', got {before!r}"
        )
    if starts[-1] >= n_layers:
        raise ValueError(f"before={before} needs {starts[-1] + 1} layers, the model has {n_layers}")
    return starts
