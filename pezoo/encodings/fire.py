"""FIRE: a small network of the distance, relative to how far back a token could look."""

import math
from typing import Unpack

import torch
from torch import Tensor, nn
from torch.nn.functional import pad, relu

from pezoo.base import BiasForm, Context, Encoding, FormKind, ScoreMod, Shape, Sizes
from pezoo.functional import at_least_float32
from pezoo.registry import register


@register("fire")
class FIRE(Encoding):
    """Add to each logit a learned function of the distance over the query's own position.

    Formula: b_ij = f_h(log(1 + c |i - j|) / log(1 + c max(i, L))), f a network of one hidden layer
    with ReLU and an output per head, c and L learned. So the farthest key is at about 1 however
    long the text is, once i is above L; up to L the bias depends on the distance alone.

    Example: c = 0.1, L = 512: at i = 9 the token three back gets f(log 1.3 / log 52.2) = f(0.066).

    Shapes: -> (B|1, H, T, S). Per layer c and L (), and the network 1 -> hidden -> H, which starts
    as torch's linear layers do. Positions are integers, logarithms float32 at least.
    Options: hidden, units of the network; c and threshold, the initial c and L.
    Errors: ValueError for a hidden below 1, and for a c or threshold not above 0 and finite.

    Paper: Li et al. 2024, "Functional Interpolation for Relative Positions Improves Long Context
    Transformers", Equation 4; 32 hidden units, c = 0.1 and L = 512 at the start. For decoders: i is
    the query's position. Of c and of L the absolute value counts. Positions begin at 0. 1e-6 is
    added to the divisor. With random positions it is `randomized:fire`, as in Zhou et al. 2024, who
    reverse the digits and add index hints.
    """

    summary = "a small network of the distance over the query's position"
    paper = "Li et al. 2024"
    reports = "better perplexity than other encodings on texts longer than in training"
    reads = "distance, position"
    causal_only = True

    def __init__(
        self,
        shape: Shape | None = None,
        *,
        hidden: int = 32,
        c: float = 0.1,
        threshold: float = 512.0,
        **sizes: Unpack[Sizes],
    ) -> None:
        super().__init__(shape, **sizes)
        shape = self.shape
        for name, value in (("hidden", hidden), ("c", c), ("threshold", threshold)):
            if not 0 < value < math.inf:
                raise ValueError(f"{name} must be above 0 and finite, got {value}")
        layers, heads = shape.n_layers, shape.n_heads
        self.c = nn.Parameter(torch.full((layers,), float(c)))
        self.share = nn.Parameter(torch.ones(layers))  # of the threshold that it begins with
        self.threshold = float(threshold)
        self.inner = nn.Parameter(torch.empty(layers, 2, hidden).uniform_(-1, 1))  # weight, bias
        bound = hidden**-0.5
        self.outer = nn.Parameter(torch.empty(layers, hidden, heads).uniform_(-bound, bound))
        self.offset = nn.Parameter(torch.empty(layers, heads).uniform_(-bound, bound))

    def bias(self, q: Tensor, k: Tensor, ctx: Context) -> Tensor:
        layer = ctx.layer
        c, limit, (weight, bias) = self._constants(layer)
        distance = ctx.distance().abs().to(c.dtype)  # (B|1, T, S)
        reach = torch.maximum(ctx.query_pos.to(c.dtype), limit)[:, :, None]
        x = torch.log1p(c * distance) / (torch.log1p(c * reach) + 1e-6)
        hidden = relu(x[..., None] * weight + bias)  # (B|1, T, S, hidden)
        out = hidden @ at_least_float32(self.outer[layer]) + at_least_float32(self.offset[layer])
        return out.permute(0, 3, 1, 2)

    def bias_form(self, q: Tensor, k: Tensor, ctx: Context, kind: FormKind) -> BiasForm | None:
        """Return f as the linear function of each interval between the kinks of its units."""
        if kind is not ScoreMod:
            return None
        c, limit, (weight, bias) = self._constants(ctx.layer)
        outer, offset = (at_least_float32(x[ctx.layer]) for x in (self.outer, self.offset))
        c, limit = (x.expand(len(offset)).contiguous() for x in (c, limit))  # one for each head
        with torch.no_grad():
            kinks = torch.where(weight == 0, torch.inf, -bias / weight)
            rank = (kinks[:, None] > kinks).sum(-1)
            interval = torch.arange(len(kinks) + 1, device=kinks.device)[:, None]
            left, right = interval <= rank, interval > rank  # of the unit's kink
            active = torch.where(weight == 0, bias > 0, torch.where(weight < 0, left, right))
            steps = [1 << n for n in reversed(range(len(kinks).bit_length()))]
            kinks = pad(kinks.sort().values, (0, 2 * steps[0]), value=torch.inf)
        slope = (active * weight) @ outer  # (hidden + 1, H)
        start = (active * bias) @ outer + offset

        def value(h: Tensor, i: Tensor, j: Tensor) -> Tensor:
            c_h = c[h]
            reach = torch.maximum(i.to(c.dtype), limit[h])
            x = torch.log1p(c_h * ctx.distance(i, j).abs()) / (torch.log1p(c_h * reach) + 1e-6)
            below = torch.zeros_like(x, dtype=torch.int64)  # kinks below x
            for step in steps:
                below = below + step * (x > kinks[below + step - 1])
            out: Tensor = slope[below, h] * x + start[below, h]
            return out

        return ScoreMod(value)

    def _constants(self, layer: int) -> tuple[Tensor, Tensor, Tensor]:
        """Return c, L and the hidden layer's weight and bias (2, hidden), float32 at least."""
        limit = at_least_float32(self.share[layer]).abs() * self.threshold
        return at_least_float32(self.c[layer]).abs(), limit, at_least_float32(self.inner[layer])
