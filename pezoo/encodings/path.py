"""PaTH: each token reflects what passes it on the way from key to query."""

import math
from typing import Unpack

import torch
from torch import Tensor, nn
from torch.nn.functional import layer_norm, pad, silu

from pezoo.base import Encoding, Pass, Shape, Sizes
from pezoo.functional import (
    at_least_float32,
    for_each_head,
    full_precision,
    linear_start,
    short_convolution,
)
from pezoo.registry import register

BLOCK = 32  # the most tokens of a block


@register("path")
class PaTH(Encoding):
    """Multiply each key by a matrix of every token after it, up to the query.

    Formula: z_ij = q_i H_i H_(i-1) ... H_(j+1) k_j / sqrt(K), H_l = I - beta_l w_l w_l', beta_l = 2
    sigmoid(a LN(x_l) + c), w_l = y_l / sqrt(y_l' y_l + 1e-6), y_l the SiLU of the convolution of
    U V LN(x) over the `kernel` last tokens. x is the layer's input, LN a layer norm without
    weights.

    Example: beta = 0: nothing. beta = 1: tokens of equal w hide what lies before them in that
    direction. beta = 2 and w orthogonal: signs, so that q k counts tokens modulo 2.

    Shapes: q, k (B, H, T, K) -> scores (B, H, T, S), float32 at least. Per layer V (rank, D) and U
    (H K, rank), at first uniform in +-1/sqrt(D) and +-1/sqrt(rank); a convolution per channel (H K,
    kernel), in +-1/sqrt(kernel); a (H, D), N(0, 1/D), and c (H), 0. The keys that a query sees keep
    their order; none are padding or of another document.
    Options: rank, of U V; kernel, tokens of the convolution, whose first weight is the token's own.
    Errors: ValueError without ctx.x and for a rank or kernel below 1.

    Paper: Yang et al. 2025b, "PaTH Attention", and the authors' layer, without the gates of
    PaTH-FoX and with starts of our own. With grouped-query attention that layer has one w, by a
    full matrix in place of U V, and one beta per key-value head; here each query head has its own.
    Tokens change earlier keys, which are cached as they came; scores come from w and beta of all,
    block by block as there (T S K for each head).
    """

    summary = "keys reflected by each token on their way to the query"
    paper = "Yang et al. 2025b"
    reports = "tracks states, and models text better than rope"
    reads = "text"
    relative = True
    causal_only = True
    version = 2

    def __init__(
        self, shape: Shape | None = None, *, rank: int = 32, kernel: int = 3, **sizes: Unpack[Sizes]
    ) -> None:
        super().__init__(shape, **sizes)
        if min(rank, kernel) < 1:
            raise ValueError(f"rank and kernel must be at least 1, got {rank} and {kernel}")
        layers, heads, width = self.shape.n_layers, self.shape.n_heads, self.shape.d_model
        self.kernel, channels = kernel, heads * self.shape.d_head
        self.v, self.u = linear_start(layers, rank, width), linear_start(layers, channels, rank)
        self.conv = linear_start(layers, channels, kernel)
        self.a = nn.Parameter(torch.randn(layers, heads, width) * width**-0.5)
        self.c = nn.Parameter(torch.zeros(layers, heads))

    def scores(self, q: Tensor, k: Tensor, ctx: Pass) -> Tensor:
        with full_precision(q.device.type):
            q, k = at_least_float32(q), at_least_float32(k)
            w, beta = (x.to(q.dtype) for x in self.reflections(ctx))
            k = for_each_head(k, q).to(q.dtype)
            return reflected(q / self.shape.d_head**0.5, k, w, beta)

    def reflections(self, ctx: Pass) -> tuple[Tensor, Tensor]:
        """Return w (B, H, S, K) and beta (B, H, S), 0 at padding."""
        x = layer_norm(at_least_float32(ctx.x_for(self.name)), (self.shape.d_model,))
        v, u, conv, a, c = (
            p[ctx.layer].to(x.dtype) for p in (self.v, self.u, self.conv, self.a, self.c)
        )
        beta = 2 * torch.sigmoid(x @ a.mT + c).mT * (ctx.query_pos >= 0)[:, None]
        rows = ctx.with_earlier(f"{self.name}.w", (x @ v.mT @ u.mT).mT)
        rows = silu(short_convolution(rows, conv, ctx))
        rows = rows.view(len(rows), self.shape.n_heads, self.shape.d_head, -1).mT
        w = rows * (rows.square().sum(-1, keepdim=True) + 1e-6).rsqrt()
        return w, ctx.with_earlier(f"{self.name}.beta", beta)


def reflected(q: Tensor, k: Tensor, w: Tensor, beta: Tensor) -> Tensor:
    """Return q_i H_i ... H_(j+1) k_j for q (B, H, T, K), k and w (B, H, S, K): (B, H, T, S).

    In a block of C tokens, token l takes c_l = beta_l w_l (x - sum_(m < l) w_m c_m) from a vector x
    that passes: a triangular system of equations, and a matrix (K, K) for the block. Queries meet
    the keys of their block, then of each block before. Later keys have any score.
    """
    t, s = q.shape[2], k.shape[2]
    size = math.ceil(s / math.ceil(s / (BLOCK if t > 1 else 4 * BLOCK)))  # C
    k, w, beta = (_blocks(x, size) for x in (k, w, beta[..., None]))  # (B, H, N, C, K)
    q = _blocks(q, min(t, size))  # of the last blocks, or the last tokens of one
    first, solve = k.shape[2] - q.shape[2], torch.linalg.solve_triangular
    system = (beta * (w @ w.mT)).tril(-1)  # its diagonal is 1
    after = (beta * (w @ k.mT)).tril(-1)
    met = (q @ w[:, :, first:].mT).tril(size - q.shape[3])
    share = solve(system[:, :, first:], met, upper=False, left=False, unitriangular=True)
    within: Tensor = q @ k[:, :, first:].mT - share @ after[:, :, first:]
    if k.shape[2] == 1:
        return within[:, :, 0]
    q = q - share @ (beta * w)[:, :, first:]
    taken = solve(system, torch.cat([after, beta * w], -1), upper=False, unitriangular=True)
    k, block = k - taken[..., :size].mT @ w, w.mT @ taken[..., size:]
    later, columns = q[:, :, 0, :0], []  # queries behind the block
    for n in reversed(range(k.shape[2])):
        column = later @ k[:, :, n].mT
        later = later - later @ block[:, :, n]
        if n >= first:
            column = torch.cat([within[:, :, n - first], column], 2)
            later = torch.cat([q[:, :, n - first], later], 2)
        columns.append(pad(column, (0, 0, q.shape[2] * q.shape[3] - column.shape[2], 0)))
    return torch.cat(columns[::-1], -1)[:, :, -t:, -s:]


def _blocks(x: Tensor, size: int) -> Tensor:
    """Cut (B, H, S, K) into blocks (B, H, N, C, K), with zeros before the first token."""
    return pad(x, (0, 0, -x.shape[2] % size, 0)).view(*x.shape[:2], -1, size, x.shape[-1])
