"""SeqPE: a small Transformer reads the digits of each position."""

from dataclasses import replace
from typing import Unpack

import torch
from torch import Tensor, nn
from torch.nn.functional import embedding, gelu

from pezoo.base import Context, Encoding, Pass, Shape, Sizes
from pezoo.functional import distinct, for_each_head, full_precision, own_pairs
from pezoo.initial import owned
from pezoo.registry import register

ROWS = "seqpe.rows"


@register("seqpe")
class SeqPE(Encoding):
    """Add the product of two vectors that a small Transformer writes of the digits of i and of j.

    Formula: a_ij = (q_i k_j + p_i r_j) / sqrt(K), per head. Digit d at place n of a position, with
    zeros before it, enters as e_d + f_n; a last token g reads the causal encoder's result, h; with
    y = W LN(h) + w, p and r are the halves of V y + v.

    Example: digits = 3: position 7 is read as 0 0 7 g. All positions below 1,000 have vectors, also
    those that training has not shown.

    Shapes: q, k (B, H, T, K) -> (B, H, T, 2K). Shared by all layers: e (10, width), f (digits,
    width), g, `layers` encoder layers (width, H heads, pre-norm, GELU by tanh, 4 width inside),
    W (width, width), V (2 H K, width). At the start all N(0, 0.02^2), biases 0, norms 1.
    Options: digits, at most, 5 as for the authors' language models; layers; width, D by default.
    Errors: PositionError from 10^digits on; ValueError for digits or layers below 1, and a width
    that H does not divide.

    Paper: Li et al. 2025b, "SeqPE: Transformer with Sequential Position Encoding", and the authors'
    code for text (attn_scalar, one pe_qk for all layers). Left out: its losses over positions drawn
    at random, by which near ones are alike and later ones imitate those of training, and on which
    its extrapolation rests; dropout; and random starts of texts, as in `shifted:seqpe`.
    """

    summary = "products of vectors that a small Transformer writes of digits of positions"
    paper = "Li et al. 2025b"
    reports = "lower perplexity than alibi and rope on texts longer than in training"
    reads = "positions"
    prf_text = "the pair: i n + j"

    def __init__(
        self,
        shape: Shape | None = None,
        *,
        digits: int = 5,
        layers: int = 2,
        width: int | None = None,
        **sizes: Unpack[Sizes],
    ) -> None:
        super().__init__(shape, **sizes)
        heads, width = self.shape.n_heads, self.shape.d_model if width is None else width
        if min(digits, layers) < 1 or width < 1 or width % heads:
            raise ValueError(
                f"digits and layers must be at least 1, and n_heads={heads} divide the width; got "
                f"{digits}, {layers} and {width}"
            )
        self.digits, self.max_len = digits, 10**digits
        self.e, self.f, self.g = (
            nn.Parameter(torch.empty(*size, width)) for size in ((10,), (digits,), (1,))
        )
        self.encoder = nn.Sequential(*(_Block(width, heads) for _ in range(layers)))
        self.norm, self.out = nn.LayerNorm(width), nn.Linear(width, width)
        self.both = nn.Linear(width, 2 * heads * self.shape.d_head)
        for name, one in self.named_parameters():
            if "norm" not in name:
                nn.init.zeros_(one) if name.endswith("bias") else nn.init.normal_(one, std=0.02)
        for module in self.modules():
            if isinstance(module, nn.Linear):
                owned(module)

    def prf(self, ctx: Context) -> Tensor:
        return own_pairs(ctx.pos)

    def prepare(self, ctx: Context) -> Pass:
        ctx = super().prepare(ctx)
        values, index = distinct(ctx.query_pos.clamp(min=0))
        with full_precision(values.device.type):
            rows = self.rows(values)[index]
        return replace(ctx, drawn={**(ctx.drawn or {}), ROWS: rows})

    def rows(self, pos: Tensor) -> Tensor:
        """Return p and r of positions (n,), (n, 2, H, K)."""
        places = 10 ** torch.arange(self.digits - 1, -1, -1, device=pos.device)
        x = embedding(pos[:, None] // places % 10, self.e) + self.f
        x = torch.cat([x, self.g.expand(len(x), -1, -1)], 1)
        both: Tensor = self.both(self.out(self.norm(self.encoder(x)[:, -1])))
        return both.view(len(x), 2, self.shape.n_heads, self.shape.d_head)

    def transform(self, q: Tensor, k: Tensor, ctx: Pass) -> tuple[Tensor, Tensor]:
        ctx.check_prepared()
        p, r = (ctx.drawn or {})[ROWS].to(q.dtype).permute(2, 0, 3, 1, 4)  # (B|1, H, T, K)
        k = for_each_head(k, q)
        return torch.cat([q, p.expand_as(q)], -1), torch.cat([k, r.to(k.dtype).expand_as(k)], -1)


class _Block(nn.Module):
    """A layer of the encoder, of causal attention."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads, self.norm_1, self.norm_2 = heads, nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.mix = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        n, t, width = x.shape
        q, k, v = self.qkv(self.norm_1(x)).view(n, t, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        hidden = torch.ones(t, t, dtype=torch.bool, device=x.device).triu(1)
        logits = (q @ k.mT * (width // self.heads) ** -0.5).masked_fill(hidden, -torch.inf)
        x = x + self.mix((logits.softmax(-1) @ v).transpose(1, 2).flatten(2))
        y: Tensor = x + self.down(gelu(self.up(self.norm_2(x)), approximate="tanh"))
        return y
