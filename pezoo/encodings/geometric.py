"""Geometric attention: each query takes the nearest key that matches."""

from typing import Unpack

import torch
from torch import Tensor, nn
from torch.nn.functional import logsigmoid, pad

from pezoo.base import Context, Encoding, Shape, Sizes
from pezoo.functional import at_least_float32
from pezoo.registry import register


@register("geometric")
class Geometric(Encoding):
    """Visit the keys from the nearest outwards and stop at one with its own probability.

    This is geometric attention with directional encoding, of the Neural Data Router (NDR).

    Formula: a_ij = s(l_ij) prod_{k before j} (1 - s(l_ik)), s the sigmoid, l_ij = q_i k_j / sqrt(K)
    + w_side q_i + b_side; side says whether j is earlier or later than i. Keys come in the order of
    |i - j|, of two at one distance the later first. A token never visits itself.

    Example: all logits 0: the token before gets 1/2, the one before that 1/4, then 1/8.

    Shapes: logits (B, H, T, S) -> weights (B, H, T, S), which sum to at most 1: the rest is the
    probability to stop nowhere, all of it for the first token of a causal model. Per layer: w
    (2, H, K), earlier first, at the start uniform in +-1/sqrt(K); b (2, H), at the start 0.
    Products are float32 at least, as sums of logarithms.
    Options: normalised; true divides the weights of a query by their sum, so that they sum to 1 as
    softmax's do, also where no key matches; false, the formula as it is, leaves the rest out.

    Paper: Csordás et al. 2022, "The Neural Data Router"; Ruoss et al. 2023 compare with it in
    Table 5. Deviations: the side's term reads q_i, where the released code reads the layer's input;
    that code also learns one scale for the product and one for the side's term, which W_Q and w
    hold here, and normalises by default. Where w and b start is ours.
    """

    summary = "directional, from NDR: the nearest key that matches, no softmax"
    paper = "Csordás et al. 2022"
    reports = "solves longer table lookups, in a model with copy gates"
    reads = "text, distance"
    relative = True
    reads_distance = True

    def __init__(
        self, shape: Shape | None = None, *, normalised: bool = False, **sizes: Unpack[Sizes]
    ) -> None:
        super().__init__(shape, **sizes)
        shape = self.shape
        self.normalised = normalised
        layers, heads, size = shape.n_layers, shape.n_heads, shape.d_head
        self.w = nn.Parameter(torch.empty(layers, 2, heads, size).uniform_(-1, 1) * size**-0.5)
        self.b = nn.Parameter(torch.zeros(layers, 2, heads))

    def bias(self, q: Tensor, k: Tensor, ctx: Context) -> Tensor:
        w, b = self.w[ctx.layer].to(q.dtype), self.b[ctx.layer].to(q.dtype)
        earlier, later = torch.einsum("bhtk,shk->sbht", q, w) + b[:, None, :, None]
        is_earlier = ctx.distance()[:, None] > 0  # (B|1, 1, T, S)
        return torch.where(is_earlier, earlier[..., None], later[..., None])

    def weights(self, logits: Tensor, ctx: Context) -> Tensor:
        t, s = logits.shape[-2:]
        itself = torch.ones(t, s, dtype=torch.bool, device=logits.device)
        itself = itself.triu(s - t) & itself.tril(s - t)
        exact = at_least_float32(logits).masked_fill(itself, -torch.inf)
        log_a = logsigmoid(exact) + _passed(logsigmoid(-exact), ctx.distance())
        a = log_a.exp()
        if self.normalised:
            a = a / a.sum(-1, keepdim=True).clamp(min=torch.finfo(a.dtype).tiny)
        return a.to(logits.dtype)


def _passed(x: Tensor, distance: Tensor) -> Tensor:
    """Sum x (B, H, T, S) over the keys that are visited before each key.

    distance (B|1, T, S) is i - j.
    """
    near = (2 * distance.abs() + (distance > 0)).flip(-1)  # of two at one distance the later first
    order = distance.shape[-1] - 1 - near.argsort(dim=-1, stable=True)
    there, back = (index[:, None].expand_as(x) for index in (order, order.argsort(dim=-1)))
    sums = x.gather(-1, there).cumsum(-1)
    return pad(sums[..., :-1], (1, 0)).gather(-1, back)
