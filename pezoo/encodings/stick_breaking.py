"""Stick-breaking attention: each key, from the nearest on, takes its share of what is left."""

from typing import Unpack

import torch
from torch import Tensor
from torch.nn.functional import logsigmoid, pad

from pezoo.base import Encoding, Pass, Shape, Sizes
from pezoo.functional import at_least_float32
from pezoo.registry import register
from pezoo.spec import choice


@register("stick_breaking")
class StickBreaking(Encoding):
    """Break pieces off a stick, the nearest key first, in place of softmax.

    Formula: a_ij = s(z_ij) prod_{j < l < i} (1 - s(z_il)), s the sigmoid and z_ij = q_i k_j /
    sqrt(K), for keys j < i that i sees. A token never visits itself.

    Example: all logits 0: the token before gets 1/2, the one before that 1/4, then 1/8.

    Shapes: logits (B, H, T, S) -> weights (B, H, T, S), no parameters. They sum to at most 1.
    Products are float32 at least, as sums of logarithms.
    Options: rest, what becomes of the rest of the stick: "dropped", the formula as it is, or
    "itself", the token's own value gets it, as in the released code; the weights then sum to 1.
    Errors: ValueError for an unknown rest.

    Paper: Tan et al. 2024, "Scaling Stick-Breaking Attention", tested there to 8 times the training
    length. Logits near zero, where training starts, hide what is more than some 20 tokens back, and
    its gradient with it. In a decoder, `geometric` is the same with a learned term in the logits.
    """

    summary = "no softmax: from the nearest key on, each takes a share of what is left"
    paper = "Tan et al. 2024"
    reports = "better perplexity, up to 8 times the training length"
    reads = "text"
    relative = True
    causal_only = True

    def __init__(
        self, shape: Shape | None = None, *, rest: str = "dropped", **sizes: Unpack[Sizes]
    ) -> None:
        super().__init__(shape, **sizes)
        choice("rest", rest, ("dropped", "itself"))
        self.rest = rest

    def weights(self, logits: Tensor, ctx: Pass) -> Tensor:
        t, s = logits.shape[-2:]
        itself = torch.ones(t, s, dtype=torch.bool, device=logits.device)
        itself = itself.triu(s - t) & itself.tril(s - t)
        z = at_least_float32(logits).masked_fill(itself, -torch.inf)
        left = logsigmoid(-z).flip(-1).cumsum(-1).flip(-1)  # after key j and all nearer ones
        a = (logsigmoid(z) + pad(left[..., 1:], (0, 1))).exp()
        if self.rest == "itself":
            a = torch.where(itself, left[..., :1].exp(), a)
        return a.to(logits.dtype)
