"""BAM: a penalty that is a power of the distance, learned for each head."""

from typing import Unpack

import torch
from torch import Tensor, nn

from pezoo.base import BiasForm, Context, Encoding, FormKind, ParamGroup, ScoreMod, Shape, Sizes
from pezoo.encodings.alibi import slopes
from pezoo.functional import at_least_float32
from pezoo.registry import register


@register("bam")
class BAM(Encoding):
    """Weight keys by a generalised Gaussian of the distance, with a learned power and scale.

    Formula: b_ij = -exp(s_h) (|i - j| + 0.00001)^(t_h).

    Example: exp(s) = 1/2: the token four back gets -2 if t = 1, -1 if t = 1/2 and -8 if t = 2.

    Shapes: -> (B|1, H, T, S). s and t (H,), one for all layers, without weight decay. At the start
    s is the logarithm of ALiBi's slope. Distances are integers, powers float32 at least.
    Options: start, of t: 1, which is ALiBi but for 0.00001 m_h, the same for every key.

    Paper: Bianchessi et al. 2025, "Bayesian Attention Mechanism", with the prior's mean at the
    token itself, as its code trains it; that pairs it with scalable softmax, which multiplies the
    bias too: `ssmax(scale_bias=true):bam`. Two things about the values: heads that start with
    ALiBi's large slopes give far keys no weight, so that only near ones can lower t; and with t
    below 0 the bias rises with distance, but the token itself gets -exp(s) 100000^(-t), no weight.
    """

    summary = "a learned penalty, a power of the distance, from ALiBi's"
    paper = "Bianchessi et al. 2025"
    reports = "finds a passkey at 500 times the training length, with ssmax"
    reads = "distance"
    prf_text = "|i - j|"
    relative = True
    reads_distance = True
    version = 2

    def __init__(
        self, shape: Shape | None = None, *, start: float = 1.0, **sizes: Unpack[Sizes]
    ) -> None:
        super().__init__(shape, **sizes)
        self.s = nn.Parameter(slopes(self.shape.n_heads).log())
        self.t = nn.Parameter(torch.full((self.shape.n_heads,), start))

    def param_groups(self) -> list[ParamGroup]:
        return [ParamGroup([self.s, self.t], weight_decay=0.0)]

    def prf(self, ctx: Context) -> Tensor:
        return ctx.distance()[0].abs()

    def bias_form(self, q: Tensor, k: Tensor, ctx: Context, kind: FormKind) -> BiasForm | None:
        scale, power = at_least_float32(self.s).exp(), at_least_float32(self.t)

        def value(h: Tensor, i: Tensor, j: Tensor) -> Tensor:
            return -scale[h] * (ctx.distance(i, j).abs().to(scale.dtype) + 1e-5) ** power[h]

        return ScoreMod(value) if kind is ScoreMod else None
