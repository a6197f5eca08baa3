"""Learning-based position embeddings, without and with the scale hint."""

import math
from typing import Unpack

import torch
from torch import Tensor, nn
from torch.nn.functional import embedding, gelu

from pezoo.base import Context, Encoding, Shape, Sizes
from pezoo.functional import at_least_float32, key_vectors
from pezoo.registry import register

Mark = tuple[int, int, int]


@register("lbpe")
class LBPE(Encoding):
    """Learn which pairs of positions are alike, and what each kind of pair does to attention.

    Formula: phi(i, j) = softmax(MLP(marks)), a distribution over `values` kinds of pairs. A mark is
    a whole number, clipped to -clip..clip, that the MLP reads as one of 2 clip + 1 symbols: i, j,
    i-j, i-2j, i+j. Then a_ij = q_i W_K (h_j + P' phi(i, j)) / sqrt(K), P a learned vector for each
    kind. The bias returned is what this adds to q_i k_j / sqrt(K).

    Example: if phi puts all pairs with j = 0 into one kind and all others into another, P shows
    every query where the first token is. The mark i-2j is 0 or 1 at the middle of i tokens. Both
    hold at any length: a mark beyond the clip is the symbol that training knows.

    Shapes: q (B, H, T, K) -> (B, H, T, S); phi (B|1, T, S, values), float32 whatever the dtype of
    q. Per layer: a table of hidden units for each mark, N(0, 1/marks) at the start; an output
    uniform in +-sqrt(3/hidden), its offsets 0; P (values, D), Glorot uniform.
    Options: values; hidden, the width of the MLP's one hidden layer (GELU); clip, below the longest
    training length, unless every test position occurs in training; middle, false for phi without
    the mark i-2j.
    Errors: ValueError for a size below 1, and without ctx.w_key, the layer's W_K.

    Paper: Chen et al. 2026, "Limitations and Capabilities of Position Embeddings", section
    "Learning-Based Position Embeddings", with h the normalised input of a pre-LN layer. It leaves
    the network open; marks and sizes are ours: the findings on chen2026-mini have what else was
    tried.
    """

    summary = "a learned function of (i, j) picks the vector added to the keys"
    paper = "Chen et al. 2026"
    reports = "solves selection, copying and parity at longer scales"
    reads = "positions"
    prf_text = "learned: a distribution over kinds of pairs (i, j)"
    version = 2
    marks: tuple[Mark, ...] = (  # coefficients of i, j and n
        (1, 0, 0), (0, 1, 0), (1, -1, 0), (1, -2, 0), (1, 1, 0),
    )  # fmt: skip

    def __init__(
        self,
        shape: Shape | None = None,
        *,
        values: int = 16,
        hidden: int = 32,
        clip: int = 4,
        middle: bool = True,
        **sizes: Unpack[Sizes],
    ) -> None:
        super().__init__(shape, **sizes)
        shape = self.shape
        if min(values, hidden, clip) < 1:
            raise ValueError(
                f"values, hidden and clip must be at least 1, got {values}, {hidden} and {clip}"
            )
        self.clip = clip
        self.marks = tuple(mark for mark in self.marks if middle or mark != (1, -2, 0))
        layers, marks = shape.n_layers, len(self.marks)
        tables = torch.randn(layers, marks, 2 * clip + 1, hidden)
        self.w_hidden = nn.Parameter(tables / math.sqrt(marks))
        self.b_hidden = nn.Parameter(torch.zeros(layers, hidden))
        self.w_out = _uniform(math.sqrt(3 / hidden), layers, hidden, values)
        self.b_out = nn.Parameter(torch.zeros(layers, values))
        limit = math.sqrt(6 / (values + shape.d_model))
        self.p = _uniform(limit, layers, values, shape.d_model)

    def kinds(self, ctx: Context) -> Tensor:
        """Return the distribution over kinds of pairs, (B|1, T, S, values); it sums to 1."""
        w_hidden, b_hidden, w_out, b_out = (
            at_least_float32(parameter[ctx.layer])
            for parameter in (self.w_hidden, self.b_hidden, self.w_out, self.b_out)
        )
        i, j = ctx.query_pos[:, :, None], ctx.pos[:, None]
        symbols = []
        for a, b, c in self.marks:
            mark = a * i if not b else b * j if not a else a * i + b * j  # (B|1, T|1, S|1)
            if c:
                mark = mark + c * ctx.scale_for(self.name)[:, None, None]
            symbols.append(mark.clamp(-self.clip, self.clip) + self.clip)
        radix, index = 2 * self.clip + 1, None
        different = radix ** len(symbols)
        if different < i.shape[1] * j.shape[2]:  # a long text: each combination of symbols once
            index = sum(one * radix**at for at, one in enumerate(symbols))  # (B|1, T, S)
            every = torch.arange(different, device=i.device)
            symbols = [every // radix**at % radix for at in range(len(symbols))]
        hidden = b_hidden
        for symbol, table in zip(symbols, w_hidden, strict=True):
            hidden = hidden + embedding(symbol, table)  # (B|1, T, S, hidden)
        phi = (gelu(hidden) @ w_out + b_out).softmax(-1)
        return phi if index is None else embedding(index, phi)

    def prf(self, ctx: Context) -> Tensor:
        with torch.no_grad():
            return self.kinds(ctx)[0]

    def bias(self, q: Tensor, k: Tensor, ctx: Context) -> Tensor:
        p = key_vectors(self.p[ctx.layer].to(q.dtype), ctx, self.shape, self.name)  # (values, H, K)
        kinds = torch.einsum("bhtk,vhk->bhtv", q, p)
        return torch.einsum("bhtv,btsv->bhts", kinds, self.kinds(ctx).to(q.dtype))


@register("lbpe_sh")
class LBPEScaleHint(LBPE):
    """LBPE with the scale hint: phi(i, j, n) also reads the scale n of the instance.

    Formula: as lbpe, with marks that tell where a pair is in a prompt of one part of n tokens, or
    of two: i-n, i-2n, i-3n, j, j-n, j-2n, i-j, i-j-n, i-j-2n, i+j-2n.

    Example: copying n digits: i-j-n is 0 where j holds the digit that comes next, at any n.

    Shapes: as lbpe, with ctx.scale (B|1,), the length that the task's docstring defines (the digits
    of copy), not a number of tokens; phi has B rows when the scale has.
    Options: as lbpe; middle changes nothing.
    Errors: ValueError when ctx.scale is missing; as lbpe.

    Paper: as lbpe, LBPE-SH.
    """

    summary = "lbpe that also knows the scale n of the instance"
    reads = "positions, length"
    prf_text = "learned: a distribution over kinds of pairs (i, j), given the scale n"
    needs_scale = True
    marks = (
        (1, 0, -1), (1, 0, -2), (1, 0, -3), (0, 1, 0), (0, 1, -1), (0, 1, -2),
        (1, -1, 0), (1, -1, -1), (1, -1, -2), (1, 1, -2),
    )  # fmt: skip


def _uniform(limit: float, *size: int) -> nn.Parameter:
    return nn.Parameter(torch.empty(size).uniform_(-limit, limit))
