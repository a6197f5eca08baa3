"""Learning-based position embeddings, without and with the scale hint."""

import math

import torch
from torch import Tensor, nn
from torch.nn.functional import embedding, gelu

from pezoo.base import Columns, Context, Encoding, Pairs, Shape
from pezoo.functional import at_least_float32, distinct, inverse_frequencies, sinusoid
from pezoo.registry import register


@register("lbpe")
class LBPE(Encoding):
    """Learn which pairs of positions are alike, and a vector per kind of pair, added to the keys.

    Formula: a_ij = q_i (k_j + P' phi(i, j)) / sqrt(K), phi(i, j) = softmax(MLP(f(i), f(j), f(i-j)))
    a distribution over `values` kinds, f a sinusoid. The bias returned is the second term.

    Example: if phi puts all pairs with j = 0 into one kind and all others into another, P shows
    every query where the first token is, at any length.

    Shapes: q (B, H, T, K) -> (B, H, T, S); phi (B|1, T, S, values), float32 whatever the dtype of
    q. Per layer: an MLP, at the start like linear layers; P (values, H, K), at the start Glorot
    uniform over (values, K).
    Options: values; hidden, the width of the MLP's one hidden layer (GELU); width and base of f.
    Errors: ValueError for an odd width or a size below 1.

    Paper: Chen et al. 2026, "Limitations and Capabilities of Position Embeddings", section
    "Learning-Based Position Embeddings". It leaves the block that computes phi open: features, MLP
    and sizes are ours, a first sound version. It adds P' phi to the key embedding before W_K; here
    P lives after W_K, one vector per head, which includes that form.
    """

    summary = "a learned function of (i, j) picks the vector added to the keys"
    paper = "Chen et al. 2026"

    def __init__(
        self,
        shape: Shape,
        *,
        values: int = 16,
        hidden: int = 32,
        width: int = 16,
        base: float = 10_000.0,
    ) -> None:
        super().__init__(shape)
        if min(values, hidden, width) < 1 or width % 2:
            raise ValueError(
                "values and hidden must be at least 1 and width even, "
                f"were {values}, {hidden} and {width}"
            )
        inverse_frequencies(width, base)  # raises for a base that has none
        self.width, self.base = width, base
        layers, heads, size = shape.n_layers, shape.n_heads, shape.d_head
        token = self._token_width()
        fan_in = 2 * token + width
        self.w_query = _uniform(1 / math.sqrt(fan_in), layers, token, hidden)
        self.w_key = _uniform(1 / math.sqrt(fan_in), layers, token, hidden)
        self.w_distance = _uniform(1 / math.sqrt(fan_in), layers, width, hidden)
        self.b_hidden = nn.Parameter(torch.zeros(layers, hidden))
        self.w_out = _uniform(1 / math.sqrt(hidden), layers, hidden, values)
        self.b_out = nn.Parameter(torch.zeros(layers, values))
        self.p = _uniform(math.sqrt(6 / (values + size)), layers, values, heads, size)

    def phi(self, ctx: Context) -> Tensor:
        """(B|1, T, S, values) the distribution over kinds of pairs; it sums to 1."""

        def weight(parameter: Tensor) -> Tensor:
            return at_least_float32(parameter[ctx.layer])

        # The first layer of the MLP is a sum over i, j and i-j: no (T, S, features) is built.
        w_query, w_key, w_distance = map(weight, (self.w_query, self.w_key, self.w_distance))
        query = self._token(ctx.query_pos, ctx).to(w_query.dtype) @ w_query
        key = self._token(ctx.pos, ctx).to(w_key.dtype) @ w_key
        distances, index = distinct(ctx.distance())
        f = sinusoid(distances, self.width, self.base).to(w_distance.dtype)
        pair = embedding(index, f @ w_distance + weight(self.b_hidden))  # (B|1, T, S, hidden)
        hidden = gelu(query[:, :, None] + key[:, None] + pair)
        return (hidden @ weight(self.w_out) + weight(self.b_out)).softmax(-1)

    def fast_bias(
        self, q: Tensor, k: Tensor, ctx: Context, form: type[Pairs] | type[Columns]
    ) -> Pairs | None:
        if form is not Pairs:
            return None
        phi = self.phi(ctx).to(q.dtype)
        if len(phi) > 1:
            return None
        rows = phi @ self._vectors(q.dtype, ctx).flatten(1)
        return Pairs(q, rows.view(*phi.shape[:3], *self.p.shape[2:]))

    def _vectors(self, dtype: torch.dtype, ctx: Context) -> Tensor:
        """P / sqrt(K), (values, H, K)."""
        return self.p[ctx.layer].to(dtype) / math.sqrt(self.shape.d_head)

    def bias(self, q: Tensor, k: Tensor, ctx: Context) -> Tensor:
        kinds = torch.einsum("bhtk,vhk->bhtv", q, self._vectors(q.dtype, ctx))
        return torch.einsum("bhtv,btsv->bhts", kinds, self.phi(ctx).to(q.dtype))

    def _token_width(self) -> int:
        return self.width

    def _token(self, pos: Tensor, ctx: Context) -> Tensor:
        """(B|1, T|S, _token_width()) float32, what the MLP reads about one position."""
        return sinusoid(pos, self.width, self.base)


@register("lbpe_sh")
class LBPEScaleHint(LBPE):
    """LBPE whose phi(i, j, n) also reads the scale n of the instance.

    Formula: phi(i, j, n) = softmax(MLP(g(i, n), g(j, n), f(i-j))), g(p, n) = (f(p), f(n), p/n).

    Example: "the middle token" is j/n = 1/2: one kind of pair for every n.

    Shapes: as lbpe, with ctx.scale (B|1,), in tokens; phi has B rows when the scale has.
    Options: as lbpe.
    Errors: ValueError when ctx.scale is missing; as lbpe.

    Paper: as lbpe, LBPE-SH. The features g are ours.
    """

    summary = "lbpe that also knows the scale n of the instance"
    needs_scale = True

    def _token_width(self) -> int:
        return 2 * self.width + 1

    def _token(self, pos: Tensor, ctx: Context) -> Tensor:
        n = ctx.scale_for("lbpe_sh")[:, None].expand(-1, pos.shape[1])  # (B|1, T|S)
        pos = pos.expand(max(len(pos), len(n)), -1)
        n = n.expand(len(pos), -1)
        f = [sinusoid(x, self.width, self.base) for x in (pos, n)]
        return torch.cat([*f, (pos / n.clamp(min=1)).float()[..., None]], -1)


def _uniform(limit: float, *size: int) -> nn.Parameter:
    return nn.Parameter(torch.empty(size).uniform_(-limit, limit))
