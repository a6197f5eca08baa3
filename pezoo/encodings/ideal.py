"""Ideal position embeddings, which use the positional relation function that the task declares."""

import math
from typing import Unpack

import torch
from torch import Tensor, nn

from pezoo.base import Context, Encoding, Shape, Sizes
from pezoo.functional import key_vectors
from pezoo.registry import register


@register("ideal")
class Ideal(Encoding):
    """Add to each key a learned vector for its role in the task: an oracle, not a competitor.

    Formula: a_ij = q_i W_K (h_j + P_phi(i,j)) / sqrt(K), P a learned vector per value of phi, and
    phi(i, j) = ctx.task_prf(i, j, None), which the task declares: 0 where the query does not need
    the key, else what it needs it for. The bias returned is the second term.

    Example: a copy of N digits, "=" at N: phi(i, j) = 1 where j = i - N, for i = N .. 2N-1; the
    query at N ("=") has phi = 1 at key 0.

    Shapes: q (B, H, T, K) -> (B, H, T, S); phi (B|1, T, S) int64. P (n_layers, values, D), at the
    start Glorot uniform over (values, D).
    Options: values, how many values of phi have a vector: 0 .. values - 1.
    Errors: ValueError if ctx.task_prf or ctx.w_key, the layer's W_K, is missing, or if the task's
    PRF depends on the scale, which phi(i, j) does not; torch's RuntimeError or IndexError
    for a phi outside 0 .. values - 1.

    Paper: Chen et al. 2026, "Limitations and Capabilities of Position Embeddings", Section VI: the
    ideal PE (IPE), "whose PRF faithfully characterizes" the task's steps (Definition 6). Its
    implementation is in an appendix that is not printed: this is its key-only form of learned
    encodings (Section VII), with the task's phi in place of a learned one.
    """

    summary = "an oracle: the task tells what each key is needed for"
    paper = "Chen et al. 2026"
    reports = "the right positional relation makes a task solvable at any length"
    reads = "the solution"
    prf_text = "the task's own phi(i, j), 0 for a key that is not needed"
    version = 2
    oracle = True

    def __init__(
        self, shape: Shape | None = None, *, values: int = 16, **sizes: Unpack[Sizes]
    ) -> None:
        super().__init__(shape, **sizes)
        shape = self.shape
        if values < 2:
            raise ValueError(f"values must be at least 2, got {values}")
        limit = math.sqrt(6 / (values + shape.d_model))
        table = torch.empty(shape.n_layers, values, shape.d_model)
        self.p = nn.Parameter(table.uniform_(-limit, limit))

    def kinds(self, ctx: Context) -> Tensor:
        """Return the kind of each pair, (B|1, T, S) int64."""
        if ctx.task_prf is None:
            raise ValueError(
                f"{self.name} needs the task's positional relation function: set ctx.task_prf, "
                "(i, j, n) -> int64"
            )
        n = ctx.scale_for(self.name)[:, None, None] if self.needs_scale else None
        return ctx.task_prf(ctx.query_pos[:, :, None], ctx.pos[:, None], n)

    def prf(self, ctx: Context) -> Tensor | None:
        return None if ctx.task_prf is None else self.kinds(ctx)[0]

    def bias(self, q: Tensor, k: Tensor, ctx: Context) -> Tensor:
        p = key_vectors(self.p[ctx.layer].to(q.dtype), ctx, self.shape, self.name)  # (values, H, K)
        scores = torch.einsum("bhtk,vhk->bhtv", q, p)
        prf = self.kinds(ctx)[:, None].expand(len(q), q.shape[1], -1, -1)
        return scores.gather(-1, prf)


@register("ideal_sh")
class IdealScaleHint(Ideal):
    """Ideal with the scale hint, phi(i, j, n), for tasks whose PRF depends on the scale n.

    Formula: as ideal, with phi(i, j, n) = ctx.task_prf(i, j, n).

    Example: a copy of n digits: phi(i, j, n) = 1 where j = i - n, for i = n .. 2n-1.

    Shapes: as ideal, with ctx.scale (B|1,), the length that the task's docstring defines; phi has B
    rows when the scale has.
    Options: as ideal.
    Errors: ValueError when ctx.scale is missing; as ideal.

    Paper: as ideal, Section VII-A: IPE-SH.
    """

    summary = "ideal that also knows the scale n of the instance"
    reads = "the solution, length"
    prf_text = "the task's own phi(i, j, n), 0 for a key that is not needed"
    needs_scale = True
