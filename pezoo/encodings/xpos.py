"""xPos: RoPE whose frequencies fade with distance."""

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Unpack

import torch
from torch import Tensor

from pezoo.base import Context, Encoding, Pass, PositionError, Shape, Sizes
from pezoo.compiling import untraced
from pezoo.encodings.rope import RoPE
from pezoo.functional import attention_dtype
from pezoo.registry import register

FADE = "xpos.fade"
LARGEST = 80.0  # e^80 leaves float32 and bfloat16 room for q and k
LARGEST_HALF = 9.0  # of float16, whose largest number is e^11.09


@register("xpos")
class XPos(RoPE):
    """Rotate pairs of q and k, and let high frequencies fade faster than low ones.

    Formula: pair m of a query at position p turns by p w_m as in rope and is multiplied by s_m^(p /
    scale_base), that of a key by s_m^(-p / scale_base), s_m = (2m/K + gamma) / (1 + gamma), so that
    q_i k_j has the factor s_m^((i - j) / scale_base).

    Example: K = 64, 512 back: pair 0 keeps 2/7 of its product, pair 16 9/14 and pair 31 .98.

    Shapes: q, k (B, H, T, K) -> the same, float32 at least.
    Options: base, layout and rope_parameters as in rope; gamma, scale_base. For a scale_base of
    1e30 it is rope.
    Errors: those of rope; PositionError from 32,696 on, with the default options, where keys would
    leave the range of float32 and bfloat16, and from 3,679 on in float16 (seen in ctx.x or q).
    ValueError for a gamma beyond 1e-30 to 1e30, and for a scale_base that is not above 0.

    Paper: Sun et al. 2023, "A Length-Extrapolatable Transformer", whose attention in blocks at
    test time is not part of this. It is for decoders: later keys would grow. Released
    code centres positions on the middle of the text, which keeps numbers small but changes cached
    keys with every token: here they count from 0.
    """

    summary = "rope whose high frequencies fade with distance"
    paper = "Sun et al. 2023"
    reports = "steady perplexity on texts longer than in training"
    reads = "distance"
    prf_text = "i - j"
    rope_within = 0
    causal_only = True

    def __init__(
        self,
        shape: Shape | None = None,
        *,
        base: float = 10_000.0,
        layout: str = "interleaved",
        rope_parameters: Mapping[str, Any] | str = "default",
        gamma: float = 0.4,
        scale_base: float = 512.0,
        **sizes: Unpack[Sizes],
    ) -> None:
        super().__init__(shape, base=base, layout=layout, rope_parameters=rope_parameters, **sizes)
        if not (1e-30 < gamma < 1e30 and scale_base > 0):  # float32 holds both
            raise ValueError(
                f"gamma must be between 1e-30 and 1e30, and scale_base above 0, got {gamma} and "
                f"{scale_base}"
            )
        self.gamma, self.scale_base = gamma, scale_base
        self.max_len, self.half_len = (
            int(x * scale_base / math.log1p(1 / gamma)) + 1 for x in (LARGEST, LARGEST_HALF)
        )

    def _draw(self, ctx: Context) -> dict[str, Tensor]:
        return Encoding._draw(self, ctx)  # max_len reads values

    def _check_float16(self, x: Tensor, ctx: Context) -> None:
        if attention_dtype(x) != torch.float16 or (last := ctx.ask(ctx.pos.max())) < self.half_len:
            return
        raise PositionError(
            f"xpos in float16 represents positions 0..{self.half_len - 1}, was given position "
            f"{last}: use float32 or bfloat16"
        )

    def prepare(self, ctx: Context) -> Pass:
        ctx = super().prepare(ctx)
        if ctx.x is not None:
            compiles = torch.compiler.is_compiling()
            (untraced(self._check_float16) if compiles else self._check_float16)(ctx.x, ctx)
        width, device = self.shape.d_head, ctx.pos.device
        m = torch.arange(width // 2, device=device, dtype=torch.float32)
        rate = ((2 * m / width + self.gamma) / (1 + self.gamma)).log() / self.scale_base
        fade = (ctx.query_pos[:, None, :, None].float() * rate).exp()  # (B|1, 1, T, K/2)
        return replace(ctx, drawn={**(ctx.drawn or {}), FADE: fade})

    def transform(self, q: Tensor, k: Tensor, ctx: Pass) -> tuple[Tensor, Tensor]:
        turn = self.rotation(ctx)
        if ctx.x is None and not torch.compiler.is_compiling():
            self._check_float16(q, ctx)
        fade = (ctx.drawn or {})[FADE]
        return self.rotated(q, turn * fade), self.rotated(k, turn / fade)
