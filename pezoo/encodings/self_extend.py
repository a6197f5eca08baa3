"""Self-Extend: rope in which keys beyond a window share positions, for longer texts."""

import math
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import partial
from typing import Any, Unpack

import torch
from torch import Tensor

from pezoo.base import Context, Encoding, Pass, Plan, Shape, Sizes, Way
from pezoo.encodings.rope import RoPE
from pezoo.functional import at_least_float32, for_each_head, full_precision
from pezoo.registry import register

EXTEND, LENGTH, QUERIES, KEYS = (f"self_extend.{x}" for x in ("on", "length", "q", "k"))


@register("self_extend")
class SelfExtend(Encoding):
    """Rotate q and k as rope does, with coarser positions for keys beyond a window.

    Formula: q_i and k_j meet as in rope at the distance i - j where |i - j| is below the window w,
    else at floor(i / G) - floor(j / G) + w - w / G, or - w + w / G for later keys, which encoders
    see. In training they meet as in rope everywhere.

    Example: w = 4, G = 2: keys 0..4 tokens back of token 9 are at 0, 1, 2, 3, 4; those 5..9 back at
    4, 5, 5, 6, 6.

    Shapes: q, k (B, H, T, K) -> scores (B, H, T, S), float32 at least. Keys are cached as they
    came. Angles are float32.

    Options
        base, layout, rope_parameters  as in rope
        group         G, a whole number; 0 is the smallest that reaches the text, the planned one
                      (Plan) or the row's last position: texts of train_len tokens stay as they
                      are, but later tokens change earlier values, as with factor=auto
        log_n         multiplies q of position p by max(1, log(p + 1) / log(train_len)), an option
                      of the authors' code too
        window        w, in tokens; 0 is half of train_len

    Errors: those of rope; ValueError for a group or a window below 0. UserWarning for a text of
    more than (L - w) G + w tokens: a model trained on L sees distances that it does not know.

    Paper: Jin et al. 2024, "LLM Maybe LongLM", and the authors' code, whose passes over
    a whole text have w / G and decoding floor(w / G): here w / G.
    """

    summary = "rope with shared positions beyond a window, for models trained with rope"
    paper = "Jin et al. 2024"
    reports = "a trained model reads several times longer texts without fine-tuning"
    reads = "distance, positions"
    prf_text = "i - j within the window, then by groups"
    endless = "group=0 and window=0"  # the options with which no text is too long

    def __init__(
        self,
        shape: Shape | None = None,
        *,
        base: float = 10_000.0,
        layout: str = "interleaved",
        rope_parameters: Mapping[str, Any] | str = "default",
        group: int = 8,
        log_n: bool = False,
        window: int = 0,
        **sizes: Unpack[Sizes],
    ) -> None:
        super().__init__(shape, **sizes)
        for name, given in (("group", group), ("window", window)):
            if given < 0:
                raise ValueError(f"{name} must be at least 0, got {given}")
        self.rope = RoPE(self.shape, base=base, layout=layout, rope_parameters=rope_parameters)
        self.reads_length = self.rope.reads_length or not group
        self.prefix_stable = not self.reads_length
        self.relative = type(self).relative and self.rope.relative and not log_n
        trained = self.shape.train_len
        self.group, self.window = group, window or max(1, trained // 2)
        self.last = self.window  # the longest distance that is not divided
        self.log_n = log_n
        self.rope_within = self.window if group else max(self.window, trained)
        self.rope_within = min(self.rope_within, trained) if log_n else self.rope_within

    def coarse(self, pos: Tensor, group: Tensor) -> Tensor:
        """Return the positions of keys beyond the window, at group (B|1, 1)."""
        return pos // group

    def share(self, group: Any) -> Any:
        """Return the share of a distance beyond the window that remains."""
        return 1 / group

    def groups(self, ctx: Context) -> Tensor:
        """Return G, (B|1, 1) int64."""
        if self.group:
            return ctx.pos.new_full((1, 1), self.group)
        n = ctx.pos.amax(1, keepdim=True) + 1
        if isinstance(ctx, Pass) and LENGTH in (drawn := ctx.drawn or {}):
            n = n.maximum(drawn[LENGTH].to(n.device))
        known = max(1, self.shape.train_len - self.window)
        return ((n - self.window + known - 1) // known).clamp(min=1)

    @property
    def reach(self) -> float:
        """The tokens of a text up to which a model trained on train_len knows every distance."""
        trained, share = self.shape.train_len, self.share(self.group) if self.group else 0.0
        if self.last >= trained:
            return trained
        return float(self.window + (trained - self.window) / share) if share else math.inf

    def _check_reach(self, ctx: Context) -> None:
        if ctx.pos.shape[1] > self.reach and ctx.ask(ctx.pos.max()) >= self.reach:
            warnings.warn(
                f"{self.name} with {self.further} reads {int(self.reach)} tokens with a model "
                f"trained on {self.shape.train_len}: a longer text has distances that it never "
                f"saw. {self.endless} reads any text",
                stacklevel=3,
            )

    @property
    def further(self) -> str:
        """The option by which it reads further, as it is."""
        return f"group={self.group}"

    def prf(self, ctx: Context) -> Tensor | None:
        if self.log_n:
            return None
        d, at = ctx.distance()[0], self.coarse(ctx.pos, self.groups(ctx))[0]
        far = at[:, None] - at + d.sign() * self.window
        return torch.where(d.abs() < self.window, d, far)

    def draw(self, ctx: Context, **plan: Unpack[Plan]) -> dict[str, Tensor]:
        drawn, planned = self.rope.draw(ctx, **plan), plan.get("length")
        if not self.group and planned:
            drawn[LENGTH] = torch.tensor(planned, device="cpu")
        if not (self.training or torch.compiler.is_compiling()):
            self._check_reach(ctx)
        return {**drawn, EXTEND: torch.tensor(not self.training)}

    def _draw(self, ctx: Context) -> dict[str, Tensor]:
        return self.draw(ctx)  # reads no tensor values in torch.compile, which can trace it

    def meetings(self, ctx: Pass) -> list[tuple[Tensor, Tensor]]:
        """Return the ways to meet: positions (B|1, S) as queries and as keys. The first is rope's.

        Those of a cached token as a query are not used.
        """
        group = self.groups(ctx)
        at, shift = self.coarse(ctx.pos, group), self.window * (1 - self.share(group.float()))
        found = [(ctx.pos, ctx.pos), (at + shift, at), (at - shift, at)]
        return found[: 2 if ctx.new == 1 else 3]  # a single new token sees no later keys

    def way(self, i: Tensor, j: Tensor) -> Tensor:
        """Return which of `meetings` a query at i and a key at j have; any shapes."""
        d = i - j
        return (d.abs() >= self.window) * (1 + (d < 0).long())  # 2: later keys, for encoders

    def prepare(self, ctx: Context) -> Pass:
        ctx = super().prepare(ctx)
        drawn = dict(ctx.drawn or {})
        before = None
        for n, (queries, keys) in enumerate(self.meetings(ctx)):
            drawn[f"{QUERIES}{n}"] = self.rope.turn(queries[:, None, :, None].float(), ctx)
            if keys is not before:
                drawn[f"{KEYS}{n}"] = self.rope.turn(keys[:, None, :, None].float(), ctx)
            before = keys
        return replace(ctx, drawn=drawn)

    def ways(self, q: Tensor, k: Tensor, ctx: Pass) -> Iterator[Way]:
        ctx.check_prepared()
        drawn, end = ctx.drawn or {}, ctx.pos.shape[1]  # `attend` may leave out later tokens
        k = at_least_float32(for_each_head(k, q))
        q = at_least_float32(q) * self.shape.d_head**-0.5
        if self.log_n:
            longest = max(2, self.shape.train_len)
            n = (ctx.query_pos + 1).clamp(min=longest)[:, None, :, None]
            q = q * (n.to(q.dtype).log() / math.log(longest))
        keys, on = k, drawn[EXTEND]
        for one in range(sum(name.startswith(QUERIES) for name in drawn)):
            if f"{KEYS}{one}" in drawn:  # else those of the way before
                keys = self.rope.rotated(k, drawn[f"{KEYS}{one}"][:, :, :end])
            here = drawn[f"{QUERIES}{one}"][:, :, end - ctx.new : end]
            meets = partial(lambda n, i, j: self.way(i, j) * on == n, one)
            yield Way(self.rope.rotated(q, here), keys, meets)

    def scores(self, q: Tensor, k: Tensor, ctx: Pass) -> Tensor:
        i, j = ctx.query_pos[:, None, :, None], ctx.pos[:, None, None]
        found = q.new_zeros(())
        with full_precision(q.device.type):
            for one, way in enumerate(self.ways(q, k, ctx)):
                met = way.q @ way.k.mT
                found = torch.where(way.meets(i, j), met, found) if one else met
        return found
