"""FIRE: a small network of the distance, relative to how far back a token could look."""

import math

import torch
from torch import Tensor, nn
from torch.nn.functional import relu

from pezoo.base import Context, Encoding, Shape
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
    Options: hidden; c and threshold, where c and L begin.
    Errors: ValueError for a hidden below 1, and for a c or threshold not above 0 and finite.

    Paper: Li et al. 2024, "Functional Interpolation for Relative Positions Improves Long Context
    Transformers", Equation 4; 32 hidden units, c = 0.1 and L = 512 at the start. For decoders: i is
    the query's position. Of c and of L the absolute value counts. Positions begin at 0. 1e-6 is
    added to the divisor. With random positions it is `randomized:fire`, as in Zhou et al. 2024, who
    reverse the digits and add index hints.
    """

    summary = "a small network of the distance over the query's position"
    paper = "Li et al. 2024"
    causal_only = True

    def __init__(
        self, shape: Shape, *, hidden: int = 32, c: float = 0.1, threshold: float = 512.0
    ) -> None:
        super().__init__(shape)
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
        c = at_least_float32(self.c[layer]).abs()
        limit = at_least_float32(self.share[layer]).abs() * self.threshold
        distance = ctx.distance().abs().to(c.dtype)  # (B|1, T, S)
        reach = torch.maximum(ctx.query_pos.to(c.dtype), limit)[:, :, None]
        x = torch.log1p(c * distance) / (torch.log1p(c * reach) + 1e-6)
        weight, bias = at_least_float32(self.inner[layer])
        hidden = relu(x[..., None] * weight + bias)  # (B|1, T, S, hidden)
        out = hidden @ at_least_float32(self.outer[layer]) + at_least_float32(self.offset[layer])
        return out.permute(0, 3, 1, 2)
