"""GOAT: a learned prior over distances and keys, in waves and slopes."""

import math
from typing import Unpack

import torch
from torch import Tensor, nn
from torch.nn.functional import silu, softplus

from pezoo.base import Context, Encoding, Pass, Shape, Sizes
from pezoo.encodings.alibi import slopes
from pezoo.functional import has_float64, own_pairs
from pezoo.registry import register
from pezoo.spec import choice


@register("goat")
class GOAT(Encoding):
    """Add the logarithm of a learned prior: waves of the distance, and what a key has by itself.

    Formula: b_ij = sum_r a_r cos(w_r (i - j)) + c_r sin(w_r (i - j)) + u(j), w_r = base^(-r /
    (rank - 1)), u(j) = g v(j) + s [j = 0] + softplus(m) (j - i); v(j) = y silu(Z f(j) + z),
    with f(j) the cosines and sines of w'_n j, then j / train_len and log(1 + j) / log(1 +
    train_len).

    Example: a = c = 0 and v = 0: the slopes of ALiBi. With s = 5 the first token of a document is a
    sink: it gets e^5 times the weight of others.

    Shapes: -> (B|1, H, T, S), float32 at least, angles float64 where the device has it. Per layer a
    and c (H, rank), g, s and m (H), Z (4, 2 sink_rank + 2), z and y (4), one v for all heads.
    Options: rank and sink_rank, of the waves w and w'; base, of both; start: "seeded" has a
    N(0, 1e-4), c = 0, g = 1, s = 0, softplus(m) as in ALiBi, and Z and y N(0, 1e-6); "uniform" is
    all but nope: a = 0, y = 0 and softplus(m) = 1e-13.
    Errors: ValueError for a rank or sink_rank below 0, a base not above 0 and an unknown start.

    Paper: Litman and Guo 2026, "You Need Better Attention Priors", and the authors' code, whose
    `for_gpt` has rank 0. There these terms take 2 rank + 1 of the K components of q and k; here
    content keeps them all. There softplus(m) multiplies j, which differs by a number for each
    query; without a causal mask it is left out. Heads that share keys have parameters of their own
    here. Left out: the optional gate by the norm of q, and a number that v adds to all keys alike.
    """

    summary = "a learned prior of waves, slopes and sinks"
    paper = "Litman and Guo 2026"
    reports = "better perplexity than rope and alibi on texts longer than in training"
    reads = "position"
    causal_only = True

    def __init__(
        self,
        shape: Shape | None = None,
        *,
        rank: int = 8,
        sink_rank: int = 8,
        base: float = 10_000.0,
        start: str = "seeded",
        **sizes: Unpack[Sizes],
    ) -> None:
        super().__init__(shape, **sizes)
        choice("start", start, ("seeded", "uniform"))
        if min(rank, sink_rank) < 0 or base <= 0:
            raise ValueError(
                f"rank and sink_rank must be at least 0 and base above 0; got {rank}, {sink_rank} "
                f"and {base}"
            )
        self.rank, self.sink_rank, self.base = rank, sink_rank, base
        layers, heads = self.shape.n_layers, self.shape.n_heads
        seeded, inputs = float(start == "seeded"), 2 * sink_rank + 2
        self.a = nn.Parameter(seeded * 1e-2 * torch.randn(layers, heads, rank))
        self.c = nn.Parameter(torch.zeros(layers, heads, rank))
        self.gain = nn.Parameter(torch.ones(layers, heads))
        self.sink = nn.Parameter(torch.zeros(layers, heads))
        raw = slopes(heads).expm1().log() if seeded else torch.full((heads,), -30.0)
        self.raw_slope = nn.Parameter(raw.repeat(layers, 1))
        self.inner = nn.Parameter(1e-3 * torch.randn(layers, 4, inputs))
        self.inner_bias = nn.Parameter(torch.zeros(layers, 4))
        self.outer = nn.Parameter(seeded * 1e-3 * torch.randn(layers, 4))

    def prf(self, ctx: Context) -> Tensor:
        return own_pairs(ctx.pos)

    def sinks(self, ctx: Pass) -> Tensor:
        """Return u without its slope, (B|1, H, S)."""
        pos, layer = ctx.pos.clamp(min=0), ctx.layer
        t, dtype = _exact(pos)[..., None], torch.promote_types(self.gain.dtype, torch.float32)
        length = self.shape.train_len
        near = [t / length, t.log1p() / math.log1p(length)]
        f = torch.cat([*self.waves(pos, self.sink_rank), *near], -1).to(dtype)
        inner, bias, outer, gain, sink = (
            p[layer].to(dtype)
            for p in (self.inner, self.inner_bias, self.outer, self.gain, self.sink)
        )
        v = silu(f @ inner.mT + bias) @ outer  # (B|1, S)
        return gain[:, None] * v[:, None] + sink[:, None] * (pos == 0)[:, None]

    def waves(self, pos: Tensor, rank: int) -> tuple[Tensor, Tensor]:
        """Return the cosines and sines of (B|1, n) positions, (B|1, n, rank)."""
        r = _exact(torch.arange(rank, device=pos.device))
        angle = _exact(pos)[..., None] * self.base ** (-r / max(rank - 1, 1))
        return angle.cos(), angle.sin()

    def bias(self, q: Tensor, k: Tensor, ctx: Pass) -> Tensor:
        u = self.sinks(ctx)
        a, c, slope = (
            p[ctx.layer].to(u.dtype)[:, None] for p in (self.a, self.c, self.raw_slope[..., None])
        )
        cos, sin = (x.to(u.dtype)[:, None] for x in self.waves(ctx.pos, self.rank))
        cos_q, sin_q = cos[:, :, -ctx.new :], sin[:, :, -ctx.new :]
        waves = (a * cos_q + c * sin_q) @ cos.mT + (a * sin_q - c * cos_q) @ sin.mT
        return waves + u[:, :, None] - softplus(slope) * ctx.distance()[:, None]


def _exact(x: Tensor) -> Tensor:
    """Return integers as float64, or float32 where the device has no other."""
    return x.double() if has_float64(x.device) else x.float()
