"""The matrix of one move, similarities, sharpening, and where every name comes from."""

import itertools
import math
from functools import partial

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import sici

import pezoo.prism_math
from pezoo.kernels.histogram import sharpen, update
from pezoo.prism_math import (
    cosine,
    displacement,
    expected_similarity,
    kernel_matrix,
    laplacian,
    rbf,
    sharpen_repeatedly,
    transition_matrix,
)

D = torch.float64
few = settings(max_examples=40, deadline=None)
seeds = st.integers(0, 10**6)


def random_gates(*size, seed=0):
    generator = torch.Generator().manual_seed(seed)
    logits = 2 * torch.randn(*size, 4, generator=generator, dtype=D)
    incr, decr, _ = logits[..., 1:].softmax(-1).unbind(-1)
    return logits[..., 0].sigmoid(), incr, decr


def random_histogram(*size, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*size, generator=generator, dtype=D).softmax(-1)


def test_every_public_name_has_its_source():
    for name in set(pezoo.prism_math.__all__) - {"Axioms"}:
        text = getattr(pezoo.prism_math, name).__doc__
        assert ">>>" in text or "Example" in text
        assert any(word in text for word in ("Equation", "Section", "Appendix", "tau(")), name


# One move.


def moved(h, first, gates, support, edge):
    """Algorithm 1 and Section 5.1 as loops over (offset, reset, step): {offset: mass}."""
    reset, incr, decr = (float(g) for g in gates)
    last, out = first + len(h) - 1, {}
    for offset, mass in enumerate(h, first):
        for fired, step in itertools.product((False, True), (-1, 0, 1)):
            weight = mass * (reset if fired else 1 - reset)
            weight *= {1: incr, -1: decr, 0: 1 - incr - decr}[step]
            target = (0 if fired else offset) + step
            if support == "one_sided" and edge == "grow":
                target = max(target, 0)
            if edge == "clamp" or (edge == "drop" and fired):
                target = min(max(target, first), last)
            if edge != "drop" or first <= target <= last:
                out[target] = out.get(target, 0) + weight
    return out


@pytest.mark.parametrize("support", ["symmetric", "one_sided"])
@pytest.mark.parametrize("edge", ["grow", "clamp", "drop"])
@few
@given(reach=st.integers(0, 5), seed=seeds)
def test_the_matrix_is_the_loop(support, edge, reach, seed):
    gates, first = random_gates(seed=seed), -reach if support == "symmetric" else 0
    h = random_histogram(reach - first + 1, seed=seed)
    matrix = transition_matrix(*gates, reach, support=support, edge=edge)
    low = first - (support == "symmetric" and edge == "grow")
    want = moved(h.tolist(), first, gates, support, edge)
    got = {low + i: mass for i, mass in enumerate((h @ matrix).tolist())}
    assert got == pytest.approx({d: want.get(d, 0.0) for d in got}, abs=1e-14)
    assert set(want) <= set(got)
    if edge == "clamp":
        assert matrix.shape == (len(h), len(h))


def test_the_default_is_one_update():
    (reset, incr, decr), h = random_gates(3, 2), random_histogram(3, 2, 7)
    got = (h[..., None, :] @ transition_matrix(reset, incr, decr, 3))[..., 0, :]
    moves = torch.stack((incr, decr, 1 - incr - decr), -1)  # (3, 2, J)
    torch.testing.assert_close(got, update(h, reset, moves))


@pytest.mark.parametrize("support", ["symmetric", "one_sided"])
@pytest.mark.parametrize("edge", ["grow", "clamp"])
@few
@given(reach=st.integers(0, 5), r=st.integers(0, 16), u=st.integers(0, 16), d=st.integers(0, 16))
def test_rows_sum_to_one_exactly(support, edge, reach, r, u, d):
    """In sixteenths, where floating point does not round."""
    gates = torch.tensor([r, min(u, 16 - d), d], dtype=D) / 16
    matrix = transition_matrix(*gates, reach, support=support, edge=edge)
    assert (matrix >= 0).all()
    assert (matrix.sum(-1) == 1).all()


def test_section_5_1_as_printed_loses_mass_at_both_ends():
    gates = torch.tensor([0.25, 0.5, 0.125], dtype=D)  # reset, incr, decr
    rows = transition_matrix(*gates, 3, support="one_sided", edge="drop").sum(-1)
    assert rows.tolist() == [1 - 0.75 * 0.125, 1, 1, 1 - 0.75 * 0.5]


