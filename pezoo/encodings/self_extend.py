"""Self-Extend: rope in which keys beyond a window share positions, for longer texts."""

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Unpack

import torch
from torch import Tensor

from pezoo.base import Context, Encoding, Pass, Plan, Shape, Sizes
from pezoo.encodings.rope import RoPE
from pezoo.functional import at_least_float32, for_each_head, full_precision
from pezoo.registry import register

NAMES = "on", "near", "earlier", "later", "keys"
EXTEND, NEAR, EARLIER, LATER, KEYS = (f"self_extend.{name}" for name in NAMES)


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
        group         G, a whole number
        log_n         multiplies q of position p by max(1, log(p + 1) / log(train_len)), an option
                      of the authors' code too
        window        w, in tokens; 0 is half of train_len

    Errors: those of rope; ValueError for a group below 1 and a window below 0.

    Paper: Jin et al. 2024, "LLM Maybe LongLM", and the authors' code, whose passes over
    a whole text have w / G and decoding floor(w / G): here w / G. A model trained on L tokens sees
    only distances that it knows up to (L - w) G + w tokens.
    """

    summary = "rope with shared positions beyond a window, for models trained with rope"
    paper = "Jin et al. 2024"
    reports = "a trained model reads several times longer texts without fine-tuning"
    reads = "distance, positions"
    prf_text = "i - j within the window, then by groups"

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
        if group < 1:
            raise ValueError(f"group must be at least 1, got {group}")
        if window < 0:
            raise ValueError(f"window must be at least 0, got {window}")
        self.rope = RoPE(self.shape, base=base, layout=layout, rope_parameters=rope_parameters)
        self.prefix_stable, self.reads_length = self.rope.prefix_stable, self.rope.reads_length
        self.relative = type(self).relative and self.rope.relative and not log_n
        self.group, self.window = group, window or max(1, self.shape.train_len // 2)
        self.log_n = log_n
        self.rope_within = min(self.window, self.shape.train_len) if log_n else self.window

    def coarse(self, pos: Tensor) -> Tensor:
        """Return the positions of keys beyond the window."""
        return pos // self.group

    @property
    def share(self) -> float:
        """The share of a distance beyond the window that remains."""
        return 1 / self.group

    def prf(self, ctx: Context) -> Tensor | None:
        if self.log_n:
            return None
        d, at = ctx.distance()[0], self.coarse(ctx.pos[0])
        far = at[:, None] - at + d.sign() * self.window
        return torch.where(d.abs() < self.window, d, far)

    def draw(self, ctx: Context, **plan: Unpack[Plan]) -> dict[str, Tensor]:
        return {**self.rope.draw(ctx, **plan), EXTEND: torch.tensor(not self.training)}

    def _draw(self, ctx: Context) -> dict[str, Tensor]:
        return self.draw(ctx)  # reads no tensor values, so that torch.compile can trace it

    def prepare(self, ctx: Context) -> Pass:
        ctx = super().prepare(ctx)

        def turn(pos: Tensor) -> Tensor:
            return self.rope.turn(pos[:, None, :, None].float(), ctx)

        shift = self.window * (1 - self.share)
        at = self.coarse(ctx.pos).float()
        own = {NEAR: turn(ctx.pos), KEYS: turn(at)}
        own |= {EARLIER: turn(at + shift), LATER: turn(at - shift)}
        return replace(ctx, drawn={**(ctx.drawn or {}), **own})

    def scores(self, q: Tensor, k: Tensor, ctx: Pass) -> Tensor:
        ctx.check_prepared()
        drawn, end = ctx.drawn or {}, ctx.pos.shape[1]  # `attend` may leave out later tokens
        before = end - ctx.new
        at = {name: drawn[name][:, :, :end] for name in (NEAR, EARLIER, LATER, KEYS)}
        k = at_least_float32(for_each_head(k, q))
        q = at_least_float32(q) * self.shape.d_head**-0.5
        if self.log_n:
            longest = max(2, self.shape.train_len)
            n = (ctx.query_pos + 1).clamp(min=longest)[:, None, :, None]
            q = q * (n.to(q.dtype).log() / math.log(longest))
        distance = ctx.distance()[:, None]
        with full_precision(q.device.type):
            here = {name: x[:, :, before:] for name, x in at.items()}
            near = self.rope.rotated(q, here[NEAR]) @ self.rope.rotated(k, at[NEAR]).mT
            k = self.rope.rotated(k, at[KEYS]).mT
            far = self.rope.rotated(q, here[EARLIER]) @ k
            if ctx.new > 1:  # later keys, for encoders: none lies before the new tokens
                later = self.rope.rotated(q, here[LATER]) @ k[..., before:]
                new = torch.where(distance[..., before:] > 0, far[..., before:], later)
                far = torch.cat([far[..., :before], new], -1) if before else new
        beyond = (distance.abs() >= self.window) & drawn[EXTEND].bool()
        return torch.where(beyond, far, near)
