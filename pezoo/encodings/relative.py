"""Transformer-XL's relative positions."""

import math
from typing import Unpack

import torch
from torch import Tensor, nn
from torch.nn.functional import embedding

from pezoo.base import BiasForm, Columns, Context, Encoding, FormKind, Pass, Shape, Sizes
from pezoo.functional import at_least_float32, distinct, has_float64, inverse_frequencies, sinusoid
from pezoo.registry import register


@register("relative")
class Relative(Encoding):
    """Score queries against a projected sinusoid of the distance, plus learned global biases.

    Formula: a_ij = [(q_i + u) k_j + (q_i + v) (W r_{i-j})] / sqrt(K), r the sinusoid of width D.
    The first term is the product of q + u, which `transform` returns, with k, so that it costs
    nothing in attention; the bias returned is the second.

    Example: q = 0, u = 0, K = 1, D = 2, W = (1, 0), v = 1: bias_ij = sin(i - j).

    Shapes: q, k (B, H, T, K) -> the same, bias (B, H, T, S). Per layer: u, v (H, K), at the start
    N(0, 0.02^2) as in the released code; W (D, H K), at the start uniform in +-1/sqrt(D), like
    torch's linear layers, which is ours. Sinusoids are float32 whatever the dtype of q. Distances
    take both signs, so that it serves encoders too.
    Options: base of the sinusoids.
    Errors: ValueError for an odd D.

    Paper: Dai et al. 2019, "Transformer-XL", Section 3.3. Its u and v are shared by all layers;
    here, as in Ruoss et al. 2023, each layer has its own. The sinusoid has its sines first, then
    its cosines: a permutation of the rows of W. The code released by Ruoss et al. reads row
    L-1 of its L rows for all sampled offsets j - i of at least -1, and in causal mode takes
    T-1-(i-j) for the offset; here it is the formula.
    """

    summary = "scores against a projected sinusoid of the distance"
    paper = "Dai et al. 2019"
    reports = "uses 4.5 times as much context as absolute positions"
    reads = "distance"
    prf_text = "i - j"
    relative = True
    reads_distance = True

    def __init__(
        self, shape: Shape | None = None, *, base: float = 10_000.0, **sizes: Unpack[Sizes]
    ) -> None:
        super().__init__(shape, **sizes)
        shape = self.shape
        if shape.d_model % 2:
            raise ValueError(f"relative needs an even d_model, got {shape.d_model}")
        inverse_frequencies(shape.d_model, base)  # raises for a base that has none
        self.base = base
        layers, width, heads, size = shape.n_layers, shape.d_model, shape.n_heads, shape.d_head
        self.u = nn.Parameter(0.02 * torch.randn(layers, heads, size))
        self.v = nn.Parameter(0.02 * torch.randn(layers, heads, size))
        self.w = nn.Parameter(torch.empty(layers, width, heads * size))
        nn.init.uniform_(self.w, -1 / math.sqrt(width), 1 / math.sqrt(width))

    def transform(self, q: Tensor, k: Tensor, ctx: Context) -> tuple[Tensor, Tensor]:
        return q + self.u[ctx.layer][:, None].to(q.dtype), k

    def prf(self, ctx: Context) -> Tensor:
        return ctx.distance()[0]

    def bias(self, q: Tensor, k: Tensor, ctx: Context) -> Tensor:
        distances, index = distinct(ctx.distance())  # (n,), (B|1, T, S)
        w = at_least_float32(self.w[ctx.layer]) / math.sqrt(self.shape.d_head)
        r = sinusoid(distances, self.shape.d_model, self.base).to(w.dtype) @ w
        rows = r.to(q.dtype).view(len(r), self.shape.n_heads, -1)
        return _scores(self._reader(q, ctx), rows, index)

    def bias_form(self, q: Tensor, k: Tensor, ctx: Pass, kind: FormKind) -> BiasForm | None:
        """D more columns: sin(i - j) = sin i cos j - cos i sin j, likewise the cosine."""
        if kind is not Columns:
            return None
        if ctx.distances is not None or q.shape[2] < self.shape.d_model:
            return None  # drawn distances are not differences; with few queries, columns cost more
        if not has_float64(ctx.pos.device):
            return None
        w = at_least_float32(self.w[ctx.layer]).view(-1, *self.u.shape[1:])  # (D, H, K)
        a, b = torch.einsum("bhtk,dhk->bhtd", self._reader(q, ctx).to(w.dtype), w).chunk(2, -1)
        (sin_i, cos_i), (sin_j, cos_j) = (
            [x.to(w.dtype) for x in self._waves(pos)] for pos in (ctx.query_pos, ctx.pos)
        )
        columns = torch.cat([b * cos_i + a * sin_i, b * sin_i - a * cos_i], -1)
        waves = torch.cat([cos_j, sin_j], -1).expand(*k.shape[:3], -1)
        return Columns(
            torch.cat([q, columns.to(q.dtype)], -1), torch.cat([k, waves.to(k.dtype)], -1)
        )

    def _waves(self, pos: Tensor) -> tuple[Tensor, Tensor]:
        """Return sines and cosines of positions, (B|1, 1, T, D/2), computed in float64."""
        w = inverse_frequencies(self.shape.d_model, self.base, pos.device).double()
        angle = pos[:, None, :, None] * w
        return angle.sin(), angle.cos()

    def _reader(self, q: Tensor, ctx: Context) -> Tensor:
        """Return q + v; `transform` has added u to q."""
        return q + (self.v - self.u)[ctx.layer][:, None].to(q.dtype)


def _scores(q: Tensor, rows: Tensor, index: Tensor) -> Tensor:
    """Multiply q (B, H, T, K) by rows[index], rows (n, H, K), index (B|1, T, S): (B, H, T, S).

    Either every query meets every row and the index picks, or every pair gets its own row: the
    same numbers, whichever needs less memory.
    """
    (batch, heads, _, size), (n, keys) = q.shape, (rows.shape[0], index.shape[2])
    if batch * n <= index.shape[0] * keys * size:
        scores = torch.einsum("bhtk,nhk->bhtn", q, rows)
        return scores.gather(-1, index[:, None].expand(batch, heads, -1, -1))
    picked = embedding(index, rows.flatten(1)).view(*index.shape, *rows.shape[1:])
    return torch.einsum("bhtk,btshk->bhts", q, picked)  # a batch of one broadcasts