def test_the_clamp_matters_only_at_the_edge():
    gates = random_gates(seed=4)
    grown, clamped = (transition_matrix(*gates, 4, edge=edge) for edge in ("grow", "clamp"))
    torch.testing.assert_close(clamped[1:-1, 1:-1], grown[1:-1, 2:-2])
    torch.testing.assert_close(clamped[:, 0], grown[:, 0] + grown[:, 1])


@pytest.mark.parametrize(
    ("gates", "options", "words"),
    [
        ([0.5, 0.7, 0.5], {}, "incr \\+ decr leave keep"),
        ([1.5, 0.1, 0.1], {}, "reset must hold probabilities"),
        ([0.5, -0.1, 0.1], {}, "incr must hold probabilities"),
        ([0.5, 0.1, math.nan], {}, "decr must hold probabilities"),
        ([0.5, 0.1, 0.1], {"reach": -1}, "reach must be at least 0, was given -1"),
        ([0.5, 0.1, 0.1], {"support": "onesided"}, "did you mean one_sided"),
        ([0.5, 0.1, 0.1], {"edge": "clam"}, "did you mean clamp"),
    ],
)
def test_a_bad_matrix(gates, options, words):
    with pytest.raises(ValueError, match=words):
        transition_matrix(*torch.tensor(gates), **{"reach": 1, **options})


def test_gates_of_different_shapes():
    with pytest.raises(ValueError, match="one shape"):
        transition_matrix(torch.zeros(2), torch.zeros(2), torch.zeros(3), 1)


# Similarities.


@pytest.mark.parametrize("kernel", [rbf, laplacian])
@few
@given(
    near=st.floats(0, 20), gap=st.floats(1e-3, 5), bandwidth=st.floats(1, 50), negate=st.booleans()
)
def test_kernels_fall(kernel, near, gap, bandwidth, negate):
    r = torch.tensor([0.0, near, near + gap], dtype=D) * (-1 if negate else 1)
    start, first, second = kernel(r, bandwidth).tolist()
    assert start == 1
    assert 0 < second < first <= 1
    power = 2 if kernel is rbf else 1
    scale = 2 * bandwidth**2 if kernel is rbf else bandwidth
    assert first == pytest.approx(math.exp(-(near**power) / scale))


@few
@given(r=st.floats(-1e3, 1e3), half=st.integers(1, 40), base=st.floats(2, 1e5))
def test_the_cosine_is_its_sum(r, half, base):
    got = cosine(torch.tensor([0, r], dtype=D), 2 * half, base)
    want = sum(math.cos(r / base ** (m / half)) for m in range(half)) / half
    assert got[0] == 1
    assert got[1].item() == pytest.approx(want, abs=1e-9)


def test_the_cosine_is_not_monotone_and_not_positive():
    """The numbers in the module's docstring."""
    at = cosine(torch.arange(0, 100_001, dtype=D)[:26], 340)
    assert (at.diff()[:24] < 0).all()
    assert at.diff()[24] > 0
    assert at[24:].tolist() == pytest.approx([0.58702, 0.58717], abs=5e-6)
    assert cosine(torch.tensor(73_052.0, dtype=D), 340).item() == pytest.approx(-0.178, abs=5e-4)
    far = torch.cat([cosine(r, 340) for r in torch.arange(0, 100_001, dtype=D).split(10_000)])
    assert far.argmin() == 73_052


def test_the_limit_of_the_cosine():
    r, base = torch.linspace(0.5, 40, 50, dtype=D), 10_000.0
    limit = torch.tensor([(sici(x)[1] - sici(x / base)[1]) / math.log(base) for x in r.tolist()])
    errors = [(cosine(r, d, base) - limit).abs().max().item() for d in (128, 512, 2048)]
    assert errors[0] > 3 * errors[1] > 9 * errors[2]
    assert errors[2] < 2e-3


def test_the_printed_frequencies_would_be_flat():
    m = torch.arange(170, dtype=D)
    similarity = torch.cos(100 / (10_000 * 2 ** (m / 340))).mean().item()
    assert similarity == pytest.approx(0.99996, abs=5e-6)


