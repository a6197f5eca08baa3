"""RePo: rope at real positions that each token chooses."""

from collections.abc import Mapping
from typing import Any, Unpack

import torch
from torch import Tensor, nn
from torch.nn.functional import layer_norm, silu

from pezoo.base import Encoding, Pass, Shape, Sizes
from pezoo.encodings.rope import RoPE
from pezoo.functional import at_least_float32, for_each_head, full_precision
from pezoo.registry import register


@register("repo")
class RePo(Encoding):
    """Rotate pairs of q and k by a real position that a small network reads from the token.

    Formula: z = w_h (silu(W_g LN(x)) * W_c LN(x)) for head h; pair m turns by z base^(-2m/K), as in
    rope at position z. x is the layer's input, LN a layer norm without weights.

    Example: z = 3 for one token and 1.5 for another: logits as in rope at distance 1.5, wherever
    they stand. z = 0 for all: nothing.

    Shapes: q, k (B, H, T, K) -> the same, float32 at least. In each layer but the first `plain` W_g
    and W_c (D / divisor, D) and w (H, D / divisor); at the start N(0, std^2), so that positions lie
    near 0. Heads that share keys turn them each in its way.
    Options: base, layout and rope_parameters as in rope; divisor; std; plain, how many first layers
    have rope at the tokens' positions: by default 5 of 16, rounded down, none below 4 layers.
    Errors: ValueError without ctx.x, for an odd K, a divisor not in 1..D, a std below 0 and a plain
    not in 0..n_layers.

    Paper: Li et al. 2025, "RePo: Language Models with Context Re-Positioning", and the authors'
    code (swigluex_multihead), whose base 500,000, d_p = D/8, std and first layers these are. There
    trained rope models learn on, W_g and W_c read what the projections to q and k read (LN(x) with
    a scale, which they hold here), and initial values beyond 3 std are drawn again.
    """

    summary = "rope at real positions that each token chooses"
    paper = "Li et al. 2025"
    reports = "better than rope on noisy and longer contexts, as good on short ones"
    reads = "text"
    relative = True
    rope_within = 0

    def __init__(
        self,
        shape: Shape | None = None,
        *,
        base: float = 500_000.0,
        layout: str = "half",
        rope_parameters: Mapping[str, Any] | str = "default",
        divisor: int = 8,
        std: float = 0.02,
        plain: int | None = None,
        **sizes: Unpack[Sizes],
    ) -> None:
        super().__init__(shape, **sizes)
        layers, width = self.shape.n_layers, self.shape.d_model
        self.plain = layers * 5 // 16 if plain is None else plain
        if not 1 <= divisor <= width or std < 0 or not 0 <= self.plain <= layers:
            raise ValueError(
                f"divisor must be in 1..{width}, std at least 0 and plain in 0..{layers}; got "
                f"{divisor}, {std} and {plain}"
            )
        self.rope = RoPE(self.shape, base=base, layout=layout, rope_parameters=rope_parameters)
        self.prefix_stable = self.relative = not self.rope.reads_length
        self.order_blind = self.plain == 0
        layers, inner = layers - self.plain, width // divisor
        self.gate = nn.Parameter(std * torch.randn(layers, inner, width))
        self.content = nn.Parameter(std * torch.randn(layers, inner, width))
        self.w = nn.Parameter(std * torch.randn(layers, self.shape.n_heads, inner))

    def positions(self, ctx: Pass) -> Tensor:
        """Return z of the new tokens, (B, H, T), or their positions (B|1, 1, T) if plain."""
        if ctx.layer < self.plain:
            return ctx.query_pos[:, None].float()
        x = at_least_float32(ctx.x_for(self.name))
        x, at = layer_norm(x, x.shape[-1:]), ctx.layer - self.plain
        gate, content, w = (p[at].to(x.dtype) for p in (self.gate, self.content, self.w))
        with full_precision(x.device.type):
            return (silu(x @ gate.mT) * (x @ content.mT) @ w.mT).mT

    def transform(self, q: Tensor, k: Tensor, ctx: Pass) -> tuple[Tensor, Tensor]:
        turn = self.rope.turn(self.positions(ctx)[..., None], ctx)
        k = for_each_head(k, q)
        return self.rope.rotated(q, turn), self.rope.rotated(k, turn)
