"""FoPE: rotary position embedding with a Fourier series in place of each frequency."""

import math
from collections.abc import Mapping
from typing import Any, Unpack

import torch
from torch import Tensor, nn
from torch.nn.functional import pad

from pezoo.base import Context, Encoding, Pass, Shape, Sizes
from pezoo.encodings.rope import RoPE
from pezoo.functional import at_least_float32, for_each_head, full_precision
from pezoo.registry import register


@register("fope")
class FoPE(Encoding):
    """Turn pairs of q and k by sums of frequencies, and leave slow pairs as they are.

    Formula: a pair (a, b) at position p becomes (a c - b s, a s + b c), c = sum_n C_nm cos(p w_n)
    and s = sum_n S_nm sin(p w_n) for pair m. The sums run over rope's frequencies w_n whose period
    2 pi / w_n is at most `period`; pairs of slower frequencies keep c = 1, s = 0.

    Example: C = S = identity: rope, but for its slow pairs, which encode no position. K = 64 and
    512 tokens of training: 16 of 32 pairs turn.

    Shapes: q, k (B, H, T, K) -> the same, float32 at least. C and S (n_layers, H, n, n) for n
    frequencies, at the start the identity plus N(0, 2 gain^2 / (n (n + H))), the Glorot normal of
    the authors' code for a tensor (H, n, n). Angles are float32.

    Options
        base, layout, rope_parameters  as in rope
        period        longest period that is kept; 0 is train_len, as in the paper
        gain          of the noise; 0 is rope without its slow pairs
        learned       trains C and S; by default they stay as drawn, as in the paper

    Errors: those of rope; ValueError for a base that is not above 1, a negative period or gain, and
    frequencies that depend on the length of the text.

    Paper: Hua et al. 2025, "Fourier Position Embedding". In its code the pairs that are
    left out have c = s = 1, which doubles their part of q k, and no more than half of the pairs
    turn. With noise, q_i k_j depends on i and j, not on i - j alone.
    """

    c: Tensor
    s: Tensor
    summary = "rope with a sum of frequencies in each pair, without slow ones"
    paper = "Hua et al. 2025"
    reports = "steadier perplexity and retrieval than rope and alibi on longer texts"
    reads = "positions"
    rope_within = 0

    def __init__(
        self,
        shape: Shape | None = None,
        *,
        base: float = 10_000.0,
        layout: str = "interleaved",
        rope_parameters: Mapping[str, Any] | str = "default",
        period: int = 0,
        gain: float = 0.3,
        learned: bool = False,
        **sizes: Unpack[Sizes],
    ) -> None:
        super().__init__(shape, **sizes)
        if base <= 1 or period < 0 or gain < 0:
            raise ValueError(
                "base must be above 1, period and gain at least 0; "
                f"got base={base}, period={period} and gain={gain}"
            )
        self.rope = RoPE(self.shape, base=base, layout=layout, rope_parameters=rope_parameters)
        shape, self.relative = self.shape, gain == 0 and not learned
        w, self.factor = self.rope.fixed_frequencies(self.name, torch.device("cpu"))
        n = int((w >= 2 * math.pi / (period or shape.train_len)).sum())
        std = gain * math.sqrt(2 / (max(1, n) * (n + shape.n_heads)))
        for name in ("c", "s"):
            start = torch.eye(n) + std * torch.randn(shape.n_layers, shape.n_heads, n, n)
            if learned:
                self.register_parameter(name, nn.Parameter(start))
            else:
                self.register_buffer(name, start)

    def prepare(self, ctx: Context) -> Pass:
        return self.rope.prepare(Pass.of(super().prepare(ctx), prepared=False))

    def transform(self, q: Tensor, k: Tensor, ctx: Pass) -> tuple[Tensor, Tensor]:
        c, s = at_least_float32(self.c[ctx.layer]), at_least_float32(self.s[ctx.layer])
        wave = self.rope.rotation(ctx)[..., : len(c[0])]
        with full_precision(q.device.type):
            turn = torch.complex(wave.real.to(c.dtype) @ c, wave.imag.to(s.dtype) @ s)
        turn = pad(turn, (0, self.shape.d_head // 2 - turn.shape[-1]), value=self.factor)
        k = for_each_head(k, q)
        return self.rope.rotated(q, turn), self.rope.rotated(k, turn)