def test_expected_similarity_is_the_double_loop_and_equation_6():
    offsets, kernel = torch.arange(-3, 4), partial(rbf, bandwidth=2.0)
    h_q, h_k = random_histogram(2, 7, seed=1), random_histogram(2, 7, seed=2)
    got = expected_similarity(h_q, h_k, kernel_matrix(kernel, offsets.double()))
    for row in range(2):
        pairs = itertools.product(range(7), repeat=2)
        want = sum(
            float(h_q[row, i] * h_k[row, j]) * math.exp(-((i - j) ** 2) / 8) for i, j in pairs
        )
        assert got[row].item() == pytest.approx(want)
    by_distance = displacement(h_q, h_k) @ kernel(torch.arange(-6, 7, dtype=D))
    torch.testing.assert_close(got, by_distance)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: rbf(torch.ones(1), 0.0), "bandwidth must be a positive number, was given 0"),
        (lambda: laplacian(torch.ones(1), -1.0), "bandwidth must be a positive"),
        (lambda: cosine(torch.ones(1), 7), "d must be even and at least 2, was given 7; try 8"),
        (lambda: cosine(torch.ones(1), 8, base=-2.0), "base must be a positive"),
        (
            lambda: expected_similarity(torch.ones(3), torch.ones(3), torch.ones(2, 2)),
            r"need a kernel \(3, 3\), was given \(2, 2\)",
        ),
        (lambda: sharpen_repeatedly(torch.ones(2), torch.tensor(2.0), -1), "times must be"),
        (lambda: sharpen_repeatedly(torch.ones(2), torch.tensor(0.0), 1), "gamma must be above 0"),
    ],
)
def test_bad_input(call, words):
    with pytest.raises(ValueError, match=words):
        call()


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
    torch.testing.assert_close(got, sharpen_repeatedly(h, power, times), rtol=1e-9, atol=1e-12)
    raised = h.log() * power[:, None] ** times
    want = (raised - raised.max(-1, keepdim=True).values).exp()
    torch.testing.assert_close(got, want / want.sum(-1, keepdim=True), rtol=1e-9, atol=1e-12)


def test_an_empty_bin_stays_empty_only_without_eps():
    h, gamma = torch.tensor([1.0, 0.0, 0.0], dtype=D), torch.tensor(2.0, dtype=D)
    assert sharpen(h, gamma, 0.0).tolist() == [1, 0, 0]
    eps = 0.01
    floor = (eps / (1 + eps)) ** 2
    want = floor / (1 + 2 * floor)
    assert sharpen(h, gamma, eps)[1].item() == pytest.approx(want)


@few
@given(seed=seeds, gamma=st.floats(1, 5), eps=st.floats(1e-8, 0.1), times=st.integers(1, 5))
def test_eps_is_a_floor_under_every_bin(seed, gamma, eps, times):
    h = random_histogram(9, seed=seed)
    for _ in range(times):
        h = sharpen(h, torch.tensor(gamma, dtype=D), eps)
    assert h.min() / h.max() >= (eps / (1 + eps)) ** gamma * (1 - 1e-9)


def test_eps_stops_the_theorem():
    """Without eps the second bin falls as 2^-(2^n); with it, it meets the floor."""
    h, gamma = torch.tensor([2 / 3, 1 / 3], dtype=D), torch.tensor(2.0, dtype=D)
    with_eps = h
    for _ in range(6):
        with_eps = sharpen(with_eps, gamma, 1e-4)
    assert sharpen_repeatedly(h, gamma, 6)[1].item() == pytest.approx(2.0**-64)
    assert with_eps[1].item() == pytest.approx(1e-8, rel=1e-3)


@few
@given(seed=seeds, eps=st.floats(1e-8, 0.1), times=st.integers(1, 6))
def test_eps_alone_drifts_to_uniform(seed, eps, times):
    h = start = random_histogram(5, seed=seed)
    for _ in range(times):
        h = sharpen(h, torch.tensor(1.0, dtype=D), eps)
    share = (1 / (1 + 5 * eps)) ** times
    torch.testing.assert_close(h, share * start + (1 - share) / 5)


def test_a_sharpened_move_is_a_reweighted_kernel_only_from_one_place():
    matrix = transition_matrix(*random_gates(seed=1), 2)
    gamma = torch.tensor(2.0, dtype=D)
    kernel = matrix**2 / (matrix**2).sum(-1, keepdim=True)
    for h in torch.eye(5, dtype=D):
        torch.testing.assert_close(sharpen(h @ matrix, gamma, 0.0), h @ kernel)
    spread = random_histogram(5, seed=1)
    assert (sharpen(spread @ matrix, gamma, 0.0) - spread @ kernel).abs().max() > 0.01
