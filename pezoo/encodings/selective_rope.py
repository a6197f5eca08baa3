"""Selective RoPE: rope whose angles the text decides."""

from collections.abc import Mapping
from typing import Any, Unpack

import torch
from torch import Tensor, nn
from torch.nn.functional import layer_norm, normalize

from pezoo.base import Encoding, Pass, Shape, Sizes
from pezoo.encodings.rope import RoPE
from pezoo.functional import at_least_float32, for_each_head, full_precision, short_convolution
from pezoo.registry import register


@register("selective_rope")
class SelectiveRoPE(Encoding):
    """Rotate pairs of q and k by sums of learned angles over the tokens so far.

    Formula: pair m of token i turns by t_m (phi_1m + ... + phi_im), t_m = base^(-2m/K). phi is the
    convolution, over the `kernel` last tokens, of U V n(LN(x)); n divides each of H equal parts of
    the vector by its length. x is the layer's input, LN a layer norm without weights.

    Example: phi = 1 for every token: rope. phi = 0 for a token: the text goes on as without it.

    Shapes: q, k (B, H, T, K) -> the same, float32 at least. Per layer V (rank, D), U (H K/2, rank)
    and a convolution for each channel (H K/2, kernel), whose first weight is the token's own; at
    the start N(0, std^2).
    Options: base, layout and rope_parameters as in rope; rank, of U V; kernel, tokens of the
    convolution; std; bias, which adds exp(c) to phi with c (H, K/2) learned, at the start 0, so
    that angles start near those of rope.
    Errors: ValueError without ctx.x, for an odd K, a D that H does not divide, a rank or kernel
    below 1 and a std below 0.

    Paper: Movahedi et al. 2026, "Selective Rotary Position Embedding", and the authors' code: the
    defaults are those of its configs, std its models' `initializer_range`. Its gate on phi is left
    out. Sums of angles are kept for each token, so that decoding goes on from them; they start
    small: training begins almost without positions.
    """

    summary = "rope by learned angles that the text decides"
    paper = "Movahedi et al. 2026"
    reports = "copies, tracks states and retrieves better than rope"
    reads = "text"
    relative = True
    causal_only = True
    version = 2
    rope_within = 0

    def __init__(
        self,
        shape: Shape | None = None,
        *,
        base: float = 500_000.0,
        layout: str = "half",
        rope_parameters: Mapping[str, Any] | str = "default",
        rank: int = 32,
        kernel: int = 4,
        std: float = 0.02,
        bias: bool = False,
        **sizes: Unpack[Sizes],
    ) -> None:
        super().__init__(shape, **sizes)
        shape = self.shape
        if min(rank, kernel) < 1 or std < 0:
            raise ValueError(
                f"rank and kernel must be at least 1 and std 0, got {rank}, {kernel} and {std}"
            )
        if shape.d_model % shape.n_heads:
            raise ValueError(f"n_heads={shape.n_heads} does not divide d_model={shape.d_model}")
        self.rope = RoPE(shape, base=base, layout=layout, rope_parameters=rope_parameters)
        self.prefix_stable = self.relative = not self.rope.reads_length
        layers, channels = shape.n_layers, shape.n_heads * shape.d_head // 2
        sizes_of = (rank, shape.d_model), (channels, rank), (channels, kernel)
        self.v, self.u, self.conv = (
            nn.Parameter(std * torch.randn(layers, *size)) for size in sizes_of
        )
        self.c = nn.Parameter(torch.zeros(layers, channels)) if bias else None

    def phases(self, ctx: Pass) -> Tensor:
        """Return the sums of phi of the new tokens, (B, H, T, K/2)."""
        x, heads = at_least_float32(ctx.x_for(self.name)), self.shape.n_heads
        x = layer_norm(x, x.shape[-1:])
        x = normalize(x.view(*x.shape[:2], heads, -1), dim=-1).flatten(2)
        v, u, conv = (p[ctx.layer].to(x.dtype) for p in (self.v, self.u, self.conv))
        phi = ctx.with_earlier(self.name, (x @ v.mT @ u.mT).mT)
        phi = short_convolution(phi, conv, ctx)
        if self.c is not None:
            c = self.c[ctx.layer].to(x.dtype).exp()
            phi = phi + c[:, None] * ctx.key_mask[:, None]
        sums = phi.cumsum(-1)[..., -ctx.new :]
        return sums.view(len(sums), heads, -1, ctx.new).mT

    def transform(self, q: Tensor, k: Tensor, ctx: Pass) -> tuple[Tensor, Tensor]:
        with full_precision(q.device.type):
            sums = self.phases(ctx)
        turn = self.rope.turn(sums, ctx)
        k = for_each_head(k, q)
        return self.rope.rotated(q, turn), self.rope.rotated(k, turn)
