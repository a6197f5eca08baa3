"""Scalable softmax: logits that grow with the logarithm of the number of keys."""

import math
from collections.abc import Callable
from typing import Unpack

import torch
from torch import Tensor, nn

from pezoo.base import BiasForm, Encoding, FormKind, Pass, ScoreMod, Shape, Sizes
from pezoo.functional import at_least_float32, visible_keys
from pezoo.registry import register
from pezoo.wrapper import ScaledQueries, Wrapper


@register("ssmax")
class SSMax(ScaledQueries):
    """Multiply the queries of another encoding by s log n, so that attention stays sharp.

    Formula: a_ij = q_i k_j / sqrt(K) * f_i + b_ij, f_i = s_h log n_i, n_i the keys that query i
    sees, itself included; s_h is learned for each head and layer. b_ij is the inner bias, of q_i
    as it is. For n = 1 the factor is that of 2, which changes no softmax. With `floor`, nothing is
    learned: f_i = 1 + rate log(1 + floor(n_i / floor)), or, with `log_n`, max(1, 1 + rate log(n_i /
    floor)).

    Example: s = 1/2: a logit of 2 becomes 2.08 with 8 keys and 4.16 with 64. If all others are 0,
    its key gets .53 and .50 of the weight; from softmax it gets .51 and .10.

    Shapes: those of the inner encoding, q in float32 at least. s (n_layers, h), over the last h
    heads: those without positions if only the first have them (`nape`), otherwise all.

    Options
        start       of s; None is 1 over the mean of log n at n = 1..train_len, so that training
                    begins with logits of the usual size: ours. The code of Vasylenko et al. has
                    start=1, with a noise of .01.
        scale_bias  multiplies the inner bias too, if it is a function of positions; -inf stays.
                    The paper multiplies whole logits, but has no bias.
        floor, rate  of Llama 4, whose layers without RoPE have 8192 and .1, the default rate.
        log_n   scales beyond `floor` alone, by default train_len, and at the rate 1 / log(floor):
                f_i = log n_i / log floor, as in the code of ReRoPE (Su 2023) and in
                `rerope(log_n=true)`. Around `nope` with a rate c it is DroPE's temperature 1 + c ln
                s (Gelberg et al. 2025) for s = n_i / floor. There s is that of the whole text, and
                the formula was not checked against the paper, nor is its c known here.
    n counts keys of the query's own document, without padding. It is for decoders: an encoder's
    queries see later keys too, which are not counted.
    Errors: ValueError for a floor below 0.

    Paper: Nakanishi 2025, "Scalable-Softmax Is Superior for Attention": weights proportional to
    n^(s z), with RoPE. Llama 4's is in its code in transformers.
    """

    summary = "another encoding, its logits times log n, for n keys"
    paper = "Nakanishi 2025"
    reports = "retrieves better and loses less perplexity beyond the training length"
    reads = "number of keys"
    wraps = "rope"
    causal_only = True

    def __init__(
        self,
        shape: Shape | None = None,
        make_inner: Callable[[Shape], Encoding] | None = None,
        *,
        start: float | None = None,
        scale_bias: bool = False,
        floor: int = 0,
        rate: float | None = None,
        log_n: bool = False,
        **sizes: Unpack[Sizes],
    ) -> None:
        super().__init__(shape, make_inner, **sizes)
        if scale_bias:
            self.refuse_itself("to scale the bias once, set it in that one")
        if floor < 0:
            raise ValueError(f"floor must be at least 0, got {floor}")
        floor = floor or (max(2, self.shape.train_len) if log_n else 0)
        usual = 1 / math.log(max(2, floor)) if log_n else 0.1
        self.scale_bias, self.floor, self.log_n = scale_bias, floor, log_n
        self.rate = usual if rate is None else rate
        if floor and self.inner.rope_within:
            self.rope_within = min(self.inner.rope_within, floor - (not log_n))
        if not floor:
            heads = self.shape.n_heads - self.first_free
            if start is None:
                n = torch.arange(self.shape.train_len, device="cpu").float() + 1
                start = 1 / float(_log(n).mean())
            self.s = nn.Parameter(torch.full((self.shape.n_layers, heads), start))

    def factor(self, ctx: Pass) -> Tensor:
        n = visible_keys(ctx)[:, None, :, None]
        if self.log_n:
            return (1 + self.rate * (n / self.floor).log()).clamp(min=1)
        if self.floor:
            return 1 + self.rate * (n // self.floor).float().log1p()
        s = at_least_float32(self.s[ctx.layer])[:, None, None]
        factor = s * _log(n.to(s.dtype))
        return nn.functional.pad(factor, (0, 0, 0, 0, self.first_free, 0), value=1.0)

    def bias(self, q: Tensor, k: Tensor, ctx: Pass) -> Tensor | None:
        bias = super().bias(q, k, ctx)
        if bias is None or not self._scales(q, k, ctx):
            return bias
        hidden = bias.isneginf()
        return (bias.masked_fill(hidden, 0) * self.factor(ctx)).masked_fill(hidden, -torch.inf)

    def bias_form(self, q: Tensor, k: Tensor, ctx: Pass, kind: FormKind) -> BiasForm | None:
        return None if self._scales(q, k, ctx) else super().bias_form(q, k, ctx, kind)

    def _scales(self, q: Tensor, k: Tensor, ctx: Pass) -> bool:
        """Return True to multiply the inner bias: a function of positions, not of q."""
        one, here = self.inner, ctx
        while isinstance(one, Wrapper) and type(one).bias is Wrapper.bias:  # it may move positions
            one, here = one.within(here)
        return self.scale_bias and one.bias_form(q, k, here, ScoreMod) is not None


def _log(n: Tensor) -> Tensor:
    return n.clamp(min=2).log()
