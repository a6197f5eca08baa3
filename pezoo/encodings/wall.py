"""Wall: each component of a key forgets at a rate of its own, which the text decides."""

from typing import Unpack

import torch
from torch import Tensor, nn
from torch.nn.functional import layer_norm, logsigmoid, pad

from pezoo.base import Encoding, Pass, Shape, Sizes
from pezoo.encodings.fox import FoX
from pezoo.functional import at_least_float32, for_each_head, full_precision
from pezoo.registry import register


@register("wall")
class Wall(Encoding):
    """Multiply each component of q k by what gates leave of it on the way from key to query.

    Formula: z_ij = sum_n q_in k_jn f_(j+1)n ... f_in / sqrt(K), f_l = sigmoid(W LN(x_l) + b). x is
    the layer's input, LN a layer norm without weights.

    Example: all gates 1: nothing. All gates 1/2: the product with the key d back is q k / 2^d, so
    that far keys get logits of 0, not less: they are weighted alike, but not hidden.

    Shapes: q, k (B, H, T, K) -> scores (B, H, T, S), float32 at least. Per layer W (H K, D), at the
    start N(0, 0.02^2), and b (H K). Gates are those of query heads, also where heads share keys.
    Options: start, the value of b at the start: with 8 gates are .9997. scalar adds the bias of
    `fox` with gates that start so too.
    Errors: ValueError without ctx.x.

    Source: Pai et al. 2026, "Wall Attention", as in fla (naive_wall_attn, WallAttention),
    where `scalar` is use_scalar_gate; without its windows, sinks, output gates and norms of q and
    k. With `scalar` and W x + b high it is FoX. One gate for all n of a head is not: it multiplies
    the logit, where FoX adds to it. There sums of log gates run from the first token on, relative
    to one token of a block; here from the middle of ever smaller halves, so that no factor is above
    1 and no sum is a difference.
    """

    summary = "products of q and k that gates fade, each component at its own rate"
    paper = "Pai et al. 2026"
    reports = "trained on 4,096 tokens, models texts of 200,000; better than rope and fox"
    reads = "text"
    relative = True
    causal_only = True

    def __init__(
        self,
        shape: Shape | None = None,
        *,
        start: float = 8.0,
        scalar: bool = False,
        **sizes: Unpack[Sizes],
    ) -> None:
        super().__init__(shape, **sizes)
        layers, channels = self.shape.n_layers, self.shape.n_heads * self.shape.d_head
        self.w = nn.Parameter(0.02 * torch.randn(layers, channels, self.shape.d_model))
        self.b = nn.Parameter(torch.full((layers, channels), start))
        self.fox = FoX(self.shape, start=start) if scalar else None

    def log_gates(self, ctx: Pass) -> Tensor:
        """Return log f of all tokens, (B, H, S, K); 0 at padding."""
        x = at_least_float32(ctx.x_for(self.name))
        w, b = self.w[ctx.layer].to(x.dtype), self.b[ctx.layer].to(x.dtype)
        gates = logsigmoid(layer_norm(x, x.shape[-1:]) @ w.mT + b).mT
        gates = ctx.with_earlier(self.name, gates * (ctx.query_pos >= 0)[:, None])
        return gates.view(len(gates), self.shape.n_heads, self.shape.d_head, -1).mT

    def scores(self, q: Tensor, k: Tensor, ctx: Pass) -> Tensor:
        with full_precision(q.device.type):
            q, k = at_least_float32(q), for_each_head(k, q)
            gates = self.log_gates(ctx).to(q.dtype)
            return faded(q / self.shape.d_head**0.5, k.to(q.dtype), gates)

    def bias(self, q: Tensor, k: Tensor, ctx: Pass) -> Tensor | None:
        return None if self.fox is None else self.fox.bias(q, k, ctx)


def faded(q: Tensor, k: Tensor, gates: Tensor) -> Tensor:
    """Return sum_n q_in k_jn exp(g_(j+1)n + ... + g_in), and 0 for later keys.

    q (..., T, K), the last tokens, k and g (..., S, K), g at most 0 -> (..., T, S).
    """
    t, s = q.shape[-2], k.shape[-2]
    if s == 1:
        return (q * k).sum(-1, keepdim=True)
    if t < s:
        across = _across(q, k[..., :-t, :], gates, t)
        return torch.cat([across, faded(q, k[..., -t:, :], gates[..., -t:, :])], -1)
    half = (s + 1) // 2  # both halves at once, with a zero before the first token of an odd number
    q, k, gates = (torch.stack(pad(x, (0, 0, s % 2, 0)).chunk(2, -2)) for x in (q, k, gates))
    first, last = faded(q, k, gates)
    across = _across(q[1], k[0], torch.cat([*gates], -2), half)
    last = torch.cat([across, last], -1)
    return torch.cat([pad(first, (0, half)), last], -2)[..., -s:, -s:]


def _across(q: Tensor, k: Tensor, gates: Tensor, t: int) -> Tensor:
    """Return the scores of the last t tokens with keys before them: the gates meet in between."""
    near = gates[..., -t:, :].cumsum(-2)
    far = pad(gates[..., 1:-t, :], (0, 0, 0, 1)).flip(-2).cumsum(-2).flip(-2)
    return (q * near.exp()) @ (k * far.exp()).mT
