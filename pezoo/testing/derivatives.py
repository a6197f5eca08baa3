"""A check that gradients are those of what is computed."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from pezoo.testing.probe import Factory, alone, build, context, draws, inputs, require, tokens

STEP = 1e-4


def check_derivatives(factory: Factory) -> None:
    """Gradients of embed in x, transform in q and k, bias in q and k: as differences say."""
    encoding, (b, t) = build(factory).double(), (2, 9)
    x, q, k = inputs(encoding, b, t, torch.float64)
    ctx = encoding.prepare(context(tokens(b, t), x=x))
    _agrees("embed", "x", x, lambda z: encoding.embed(z, alone(ctx)))
    here = ctx.at(0, encoding.embed(x, ctx).detach())
    _agrees("transform", "q", q, lambda z: encoding.transform(z, k, alone(here))[0])
    _agrees("transform", "k", k, lambda z: encoding.transform(q, z, alone(here))[1])
    wide_q, wide_k = (y.detach() for y in encoding.transform(q, k, here))
    _agrees("bias", "q", wide_q, lambda z: encoding.bias(z, wide_k, alone(here)))
    _agrees("bias", "k", wide_k, lambda z: encoding.bias(wide_q, z, alone(here)))


def _agrees(hook: str, name: str, at: Tensor, call: Callable[[Tensor], Tensor | None]) -> None:
    """In a few random directions, of a weighted sum of what the hook returns."""
    generator = draws()

    def total(z: Tensor) -> Tensor:
        out = call(z)
        out = z.new_zeros(1) if out is None else out.double()
        weight = torch.linspace(-1, 2, out.numel(), dtype=out.dtype).view(out.shape)
        return (out * weight)[out.isfinite()].sum()

    z = at.clone().requires_grad_()
    sums = total(z)
    gradient = torch.zeros_like(z)
    if sums.requires_grad:
        (found,) = torch.autograd.grad(sums, z, allow_unused=True)
        gradient = gradient if found is None else found
    for _ in range(3):
        way = torch.randn(at.shape, generator=generator).double()
        with torch.no_grad():
            wanted = float(total(at + STEP * way) - total(at - STEP * way)) / (2 * STEP)
        given = float((gradient * way).sum())
        require(
            abs(given - wanted) <= 0.05 * abs(wanted) + 0.05,
            f"{hook}: the gradient in {name} is {given:.3g} where the value changes by "
            f"{wanted:.3g}: keep detach() and no_grad() away from what depends on {name}",
        )
