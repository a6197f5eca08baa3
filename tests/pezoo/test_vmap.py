"""Kernels and other functions under torch.func.vmap: each model gets what it gets alone."""

import pytest
import torch
from torch.func import vmap

from pezoo import adapters
from pezoo.base import Context, Pairs, Shape
from pezoo.cursors.scaling import scaled
from pezoo.encodings.nope import NoPE
from pezoo.kernels.backends import installed
from pezoo.kernels.histogram import Copy, histogram_scan, histogram_stream
from pezoo.kernels.spectral import spectral_scan

M, B, T, C = 3, 2, 5, 2


def numbers(*size):
    generator = torch.Generator().manual_seed(len(size))
    return torch.randn(*size, generator=generator, dtype=torch.float64)


def gates():
    return numbers(M, B, T, C).sigmoid(), numbers(M, B, T, C, 5).softmax(-1)


def cases():
    """A function and its stacked arguments, by name."""
    compiled = ["numba"] if installed("numba") else []
    q, k, v = numbers(3, M, B, 2, T, 4).unbind()
    sharp = 1 + numbers(M, C).square()
    encoding = NoPE(Shape(8, 2, 4, 1, T))
    context = encoding.prepare(Context(torch.arange(T)[None]))
    mask = torch.ones(B, 1, T, T).tril().bool()
    for backend in ("eager", "sdpa", *compiled):

        def attend(q, k, v, bias, backend=backend):
            encoding.bias = lambda q, k, ctx: bias
            return adapters.attend(encoding, q, k, v, context, mask, backend)

        yield f"attention-{backend}", attend, (q, k, v, numbers(M, 1, 2, T, T))

    def attend_factors(q, k, v, *pairs):
        encoding.bias_pairs = lambda q, k, ctx: Pairs(*pairs)
        return adapters.attend(encoding, q, k, v, context, mask, "numba")

    if compiled:
        factors = numbers(M, B, 2, T, 3), numbers(M, 1, T, T, 2, 3)
        narrow = (x[..., :B] for x in (q, k, v))  # factors are for many samples
        yield "attention-factors", attend_factors, (*narrow, *factors)
    copy = numbers(M, B, T, C, T + 1).softmax(-1).tril(-1) * 0.5

    for name in ("reference", *compiled):

        def scan(reset, moves, gamma, source, name=name):
            copying = Copy(1 - source.sum(-1), source[..., :T])
            return histogram_scan(reset, moves, gamma, copy=copying, backend=name)

        yield f"histogram-{name}", scan, (*gates(), sharp, copy)
    table = numbers(4 * T + 1, 4)

    def stream(reset, moves, gamma):
        e, last = histogram_stream(reset, moves, gamma, table, chunk=2)
        return torch.cat([e.flatten(1), last.flatten(1)], 1)

    yield "stream", stream, (*gates(), sharp)
    reset, moves = numbers(M, B, T, C).sigmoid(), numbers(M, B, T, C, 3).softmax(-1)
    for name in ("reference", "parallel", *compiled):
        yield (
            f"spectral-{name}",
            lambda *x, name=name: spectral_scan(*x, backend=name),
            (reset, moves, numbers(M, 3, 4)),
        )
    yield "scaled", lambda e, a: scaled(e, a, "frobenius"), (
        numbers(M, B, T, 2, C, 4), numbers(M, 2, C),
    )  # fmt: skip


@pytest.mark.parametrize(
    ("function", "inputs"), [pytest.param(*case[1:], id=case[0]) for case in cases()]
)
def test_a_stack_is_its_members(function, inputs):
    inputs = [x.clone().requires_grad_() for x in inputs]
    together = vmap(function)(*inputs)
    alone = torch.stack([function(*(x[i] for x in inputs)) for i in range(M)])
    torch.testing.assert_close(together, alone, rtol=1e-9, atol=1e-12)
    weight = numbers(*alone.shape)
    both = [torch.autograd.grad((out * weight).sum(), inputs) for out in (together, alone)]
    for one, two in zip(*both, strict=True):
        assert one.abs().sum() > 0
        torch.testing.assert_close(one, two, rtol=1e-9, atol=1e-12)


def test_what_members_share_is_not_stacked():
    reset, moves = numbers(M, B, T, C).sigmoid(), numbers(M, B, T, C, 3).softmax(-1)
    angles = numbers(3, 4).requires_grad_()
    together = vmap(spectral_scan, in_dims=(0, 0, None))(reset, moves, angles)
    alone = torch.stack([spectral_scan(reset[i], moves[i], angles) for i in range(M)])
    torch.testing.assert_close(together, alone)
    one, two = (torch.autograd.grad(out.square().sum(), angles)[0] for out in (together, alone))
    torch.testing.assert_close(one, two)


@pytest.mark.parametrize("name", ["reference", *(["numba"] if installed("numba") else [])])
def test_one_row_that_members_share_serves_them_all(name):
    reset, moves = numbers(M, 1, T, C).sigmoid(), numbers(M, 1, T, C, 3).softmax(-1)
    gamma = (1 + numbers(C).square()).requires_grad_()
    state = numbers(1, C, 5).softmax(-1).detach().requires_grad_()

    def scan(reset, moves, gamma, state):
        return histogram_scan(reset, moves, gamma, state, backend=name)

    together = vmap(scan, in_dims=(0, 0, None, None))(reset, moves, gamma, state)
    alone = torch.stack([scan(reset[i], moves[i], gamma, state) for i in range(M)])
    torch.testing.assert_close(together, alone)
    for one, two in zip(
        *(torch.autograd.grad(out.square().sum(), (gamma, state)) for out in (together, alone)),
        strict=True,
    ):
        torch.testing.assert_close(one, two)
