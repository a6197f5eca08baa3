"""Gradients of every encoding, in its inputs and its parameters, equal finite differences."""

from dataclasses import replace

import pytest
import torch

import pezoo
from pezoo.base import Shape
from pezoo.testing import build, context, tokens
from pezoo.testing.probe import draws, inputs, walk

SHAPE = Shape(d_model=4, n_heads=2, d_head=2, n_layers=1, train_len=6)
SMALL = {
    "fire": "fire(hidden=3,threshold=2)",
    "prism": "prism(d_pe=4,hidden=3)",
    "prism_spectral": "prism_spectral(d_pe=4,hidden=3)",
}
VARIANTS = [
    "kerple(form=power)", "shaw(clip=1)", "t5(buckets=4,max_distance=5,bidirectional=true)",
    "stick_breaking(rest=itself)", "pope(start=uniform)", "asentmax(alpha=1.25):alibi",
    "prism_2025(cursors=1,d_pe=4,hidden=2,eps=0.001,lead=true)",
]  # fmt: skip


@pytest.mark.parametrize("text", [*(SMALL.get(n, n) for n in pezoo.names()), *VARIANTS])
def test_gradients(text):
    encoding = build(lambda shape: pezoo.make(text, shape), SHAPE).double()
    ctx = context(tokens(2, 4), torch.tensor([[0, 1, 2, 3], [-1, 0, 1, 2]]))
    ctx = replace(ctx, drawn=encoding.draw(ctx, generator=draws()))
    given = inputs(encoding, 2, 4, torch.float64)
    leaves = [x.requires_grad_() for x in given]

    def outputs(*_):
        found = []
        for hook, out, _ in walk(encoding, ctx, given):
            found += [] if hook == "prepare" else out if hook == "transform" else [out]
        return torch.cat([y[y.isfinite()].double() for y in found if y is not None])

    # Rotations and sinusoids are of float32, which differences of 1e-3 hide.
    assert torch.autograd.gradcheck(
        outputs, (*leaves, *encoding.parameters()), eps=1e-3, atol=1e-3, rtol=1e-2, fast_mode=True
    )


@pytest.mark.parametrize("name", ["prism", "prism_spectral"])
def test_a_second_derivative_that_is_not_there_is_said(name):
    prism = build(lambda shape: pezoo.make(SMALL[name], shape), SHAPE).double()
    x, q, k = (y.requires_grad_() for y in inputs(prism, 1, 4, torch.float64))
    loss = pezoo.attention(q, k, k, prism, x=x).sum()
    (first,) = torch.autograd.grad(loss, x, create_graph=True)
    with pytest.raises(RuntimeError, match="once_differentiable"):
        first.square().sum().backward()
