"""Rotary position embedding."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Unpack

import torch
from einops import rearrange
from torch import Tensor

from pezoo import rope_scaling
from pezoo.base import Context, Encoding, Pass, Plan, Shape, Sizes
from pezoo.functional import at_least_float32, inverse_frequencies
from pezoo.registry import register
from pezoo.spec import choice

LAYOUTS = {"interleaved": "m two", "half": "two m"}
TURN, ROTATION, LENGTH = "rope.turn", "rope.rotation", "rope.length"


@register("rope")
class RoPE(Encoding):
    """Rotate pairs of q and k by angles proportional to their position.

    Formula: pair m of position p turns by p w_m, w_m = base^(-2m/K), so that q_i k_j depends on
    i - j alone.

    Example: K = 2, w_0 = 1: q = (1, 0) at position p becomes (cos p, sin p).

    Shapes: q, k (B, H, T, K) -> the same, float32 at least. Angles are float32: at position p they
    are off by up to 3e-8 p radians, .03 at a million. From 2^24 = 16,777,216 on float32 cannot tell
    neighbours apart, and nothing is raised.

    Options
        base      of the frequencies
        layout    "interleaved" pairs (2m, 2m+1), as in the paper, "half" pairs (m, m + K/2), as in
                  most released language models. The two differ by a permutation of K.
        rope_parameters  changes the frequencies w_m: the dictionary of a config of transformers, or
                  a text such as "yarn(factor=4)". Its rope_type is "default", "linear", "ntk",
                  "dynamic", "yarn", "llama3", "longrope", "proportional" (p-RoPE), "clipped",
                  "high_frequency" (HoPE, the name `hope`), "in_distribution" (RoPE-ID) or "riflex",
                  functions of pezoo.rope_scaling with formulas and options. Its rope_theta replaces
                  base, and original_max_position_embeddings is train_len by default.
        drop      DroPE: positions are dropped once this share of the training is done, so that the
                  rest recalibrates the model without them; evaluation is always without. For a
                  model that is already trained, use the encoding `nope`.
    "dynamic", "longrope" and every type with factor=auto depend on the length of the text, the
    planned one (Plan) or one more than the row's last position: without a plan later tokens change
    earlier values, and keys must not be cached.

    Errors: ValueError for an odd K, an unknown layout or rope_type, missing or unknown options of
    the rope_type, drop outside (0, 1], and training with drop but without Plan.progress.

    Paper: Su et al. 2021, "RoFormer", Equation 15. DroPE: Gelberg et al. 2025; there the dropped
    phase has a learning rate schedule of its own. transformers recomputes the frequencies of
    "dynamic" from the longest text of the batch and leaves cached keys as they are; here each row
    has its own length, and nothing is cached.
    """

    summary = "rotates pairs of q and k by their position"
    paper = "Su et al. 2021"
    reports = "converges faster than sinusoidal positions"
    reads = "distance"
    prf_text = "i - j"
    also = (("hope", "rope(rope_parameters=high_frequency)"),)
    relative = True
    rope_within: int | None = 2**24  # where float32 no longer holds every position

    def __init__(
        self,
        shape: Shape | None = None,
        *,
        base: float = 10_000.0,
        layout: str = "interleaved",
        rope_parameters: Mapping[str, Any] | str = "default",
        drop: float = 1.0,
        **sizes: Unpack[Sizes],
    ) -> None:
        super().__init__(shape, **sizes)
        shape = self.shape
        if shape.d_head % 2:
            raise ValueError(f"rope needs an even d_head, got {shape.d_head}")
        choice("layout", layout, LAYOUTS)
        if not 0 < drop <= 1:
            raise ValueError(f"drop must be above 0 and at most 1, got {drop}")
        options = {"rope_theta": base, **rope_scaling.read(rope_parameters)}
        self.base, self.pairs, self.drop = options["rope_theta"], LAYOUTS[layout], drop
        self.scaled = rope_scaling.choose(options, shape)
        self.reads_length = rope_scaling.reads_length(options)
        self.frequencies(Context(pos=torch.zeros(1, 1, dtype=torch.long)))  # raise its errors now
        self.prefix_stable = self.relative = not self.reads_length
        self.order_blind = drop < 1
        if self.order_blind:
            self.rope_within = 0

    def draw(self, ctx: Context, **plan: Unpack[Plan]) -> dict[str, Tensor]:
        drawn, planned = super().draw(ctx), plan.get("length")
        if self.reads_length and planned:
            drawn[LENGTH] = torch.tensor(planned, device="cpu")
        if self.drop < 1:
            progress = plan.get("progress")
            if self.training and progress is None:
                raise ValueError(
                    f"rope(drop={self.drop}) needs the progress of training: pass progress=... to "
                    "draw, or set model.base_model.progress in transformers, where "
                    "EncodingTrainer does; after eval() it has no positions"
                )
            turns = float(progress is not None and progress < self.drop)
            drawn[TURN] = torch.tensor(turns, device="cpu")  # also where a model is built on meta
        return drawn

    def _draw(self, ctx: Context) -> dict[str, Tensor]:
        return self.draw(ctx)  # reads no tensor values, so that torch.compile can trace it

    def prf(self, ctx: Context) -> Tensor:
        distance = ctx.distance()[0]
        return distance if self.drop == 1 else torch.zeros_like(distance)

    def frequencies(self, ctx: Context) -> rope_scaling.Scaled:
        """Return w (K/2,), or (B|1, K/2) if it depends on the row, and the attention factor.

        The factor is a number, or (B|1,) if it depends on the row.
        """
        w = inverse_frequencies(self.shape.d_head, self.base, ctx.pos.device)
        if self.reads_length:
            length = ctx.pos.amax(1) + 1
            if isinstance(ctx, Pass) and LENGTH in (drawn := ctx.drawn or {}):
                length = length.maximum(drawn[LENGTH].to(w.device))
            return self.scaled(w, length=length)
        return self.scaled(w)

    def fixed_frequencies(
        self, reader: str, device: torch.device | None = None
    ) -> tuple[Tensor, float]:
        """Return w (K/2,) and the attention factor. Errors: ValueError if they read the length."""
        if self.reads_length:
            raise ValueError(f"{reader} needs frequencies that do not depend on the text's length")
        one = Context(pos=torch.zeros(1, 1, dtype=torch.long, device=device))
        w, factor = self.frequencies(one)
        return w, float(factor)

    def prepare(self, ctx: Context) -> Pass:
        ctx = super().prepare(ctx)
        drawn = dict(ctx.drawn or {})
        turn = self.turn(self.turned_by(ctx), ctx)
        if self.drop < 1:
            turn = torch.where(drawn.get(TURN, ctx.pos.new_zeros(())).bool(), turn, 1.0)
        return replace(ctx, drawn={**drawn, ROTATION: turn})

    def turned_by(self, ctx: Context) -> Tensor:
        """Return what each pair turns by, times its w, (B|1, 1, T, 1|K/2) floats."""
        return ctx.query_pos[:, None, :, None].float()

    def turn(self, by: Tensor, ctx: Context) -> Tensor:
        """Return e^(i by w) times the attention factor, complex; by (B|1, H|1, n, 1|K/2) floats."""
        w, factor = self.frequencies(ctx)
        angle = by * (w if w.dim() == 1 else w[:, None, None])
        size = factor[:, None, None, None] if isinstance(factor, Tensor) else factor
        return torch.polar(torch.ones_like(angle) * size, angle)

    def rotation(self, ctx: Pass) -> Tensor:
        """Return what `transform` multiplies pairs by, complex (B|1, 1, T, K/2)."""
        ctx.check_prepared()
        return (ctx.drawn or {})[ROTATION]

    def transform(self, q: Tensor, k: Tensor, ctx: Pass) -> tuple[Tensor, Tensor]:
        turn = self.rotation(ctx)
        return self.rotated(q, turn), self.rotated(k, turn)

    def rotated(self, x: Tensor, turn: Tensor) -> Tensor:
        """Multiply the pairs of x (B, H, T, K) by `turn`, complex (B|1, H|1, T, K/2)."""
        pairs = rearrange(at_least_float32(x), f"b h t ({self.pairs}) -> b h t m two", two=2)
        pairs = pairs.clone(memory_format=torch.contiguous_format)  # x may be non-contiguous
        y = torch.view_as_complex(pairs) * turn
        return rearrange(torch.view_as_real(y), f"b h t m two -> b h t ({self.pairs})")
