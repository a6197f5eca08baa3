"""CARoPE: rope whose base frequency each token chooses, per head."""

import math
from collections.abc import Mapping
from typing import Any, Unpack

import torch
from torch import Tensor, nn
from torch.nn.functional import layer_norm, softplus

from pezoo import rope_scaling
from pezoo.base import Encoding, Pass, Shape, Sizes
from pezoo.encodings.rope import RoPE
from pezoo.functional import at_least_float32, for_each_head, full_precision
from pezoo.registry import register


@register("carope")
class CARoPE(Encoding):
    """Rotate pairs of q and k by sums of powers of a frequency that each token has, per head.

    Formula: pair m = 0..K/2-1 of token i turns by f_1^m + ... + f_i^m, f_l = 1 / (1 + softplus(w
    LN(x_l) + c)). x is the layer's input, LN a layer norm without weights.

    Example: f = base^(-2/K) for every token: rope. f = 1/2 for one token, 1 for another: both count
    one position in pair 0, and 1/4 and 1 in pair 2.

    Shapes: q, k (B, H, T, K) -> the same, float32 at least. Per layer w (H, D), at the start 0, and
    c (H), at which f starts as base^(-2/K): training begins with rope.
    Options: base, of the start, layout and rope_parameters as in rope, of which only the type
    "default" has frequencies that are powers.
    Errors: ValueError without ctx.x, for an odd K, a base that is not above 1, an unknown layout
    and another type.

    Paper: Veisi et al. 2025b, "Context-aware Rotary Position Embedding", Section 2. Its formula has
    no c and a bare x, the token's embedding; it starts from rope, which needs c. No code is
    released. Pair 0 turns by 1 for every token, as in rope, where powers count from 0.
    """

    summary = "rope by powers of a frequency that each token has, per head"
    paper = "Veisi et al. 2025b"
    reports = "lower perplexity than rope, 37 against 81 at twice the training length"
    reads = "text"
    relative = True
    causal_only = True
    rope_within = 0

    def __init__(
        self,
        shape: Shape | None = None,
        *,
        base: float = 10_000.0,
        layout: str = "interleaved",
        rope_parameters: Mapping[str, Any] | str = "default",
        **sizes: Unpack[Sizes],
    ) -> None:
        super().__init__(shape, **sizes)
        kind = rope_scaling.read(rope_parameters)["rope_type"]
        if kind != "default":
            raise ValueError(f"carope has powers of one frequency: rope_type={kind} has others")
        self.rope = RoPE(self.shape, base=base, layout=layout, rope_parameters=rope_parameters)
        if (base := self.rope.base) <= 1:
            raise ValueError(f"base must be above 1, got {base}")
        layers, heads, width = self.shape.n_layers, self.shape.n_heads, self.shape.d_model
        y = math.expm1(math.log(base) * 2 / self.shape.d_head)  # softplus(c)
        start = y + math.log(-math.expm1(-y))
        self.w = nn.Parameter(torch.zeros(layers, heads, width))
        self.c = nn.Parameter(torch.full((layers, heads), start))

    def phases(self, ctx: Pass) -> Tensor:
        """Return the angles of the new tokens, (B, H, T, K/2)."""
        x = at_least_float32(ctx.x_for(self.name))
        w, c = self.w[ctx.layer].to(x.dtype), self.c[ctx.layer].to(x.dtype)
        f = 1 / (1 + softplus(layer_norm(x, x.shape[-1:]) @ w.mT + c)).mT  # (B, H, T)
        f = ctx.with_earlier(self.name, f)[..., None]
        powers = f ** torch.arange(self.shape.d_head // 2, device=f.device)  # (B, H, S, K/2)
        powers = powers * ctx.key_mask[:, None, :, None]
        return powers.cumsum(2)[:, :, -ctx.new :]

    def transform(self, q: Tensor, k: Tensor, ctx: Pass) -> tuple[Tensor, Tensor]:
        with full_precision(q.device.type):
            angle = self.phases(ctx)
        turn = torch.polar(torch.ones_like(angle), angle)
        k = for_each_head(k, q)
        return self.rope.rotated(q, turn), self.rope.rotated(k, turn)
