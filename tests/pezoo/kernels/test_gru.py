"""The GRU's recurrence in numba against the plain loop and torch's own GRU."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from pezoo.kernels.gru import chosen, gru_recurrence
from pezoo.kernels.installed import installed

D = torch.float64
compiled = pytest.mark.skipif(not installed("numba"), reason="numba is not installed")


def inputs(b, t, h, dtype=D):
    """given, weight, bias, state and noise."""
    generator = torch.Generator().manual_seed(b + 10 * t + 100 * h)

    def draw(*size):
        return torch.randn(*size, generator=generator, dtype=D).to(dtype)

    weight = draw(3 * h, h) / h**0.5
    return draw(b, t, 3 * h), weight, draw(3 * h), draw(b, h), draw(b, t, h)


def gradients(backend, *x, noise=None):
    leaves = [one.clone().requires_grad_() for one in x]
    out = gru_recurrence(*leaves, noise, backend=backend)
    weight = torch.linspace(-1, 2, out.numel(), dtype=out.dtype).view(out.shape).sin()
    return out.detach(), *torch.autograd.grad((out * weight).sum(), leaves)


@compiled
@settings(max_examples=25, deadline=None)
@given(b=st.integers(1, 21), t=st.integers(1, 5), h=st.integers(8, 50), noisy=st.booleans())
def test_values_and_gradients_are_those_of_the_loop(b, t, h, noisy):
    *x, noise = inputs(b, t, h)
    noise = noise if noisy else None
    expected = gradients("reference", *x, noise=noise)
    for got, wanted in zip(gradients("numba", *x, noise=noise), expected, strict=True):
        torch.testing.assert_close(got, wanted, rtol=1e-9, atol=1e-11)


@compiled
def test_gradients_are_those_of_finite_differences():
    *x, noise = inputs(2, 3, 9)
    leaves = [one.requires_grad_() for one in x]
    torch.autograd.gradcheck(lambda *x: gru_recurrence(*x, noise, backend="numba"), leaves)


@pytest.mark.parametrize("backend", ["reference", pytest.param("numba", marks=compiled)])
def test_without_noise_it_is_torchs_gru(backend):
    gru = torch.nn.GRU(3, 12, batch_first=True).double()
    x, state = torch.randn(5, 7, 3, dtype=D), torch.randn(5, 12, dtype=D)
    given = torch.nn.functional.linear(x, gru.weight_ih_l0, gru.bias_ih_l0)
    got = gru_recurrence(given, gru.weight_hh_l0, gru.bias_hh_l0, state, backend=backend)
    torch.testing.assert_close(got, gru(x, state[None])[0])


@compiled
def test_float32_is_near_float64_also_where_gates_are_shut():
    *x, noise = inputs(6, 9, 24)
    x[0] = x[0] * torch.tensor([0.1, 3.0, 200.0])[torch.arange(9) % 3, None].to(D)
    expected = gradients("reference", *x, noise=noise)
    found = gradients("numba", *(one.float() for one in x), noise=noise.float())
    for got, wanted in zip(found, expected, strict=True):
        torch.testing.assert_close(got.to(D), wanted, rtol=1e-3, atol=2e-5)


@compiled
def test_threads_share_the_rows():
    *x, noise = inputs(50, 3, 10)
    alone = gradients("numba", *x, noise=noise)
    before = torch.get_num_threads()
    torch.set_num_threads(3)
    try:
        shared = gradients("numba", *x, noise=noise)
    finally:
        torch.set_num_threads(before)
    assert all(torch.equal(a, b) for a, b in zip(alone[:2], shared[:2], strict=True))


def test_what_numba_cannot_run():
    assert chosen(torch.zeros(30, 10, dtype=torch.bfloat16)) == "reference"
    assert chosen(torch.zeros(6, 2)) == "reference"
    *x, _ = inputs(1, 1, 4)
    with pytest.raises(ValueError, match=r"needs at least 8 units, was given 4; take 'auto'"):
        gru_recurrence(*x, backend="numba")
    with pytest.raises(ValueError, match="numba"):
        gru_recurrence(*x, backend="numbs")
