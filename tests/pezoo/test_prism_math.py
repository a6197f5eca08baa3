"""The equations of PRISM's paper, against a listing of all paths of Algorithm 1."""

import itertools

import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from pezoo.cursors.options import CursorOptions
from pezoo.cursors.positions import wave
from pezoo.kernels.histogram import sharpen

D = torch.float64
few = settings(max_examples=30, deadline=None)
seeds = st.integers(0, 10**6)


def random_gates(n, seed=0):
    """incr, decr, reset (n,)."""
    generator = torch.Generator().manual_seed(seed)
    logits = torch.randn(n, 4, generator=generator, dtype=D)
    incr, decr, _ = logits[..., 1:].softmax(-1).unbind(-1)
    return incr, decr, logits[..., 0].sigmoid()


def random_histogram(*size, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*size, generator=generator, dtype=D).softmax(-1)


def walk(gates, start=0):
    """Algorithm 1 from an offset: {end: probability} over all 6^n paths."""
    ends = {}
    for path in itertools.product(itertools.product((0, 1), (-1, 0, 1)), repeat=len(gates[0])):
        weight, z = 1.0, start
        for (fired, move), incr, decr, reset in zip(
            path, *(g.tolist() for g in gates), strict=True
        ):
            weight *= reset if fired else 1 - reset
            weight *= {1: incr, -1: decr, 0: 1 - incr - decr}[move]
            z = (0 if fired else z) + move
        ends[z] = ends.get(z, 0) + weight
    return ends


def law(pairs, reach):
    """Pr(D = d) for d from -reach to reach, of (d, probability)."""
    out = torch.zeros(2 * reach + 1, dtype=D)
    for d, p in pairs:
        out[d + reach] += p
    return out


def displacement(one, other, reach):
    """Equation 6: {offset: probability} of two histograms, as if they were independent."""
    pairs = itertools.product(one.items(), other.items())
    return law(((b - a, p * q) for (a, p), (b, q) in pairs), reach)


def laws(h, gates):
    """Between h (L,) and its move by the gates: Equation 4, along one path, and Equation 6.

    Equations 4 and 5 are the law of the sum of the steps after which no reset fires: the end of a
    path from offset 0.
    """
    start = dict(enumerate(h.tolist(), -(len(h) // 2)))
    reach, after, along = len(h) + len(gates[0]), {}, []
    for z, p in start.items():
        for end, q in walk(gates, z).items():
            after[end] = after.get(end, 0) + p * q
            along.append((end - z, p * q))
    return (
        law(walk(gates).items(), reach), law(along, reach), displacement(start, after, reach)
    )  # fmt: skip


def distance(p, q):
    """Total variation."""
    return (p - q).abs().sum().item() / 2


def test_streams_compare_by_equation_6():
    """<h_q F, h_k F> / (d/2) = sum_d Pr(D = d) kappa(|d|) (Equation 8)."""
    h_q, h_k = random_histogram(7, seed=1), random_histogram(7, seed=2)
    w = CursorOptions(d_pe=32, base=100.0).frequencies()
    f = wave(torch.arange(-3, 4), w).to(D)
    kappa = torch.cos(torch.arange(-6, 7)[:, None] * w).mean(-1).to(D)
    got = ((h_q @ f) * (h_k @ f)).sum(-1) / 16
    want = displacement(dict(enumerate(h_q.tolist())), dict(enumerate(h_k.tolist())), 6) @ kappa
    torch.testing.assert_close(got, want, atol=1e-6, rtol=0)


# When Equation 6 is which law.


@few
@given(n=st.integers(1, 3), at=st.integers(0, 4), seed=seeds)
def test_equation_6_is_the_law_along_a_path_from_a_certain_place(n, at, seed):
    """z_k = at - 2. It is Equation 4 as well from offset 0 or if no reset can fire."""
    incr, decr, reset = random_gates(n, seed=seed)
    h = torch.eye(5, dtype=D)[at]
    four, along, six = laws(h, (incr, decr, reset))
    torch.testing.assert_close(six, along)
    assert (distance(six, four) < 1e-9) == (at == 2)
    four, _, six = laws(h, (incr, decr, torch.zeros_like(reset)))
    torch.testing.assert_close(six, four)


@few
@given(n=st.integers(1, 3), seed=seeds, data=st.data())
def test_equation_6_is_the_law_along_a_path_after_a_certain_reset(n, seed, data):
    gates = random_gates(n, seed=seed)
    gates[2][data.draw(st.integers(0, n - 1))] = 1
    four, along, six = laws(random_histogram(5, seed=seed), gates)
    torch.testing.assert_close(six, along)
    assert distance(six, four) > 1e-6


@few
@given(n=st.integers(1, 3), seed=seeds)
def test_equation_6_is_neither_law_from_an_uncertain_place(n, seed):
    """Its distance to that along a path is at most q (1 - sum h^2), q the chance of no reset."""
    gates, h = random_gates(n, seed=seed), random_histogram(5, seed=seed)
    assume(h.max() < 0.99)
    four, along, six = laws(h, gates)
    q = (1 - gates[2]).prod().item()
    assert 1e-9 < distance(six, along) <= q * (1 - h.square().sum().item()) + 1e-12
    assert distance(six, four) > 1e-6


# Sharpening.


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
