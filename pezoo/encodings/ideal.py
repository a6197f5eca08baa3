"""Ideal position embeddings: the relation that a task needs, written by hand."""

import math
from collections.abc import Callable

import torch
from torch import Tensor, nn

from pezoo.base import Context, Encoding, Shape
from pezoo.registry import register
from pezoo.spec import unknown

# Which of the n tokens of the prompt is token t of the answer: (t, n) -> its place.
RELATIONS: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "copy": lambda t, n: t + 0 * n,
    "reverse": lambda t, n: n - 1 - t,
    "odds_first": lambda t, n: torch.where(t < n // 2, 2 * t + 1, 2 * (t - n // 2)),
}


@register("ideal")
class Ideal(Encoding):
    """Mark, for each query, the key that a task says it needs: an oracle, not a competitor.

    Formula: a_ij = q_i (k_j + P_phi(i,j,n)) / sqrt(K), P a learned vector per value of phi. The
    bias returned is the second term. A prompt has tokens 0..n-1 and "=" at n, so that the query at
    i = n + t writes token t of the answer: phi(i, j, n) = 1 where 0 <= t < n and j = source(t, n),
    else 0.

    Example: source(t, n) = t copies: with n = 3, the query at 3 ("=") has phi = 1 at key 0.

    Shapes: q (B, H, T, K) -> (B, H, T, S), with ctx.scale (B|1,), the number n; phi (B|1, T, S)
    int64, with B rows when the scale has. P (n_layers, 2, H, K), at the start Glorot uniform over
    (2, K).
    Options: relation, the task: copy (source t), reverse (n-1-t) or odds_first (2t+1, and
    2 (t - floor(n/2)) from t = floor(n/2) on).
    Errors: ValueError when ctx.scale is missing, and for an unknown relation.

    Paper: Chen et al. 2026, "Limitations and Capabilities of Position Embeddings": the ideal PE
    with scale hint (IPE-SH), whose phi follows a task's steps. Deviations: these relations are
    ours, for this project's formats; P lives after W_K, one vector per head, as in lbpe.
    """

    summary = "an oracle: marks the key that the task needs, by hand"
    paper = "Chen et al. 2026"
    needs_scale = True

    def __init__(self, shape: Shape, *, relation: str = "copy") -> None:
        super().__init__(shape)
        if relation not in RELATIONS:
            raise ValueError(unknown("relation", relation, RELATIONS))
        self.relation = relation
        limit = math.sqrt(6 / (2 + shape.d_head))
        table = torch.empty(shape.n_layers, 2, shape.n_heads, shape.d_head)
        self.p = nn.Parameter(table.uniform_(-limit, limit))

    def phi(self, ctx: Context) -> Tensor:
        """(B|1, T, S) int64: 1 at the key that the query needs."""
        n = ctx.scale_for("ideal")[:, None]
        t = ctx.query_pos - n
        source = RELATIONS[self.relation](t, n).masked_fill((t < 0) | (t >= n), -2)  # nowhere
        return (ctx.pos[:, None] == source[..., None]).long()

    def bias(self, q: Tensor, k: Tensor, ctx: Context) -> Tensor:
        rows = self.p[ctx.layer].to(q.dtype) / math.sqrt(self.shape.d_head)
        other, needed = torch.einsum("bhtk,vhk->vbht", q, rows)[..., None]
        return torch.where(self.phi(ctx)[:, None] == 1, needed, other)
