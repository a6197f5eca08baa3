"""DAPE: a bias that a small network adapts to the content."""

import math
from collections.abc import Callable
from typing import Unpack

import torch
from torch import Tensor, nn
from torch.nn.functional import leaky_relu

from pezoo.base import BiasForm, Encoding, FormKind, Pass, Shape, Sizes
from pezoo.functional import at_least_float32, for_each_head, full_precision
from pezoo.registry import register
from pezoo.wrapper import Wrapper


@register("dape")
class DAPE(Wrapper):
    """Add to the bias of another encoding what a network makes of it and of the logits.

    Formula: z = s + b + f([s; b]), s_ij = q_i k_j / sqrt(K) and b the inner bias. For each pair of
    tokens, f maps the 2H values of all heads to H: a linear layer of `width`, LeakyReLU, a linear
    layer.

    Example: f = 0: the inner encoding. H = 1, width = 1, f([s; b]) = LeakyReLU(-s - b): the logit
    s + b = 2 becomes 1.98, since the slope below 0 is .01, and -2 becomes 0.

    Shapes: q, k (B, H, T, K) -> (B, H, T, S), float32 at least. Per layer w_in (width, 2H), b_in
    (width), w_out (H, width) and b_out (H), at the start uniform in +-1/sqrt(n) for n inputs, as
    torch's linear layers, in the released code too. A bias of -inf stays; f reads 0 there, and for
    an inner encoding without a bias.
    Options: width, of the hidden layer.
    Errors: ValueError for a width below 1.

    Paper: Zheng et al. 2024, "DAPE: Data-Adaptive Positional Encoding for Length Extrapolation",
    there around KERPLE, ALiBi and FIRE. f reads every head, so that heads without
    positions (`nape`) get some. No kernel can fuse it.
    """

    summary = "another encoding's bias, adapted to the logits by a small network"
    paper = "Zheng et al. 2024"
    reports = "better perplexity than fixed biases, up to 64 times the training length"
    reads = "text"
    wraps = "kerple"
    changes = "logits"
    reach = 1  # keys that a layer of the network reads

    def __init__(
        self,
        shape: Shape | None = None,
        make_inner: Callable[[Shape], Encoding] | None = None,
        *,
        width: int = 32,
        **sizes: Unpack[Sizes],
    ) -> None:
        super().__init__(shape, make_inner, **sizes)
        if width < 1:
            raise ValueError(f"width must be at least 1, got {width}")
        layers, heads = self.shape.n_layers, self.shape.n_heads
        for name, n, out in (("in", 2 * heads, width), ("out", width, heads)):
            limit = 1 / math.sqrt(n * self.reach)
            for part, size in (("w", (out, n, self.reach)), ("b", (out,))):
                start = torch.empty(layers, *size).uniform_(-limit, limit)
                self.register_parameter(f"{part}_{name}", nn.Parameter(start))

    def claim(self) -> None:
        super().claim()
        self.heads_with_positions = None

    def bias(self, q: Tensor, k: Tensor, ctx: Pass) -> Tensor:
        with full_precision(q.device.type):
            scores, bias = super().scores(q, k, ctx), super().bias(q, k, ctx)
            if scores is None:
                k = for_each_head(k, q)
                scores = at_least_float32(q) @ at_least_float32(k).mT * self.shape.d_head**-0.5
            bias = torch.zeros_like(scores) if bias is None else bias.to(scores.dtype)
            bias = bias.expand_as(scores)
            both = torch.cat([scores, bias.masked_fill(bias.isneginf(), 0)], 1)
            return bias + self.adapted(both, ctx)

    def adapted(self, both: Tensor, ctx: Pass) -> Tensor:
        """Return f of the logits and the bias: (B, 2H, T, S) -> (B, H, T, S)."""
        hidden = leaky_relu(self.layer(both, "in", ctx), inplace=True)
        return self.layer(hidden, "out", ctx)

    def layer(self, x: Tensor, name: str, ctx: Pass) -> Tensor:
        """Return a linear layer over the heads of x (B, n, T, S), the same for each pair."""
        w, b = (getattr(self, f"{part}_{name}")[ctx.layer].to(x.dtype) for part in "wb")
        w = w[..., 0].expand(len(x), -1, -1)
        return torch.baddbmm(b[:, None], w, x.flatten(2)).view(len(x), -1, *x.shape[2:])

    def bias_form(self, q: Tensor, k: Tensor, ctx: Pass, kind: FormKind) -> BiasForm | None:
        return None
