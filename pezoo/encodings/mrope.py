"""M-RoPE: rope whose pairs turn by time, height or width."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Unpack

import torch
from torch import Tensor
from torch.nn.functional import pad

from pezoo.base import Context, Shape, Sizes
from pezoo.encodings.axial_rope import coordinates, sections_of
from pezoo.encodings.rope import RoPE
from pezoo.registry import register

AXES = 3


@register("mrope")
class MRoPE(RoPE):
    """Turn the pairs of rope by time, height or width, with the frequencies that rope has.

    Formula: pair m turns by x_a(m) w_m, w_m = base^(-2m/K): sections of pairs in turn have time,
    height and width. Interleaved, the pairs m = 1, 4, 7, ... have height and m = 2, 5, 8, ...
    width, as many as the sections say, the others time: every axis has fast and slow pairs.

    Example: sections 16+24+24 of K = 128: pairs 0..15 turn by the time, 16..39 by the height.

    Shapes: q, k (B, H, T, K) -> the same, float32 at least. Text lies at its position on all three
    axes, where it is rope, bit for bit. Coords of two axes are height and width, at time 0.

    Options
        sections     pairs of time, height and width, by default in the ratio of 16+24+24, Qwen2-VL
                     with K = 128; interleaved, of 24+20+20, Qwen3-VL
        interleaved  as in Qwen3-VL
        base, layout, rope_parameters  as in rope; layout "half" as released
    Errors: those of rope, and ValueError for sections that are not those of K.

    Paper: Wang et al. 2024, "Qwen2-VL", Section 2.1; interleaved, Huang et al. 2025, "Revisiting
    Multimodal Positional Encoding in Vision-Language Models" (arXiv 2510.23095).
    """

    summary = "rope whose pairs turn by time, height or width"
    paper = "Wang et al. 2024"
    reports = "reads longer videos than it was trained on"
    axes = AXES

    def __init__(
        self,
        shape: Shape | None = None,
        *,
        sections: str = "",
        interleaved: bool = False,
        base: float = 10_000.0,
        layout: str = "half",
        rope_parameters: Mapping[str, Any] | str = "default",
        **sizes: Unpack[Sizes],
    ) -> None:
        super().__init__(shape, base=base, layout=layout, rope_parameters=rope_parameters, **sizes)
        pairs = self.shape.d_head // 2
        width = pairs * (5 if interleaved else 6) // 16
        own = f"{pairs - 2 * width}+{width}+{width}"
        time, height, width = sections_of(sections or own, pairs, AXES)
        self.axis = [0] * time + [1] * height + [2] * width
        if interleaved:
            most = (0, 3 * height, 3 * width)
            self.axis = [m % 3 if m < most[m % 3] else 0 for m in range(pairs)]

    def turned_by(self, ctx: Context) -> Tensor:
        if ctx.coords is not None and ctx.coords.shape[-1] == AXES - 1:
            ctx = replace(ctx, coords=pad(ctx.coords, (1, 0)))
        return coordinates(ctx, AXES)[..., torch.tensor(self.axis, device=ctx.pos.device)]
