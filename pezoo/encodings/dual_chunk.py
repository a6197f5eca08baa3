"""Dual chunk attention: rope whose positions begin anew in each chunk, for longer texts."""

from collections.abc import Mapping
from typing import Any, Unpack

import torch
from torch import Tensor

from pezoo.base import Context, Pass, Shape, Sizes
from pezoo.encodings.self_extend import SelfExtend
from pezoo.registry import register


@register("dual_chunk")
class DualChunk(SelfExtend):
    """Rotate q and k as rope does, with distances that end at s + w - 1, for chunks of s tokens.

    Formula: q_i and k_j meet as in rope at the distance i - j within a chunk, floor(i / s) =
    floor(j / s); at min(i mod s + s, s + w - 1) - j mod s where j is in the chunk before; at
    s + w - 1 - j mod s where it is further back. In training they meet as in rope everywhere.

    Example: s = 4, w = 2: the keys 0..6 of token 6 are at 5, 4, 3, 2 (the chunk before), 2, 1, 0
    (its own); token 9 sees tokens 0..3, two chunks back, at 5, 4, 3, 2.

    Shapes: as in self_extend.

    Options
        base, layout, rope_parameters  as in rope
        chunk   s, in tokens; 0 is three quarters of train_len
        window  w, the tokens of a chunk that keep their distances to the chunk before; 0 is a
                quarter of train_len

    Errors: those of rope; ValueError for a chunk or a window below 0. UserWarning for a text of
    more than train_len tokens where s + w is above it.

    Paper: An et al. 2024, "Training-Free Long-Context Scaling of Large Language Models", Section 3.
    The default is the paper's, with which no distance is above train_len - 1. The released code
    ends distances at s + w, with 5/8 and 1/8 of train_len.
    """

    summary = "rope with positions by chunks, for models trained with rope"
    paper = "An et al. 2024"
    reports = "a model trained on 4k tokens reads 100k without fine-tuning"
    prf_text = "i - j within a chunk, then by the place in the chunk"
    causal_only = True
    endless = "chunk=0 and window=0"

    def __init__(
        self,
        shape: Shape | None = None,
        *,
        base: float = 10_000.0,
        layout: str = "interleaved",
        rope_parameters: Mapping[str, Any] | str = "default",
        chunk: int = 0,
        window: int = 0,
        **sizes: Unpack[Sizes],
    ) -> None:
        rotation: Any = {"base": base, "layout": layout, "rope_parameters": rope_parameters}
        super().__init__(shape, window=window, **rotation, **sizes)
        if chunk < 0:
            raise ValueError(f"chunk must be at least 0, got {chunk}")
        trained = self.shape.train_len
        self.chunk, self.window = chunk or max(1, trained * 3 // 4), window or max(1, trained // 4)
        self.last = self.chunk + self.window - 1
        self.rope_within = min(self.last + 1, 2 * self.chunk)

    def share(self, group: Any) -> float:
        return 0.0

    @property
    def further(self) -> str:
        return f"chunk={self.chunk} and window={self.window}"

    def meetings(self, ctx: Pass) -> list[tuple[Tensor, Tensor]]:
        here = ctx.pos % self.chunk
        before = (here + self.chunk).clamp(max=self.last)
        return [(ctx.pos, ctx.pos), (before, here), (torch.full_like(here, self.last), here)]

    def way(self, i: Tensor, j: Tensor) -> Tensor:
        return (i // self.chunk - j // self.chunk).clamp(0, 2)

    def prf(self, ctx: Context) -> Tensor:
        one = Pass.of(ctx)
        each = [q[0, :, None] - k[0] for q, k in self.meetings(one)]
        way = self.way(one.query_pos[:, :, None], one.pos[:, None])
        return torch.stack(each).gather(0, way)[0]
