"""PaTH: each token reflects what passes it on the way from key to query."""

from typing import Unpack

import torch
from torch import Tensor, nn
from torch.nn.functional import layer_norm, normalize

from pezoo.base import Encoding, Pass, Shape, Sizes
from pezoo.functional import at_least_float32, full_precision, linear_start, short_convolution
from pezoo.registry import register


@register("path")
class PaTH(Encoding):
    """Multiply each key by a matrix of every token after it, up to the query.

    Formula: z_ij = q_i H_i H_(i-1) ... H_(j+1) k_j / sqrt(K), H_l = I - beta_l w_l w_l', beta_l = 2
    sigmoid(a LN(x_l) + c), w_l the vector of length 1 in the direction of the convolution of U V
    LN(x) over the `kernel` last tokens. x is the layer's input, LN a layer norm without weights.

    Example: beta = 0: nothing. beta = 1: tokens of equal w hide what lies before them in that
    direction. beta = 2 and w orthogonal: signs, so that q k counts tokens modulo 2.

    Shapes: q, k (B, H, T, K) -> scores (B, H, T, S), float32 at least. Per layer V (rank, D) and U
    (H K, rank), at the start uniform in +-1/sqrt(D) and +-1/sqrt(rank); a convolution for each
    channel (H K, kernel), at the start uniform in +-1/sqrt(kernel); a (H, D), N(0, 1/D), and c (H),
    0. The keys that a query sees keep their order; none are padding or of another document.
    Options: rank; kernel.
    Errors: ValueError without ctx.x and for a rank or kernel below 1.

    Paper: Yang et al. 2025b, "PaTH Attention", without the gates of PaTH-FoX. Each token
    changes every earlier key: while decoding, keys are cached as they came, and
    the scores of new tokens are computed from w and beta of all, at a cost of T S^2 for each head.
    Starts are ours.
    """

    summary = "keys reflected by each token on their way to the query"
    paper = "Yang et al. 2025b"
    reports = "tracks states, and models text better than rope"
    reads = "text"
    relative = True
    causal_only = True

    def __init__(
        self,
        shape: Shape | None = None,
        *,
        rank: int = 32,
        kernel: int = 3,
        **sizes: Unpack[Sizes],
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
            k = k.repeat_interleave(q.shape[1] // k.shape[1], 1).to(q.dtype)
            return reflected(q / self.shape.d_head**0.5, k, w, beta)

    def reflections(self, ctx: Pass) -> tuple[Tensor, Tensor]:
        """Return w (B, H, S, K) and beta (B, H, S), 0 at padding."""
        x = at_least_float32(ctx.x_for(self.name))
        x = layer_norm(x, x.shape[-1:])
        v, u, conv, a, c = (
            p[ctx.layer].to(x.dtype) for p in (self.v, self.u, self.conv, self.a, self.c)
        )
        beta = 2 * torch.sigmoid(x @ a.mT + c).mT * (ctx.query_pos >= 0)[:, None]
        rows = ctx.with_earlier(f"{self.name}.w", (x @ v.mT @ u.mT).mT)
        rows = short_convolution(rows, conv, ctx)
        rows = rows.view(len(rows), self.shape.n_heads, self.shape.d_head, -1)
        return normalize(rows.mT, dim=-1), ctx.with_earlier(f"{self.name}.beta", beta)


def reflected(q: Tensor, k: Tensor, w: Tensor, beta: Tensor) -> Tensor:
    """Return q_i H_i ... H_(j+1) k_j for q (B, H, T, K), k and w (B, H, S, K): (B, H, T, S).

    What token l takes from key j is c_lj = beta_l w_l (k_j - sum_(j < m < l) w_m c_mj): a system of
    equations with a triangular matrix, c = M^-1 N, and the result is q_i k_j - sum_l q_i w_l c_lj.
    """
    after = (beta[..., None] * (w @ k.mT)).tril(-1)
    system = (beta[..., None] * (w @ w.mT)).tril(-1)  # its diagonal is 1
    met = (q @ w.mT).tril(k.shape[2] - q.shape[2])
    share = torch.linalg.solve_triangular(system, met, upper=False, left=False, unitriangular=True)
    scores: Tensor = q @ k.mT - share @ after
    return scores
