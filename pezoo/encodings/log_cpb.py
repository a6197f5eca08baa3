"""Swin v2's continuous position bias."""

from typing import Unpack

import torch
from torch import Tensor, nn

from pezoo.base import Context, Encoding, Shape, Sizes
from pezoo.functional import at_least_float32, distinct, linear_start
from pezoo.registry import register


@register("log_cpb")
class LogCPB(Encoding):
    """Add to each logit what a small network makes of the logarithms of the offset.

    Formula: b_ij = W relu(V l + v) + u, one row of W for each head, with l_a = sign(d_a)
    log(1 + |d_a|) for the offset d = x_i - x_j.

    Example: an offset of 3 down and 0 right is the input (1.386, 0); 7 down is (2.079, 0).

    Shapes: -> (B|1, H, T, S), float32 at least; per layer V (A, hidden) and W (hidden, H) at the
    start as torch's linear layers, v and u 0.
    Options: axes; hidden, units of the network (512 in the paper).
    Errors: ValueError for fewer hidden units than one.

    Paper: Liu et al. 2022, "Swin Transformer V2", Equations 4 and 5. Their code divides d by the
    window's size, and bounds b by 16 sigmoid(b), neither of which the paper has.
    """

    summary = "a small network of the logarithms of the offset, for each head"
    paper = "Liu et al. 2022"
    reports = "carries over to larger windows"
    reads = "distance"
    prf_text = "i - j"
    relative = True

    def __init__(
        self, shape: Shape | None = None, *, axes: int = 2, hidden: int = 64, **sizes: Unpack[Sizes]
    ) -> None:
        super().__init__(shape, **sizes)
        layers, heads = self.shape.n_layers, self.shape.n_heads
        if hidden < 1:
            raise ValueError(f"hidden must be at least 1, got {hidden}")
        self.axes = axes
        self.inner, self.outer = (
            linear_start(layers, *size) for size in ((hidden, axes), (heads, hidden))
        )
        self.inner_bias = nn.Parameter(torch.zeros(layers, hidden))
        self.outer_bias = nn.Parameter(torch.zeros(layers, heads))

    def prf(self, ctx: Context) -> Tensor:
        return ctx.distance()[0]

    def bias(self, q: Tensor, k: Tensor, ctx: Context) -> Tensor:
        offsets, index = distinct_offsets(ctx.offset(self.axes))
        inner, shift, outer, last = (
            at_least_float32(x[ctx.layer])
            for x in (self.inner, self.inner_bias, self.outer, self.outer_bias)
        )
        d = offsets.to(inner.dtype)
        found = (d.sign() * d.abs().log1p() @ inner.mT + shift).relu() @ outer.mT + last  # (n, H)
        return found[index].movedim(-1, 1)


def distinct_offsets(offset: Tensor) -> tuple[Tensor, Tensor]:
    """Return offsets (n, A) and the index of each of (B|1, T, S, A) among them, (B|1, T, S).

    Whole numbers are told apart by their digits in one of a large base, and computed once.
    """
    if offset.is_floating_point():
        flat = offset.flatten(0, -2)
        return flat, torch.arange(len(flat), device=flat.device).view(offset.shape[:-1])
    base = 1 << (62 // offset.shape[-1])
    code = torch.zeros_like(offset[..., 0], dtype=torch.int64)
    for axis in offset.unbind(-1):
        code = code * base + axis
    values, index = distinct(code)
    digits: list[Tensor] = []
    for _ in range(offset.shape[-1]):
        digits.append((values + base // 2) % base - base // 2)
        values = (values - digits[-1]) // base
    return torch.stack(digits[::-1], -1), index
