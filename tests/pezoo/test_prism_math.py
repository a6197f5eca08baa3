"""The equations of PRISM's paper that its encoding does not compute as they are printed."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from pezoo.cursors.options import CursorOptions
from pezoo.cursors.positions import wave
from pezoo.kernels.histogram import sharpen

D = torch.float64
few = settings(max_examples=30, deadline=None)
seeds = st.integers(0, 10**6)


def random_histogram(*size, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*size, generator=generator, dtype=D).softmax(-1)


def test_streams_compare_by_equation_6():
    """<h_q F, h_k F> / (d/2) = sum_d Pr(D = d) kappa(|d|) (Equation 8)."""
    h_q, h_k = random_histogram(7, seed=1), random_histogram(7, seed=2)
    w = CursorOptions(d_pe=32, base=100.0).frequencies()
    f = wave(torch.arange(-3, 4), w).to(D)
    kappa = torch.cos(torch.arange(-6, 7)[:, None] * w).mean(-1).to(D)
    got = ((h_q @ f) * (h_k @ f)).sum(-1) / 16
    want = sum(h_q[i] * h_k[j] * kappa[j - i + 6] for i in range(7) for j in range(7))
    torch.testing.assert_close(got, want, atol=1e-6, rtol=0)


@few
@given(seed=seeds, times=st.integers(0, 6), gamma=st.floats(1, 3))
def test_n_sharpenings_are_one_exponent(seed, times, gamma):
    """Appendix A.2.1."""
    h = random_histogram(2, 6, seed=seed)
    power = torch.tensor([gamma, 2.0], dtype=D)
    got = h
    for _ in range(times):
        got = sharpen(got, power, 0.0)
    raised = h.log() * power[:, None] ** times
    want = (raised - raised.max(-1, keepdim=True).values).exp()
    torch.testing.assert_close(got, want / want.sum(-1, keepdim=True), rtol=1e-9, atol=1e-12)


@few
@given(seed=seeds, gamma=st.floats(1, 5), eps=st.floats(1e-8, 0.1), times=st.integers(1, 5))
def test_eps_is_a_floor_under_every_bin(seed, gamma, eps, times):
    h = random_histogram(9, seed=seed)
    for _ in range(times):
        h = sharpen(h, torch.tensor(gamma, dtype=D), eps)
    assert h.min() / h.max() >= (eps / (1 + eps)) ** gamma * (1 - 1e-9)


def test_an_empty_bin_stays_empty_only_without_eps():
    h, gamma = torch.tensor([1.0, 0.0, 0.0], dtype=D), torch.tensor(2.0, dtype=D)
    assert sharpen(h, gamma, 0.0).tolist() == [1, 0, 0]
    floor = (0.01 / 1.01) ** 2
    assert sharpen(h, gamma, 0.01)[1].item() == pytest.approx(floor / (1 + 2 * floor))


@few
@given(seed=seeds, eps=st.floats(1e-8, 0.1), times=st.integers(1, 6))
def test_eps_alone_drifts_to_uniform(seed, eps, times):
    h = start = random_histogram(5, seed=seed)
    for _ in range(times):
        h = sharpen(h, torch.tensor(1.0, dtype=D), eps)
    share = (1 / (1 + 5 * eps)) ** times
    torch.testing.assert_close(h, share * start + (1 - share) / 5)
