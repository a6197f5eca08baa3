"""The update and the streams of PRISM against its paper's equations, and these against paths.

`walk` lists all paths of Algorithm 1, and `enumerated` the sums of Equations 3 to 5; `path_law` and
`joint_law` are the same by products of matrices.
"""

import itertools
from math import prod

import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from prism_equations import (
    displacement,
    learned_distance,
    sharpen_repeatedly,
    transition_matrix,
)
from torch.nn.functional import pad

from pezoo.cursors.options import CursorOptions
from pezoo.cursors.positions import wave
from pezoo.kernels.histogram import histogram_scan, sharpen, update

D = torch.float64
few = settings(max_examples=30, deadline=None)
seeds = st.integers(0, 10**6)


def random_gates(*size, seed=0):
    """incr, decr, reset, each of that size."""
    generator = torch.Generator().manual_seed(seed)
    logits = torch.randn(*size, 4, generator=generator, dtype=D)
    incr, decr, _ = logits[..., 1:].softmax(-1).unbind(-1)
    return incr, decr, logits[..., 0].sigmoid()


def random_histogram(*size, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*size, generator=generator, dtype=D).softmax(-1)


def enumerated(incr, decr, reset):
    """Equations 4 and 5, path by path: gates (n,) -> (2n + 1,)."""
    n = len(incr)
    law = torch.zeros(2 * n + 1, dtype=D)
    for path in itertools.product(itertools.product((0, 1), (0, 1, -1)), repeat=n):
        weight = prod(chance(incr, decr, reset, t, *event) for t, event in enumerate(path))
        # sum_t Δ_t prod_{u > t} (1 - R_u), as Equation 5 writes it
        end = sum(move * prod(1 - r for r, _ in path[t + 1 :]) for t, (_, move) in enumerate(path))
        law[end + n] += weight
    return law


def chance(incr, decr, reset, t, fired, step):
    own = {1: incr[t], -1: decr[t], 0: 1 - incr[t] - decr[t]}[step]
    return (reset[t] if fired else 1 - reset[t]) * own


def walk(gates, start=0):
    """Algorithm 1 from an offset: {(end, resets): probability} over all 6^n paths."""
    ends = {}
    gates = [gate.tolist() for gate in gates]
    for path in itertools.product(itertools.product((0, 1), (-1, 0, 1)), repeat=len(gates[0])):
        weight, z = 1.0, start
        for t, (fired, step) in enumerate(path):
            weight *= chance(*gates, t, fired, step)
            z = (0 if fired else z) + step
        key = z, tuple(fired for fired, _ in path)
        ends[key] = ends.get(key, 0) + weight
    return ends


def moved(h, incr, decr, reset):
    """h (..., L) after the gates (..., n), by products of matrices -> (..., L + 2n)."""
    for gates in zip(reset.unbind(-1), incr.unbind(-1), decr.unbind(-1), strict=True):
        h = (h[..., None, :] @ transition_matrix(*gates, h.shape[-1] // 2))[..., 0, :]
    return h


def path_law(incr, decr, reset):
    """Pr(D* = d), d from -n: gates (n,) -> (2n + 1,)."""
    return moved(torch.ones(1, dtype=D), incr, decr, reset)


def joint_law(h, incr, decr, reset):
    """Pr(z_l - z_k = d) along one path, z_k from h (L,)."""
    n = len(incr)
    start = torch.eye(len(h), dtype=D)
    ends = moved(start, *(gate.expand(len(h), -1) for gate in (incr, decr, reset)))
    return h @ displacement(pad(start, (n, n)), ends)


def law(pairs, size):
    """(2 size - 1,) from (d, probability)."""
    out = torch.zeros(2 * size - 1, dtype=D)
    for d, p in pairs:
        out[d + size - 1] += p
    return out


def equation_6(h, gates):
    """Between h (L,) and what all paths from each of its offsets make of it."""
    reach, n = len(h) // 2, len(gates[0])
    after = torch.zeros(len(h) + 2 * n, dtype=D)
    for i, p in enumerate(h.tolist()):
        for (z, _), q in walk(gates, i - reach).items():
            after[z + reach + n] += p * q
    return displacement(pad(h, (n, n)), after)


def distance(p, q):
    """Total variation."""
    return (p - q).abs().sum().item() / 2


def wide(p, like):
    margin = (len(like) - len(p)) // 2
    return pad(p, (margin, margin))


# One move.


@few
@given(reach=st.integers(0, 6), seed=seeds)
def test_the_matrix_is_one_update(reach, seed):
    incr, decr, reset = random_gates(3, 2, seed=seed)
    h = random_histogram(3, 2, 2 * reach + 1, seed=seed)
    matrix = transition_matrix(reset, incr, decr, reach)
    assert matrix.shape == (3, 2, 2 * reach + 1, 2 * reach + 3)
    moves = torch.stack((incr, decr, 1 - incr - decr), -1)  # (3, 2, J)
    torch.testing.assert_close((h[..., None, :] @ matrix)[..., 0, :], update(h, reset, moves))


@few
@given(reach=st.integers(0, 4), seed=seeds)
def test_the_matrix_is_algorithm_1(reach, seed):
    incr, decr, reset = random_gates(1, seed=seed)
    matrix = transition_matrix(reset[0], incr[0], decr[0], reach)
    for row, offset in enumerate(range(-reach, reach + 1)):
        want = torch.zeros(2 * reach + 3, dtype=D)
        for (end, _), p in walk((incr, decr, reset), offset).items():
            want[end + reach + 1] += p
        torch.testing.assert_close(matrix[row], want)


@few
@given(reach=st.integers(0, 5), r=st.integers(0, 16), u=st.integers(0, 16), d=st.integers(0, 16))
def test_rows_sum_to_one_exactly(reach, r, u, d):
    """In sixteenths, where floating point does not round."""
    matrix = transition_matrix(*torch.tensor([r, min(u, 16 - d), d], dtype=D) / 16, reach)
    assert (matrix >= 0).all()
    assert (matrix.sum(-1) == 1).all()


# Distances and displacements.


@few
@given(st.lists(st.floats(-1e3, 1e3), min_size=1, max_size=8))
def test_learned_distances_are_a_pseudometric(increments):
    d = learned_distance(torch.tensor(increments, dtype=D))
    size = len(increments) + 1
    assert d.shape == (size, size)
    assert (d.diagonal() == 0).all()
    assert torch.equal(d, d.T)
    assert (d[:, None, :] <= d[:, :, None] + d[None] + 1e-9).all()  # from i to k, over j
    assert d.diagonal(1).tolist() == pytest.approx([abs(x) for x in increments], abs=1e-9)
    together = int((d == 0).sum()) - size
    assert (together == 0) == (d.diagonal(1) != 0).all()


def test_displacement_is_the_double_loop():
    a, b = random_histogram(5, seed=1), random_histogram(5, seed=2)
    pairs = itertools.product(enumerate(a), enumerate(b))
    want = law(((j - i, p * q) for (i, p), (j, q) in pairs), 5)
    torch.testing.assert_close(displacement(a, b), want)
    batch = displacement(torch.stack([a, b]), torch.stack([b, a]))
    torch.testing.assert_close(batch, torch.stack([want, want.flip(0)]))


def test_streams_compare_by_equation_6():
    """<h_q F, h_k F> / (d/2) = sum_d Pr(D = d) kappa(|d|) (Equation 8)."""
    h_q, h_k = random_histogram(2, 7, seed=1), random_histogram(2, 7, seed=2)
    w = CursorOptions(d_pe=32, base=100.0).frequencies()
    f = wave(torch.arange(-3, 4), w).to(D)
    kappa = torch.cos(torch.arange(-6, 7)[:, None] * w).mean(-1).to(D)
    got = ((h_q @ f) * (h_k @ f)).sum(-1) / 16
    torch.testing.assert_close(got, displacement(h_q, h_k) @ kappa, atol=1e-6, rtol=0)


@pytest.mark.parametrize("with_resets", [False, True])
@few
@given(n=st.integers(0, 4), seed=seeds)
def test_moves_from_offset_0_are_equations_3_to_5_and_algorithm_1(with_resets, n, seed):
    incr, decr, reset = random_gates(n, seed=seed)
    resets = reset if with_resets else torch.zeros_like(reset)
    got = path_law(incr, decr, resets)
    torch.testing.assert_close(got, enumerated(incr, decr, resets))
    paths = walk((incr, decr, resets)).items()
    torch.testing.assert_close(got, law(((z, p) for (z, _), p in paths), n + 1))


def test_the_increment_of_the_resetting_token_counts():
    """Reset and step forward with certainty: 1, not 0."""
    one, zero = torch.ones(1, dtype=D), torch.zeros(1, dtype=D)
    assert path_law(one, zero, one).tolist() == [0, 0, 1]


@few
@given(n=st.integers(1, 4), seed=seeds)
def test_the_first_reset_of_the_window_does_not_matter(n, seed):
    """In Equation 5 the product starts after t, so R_k is in no term."""
    incr, decr, reset = random_gates(n, seed=seed)
    other = reset.clone()
    other[0] = 1 - reset[0]
    a, b = (path_law(incr, decr, r) for r in (reset, other))
    torch.testing.assert_close(a, b)


@few
@given(n=st.integers(0, 3), reach=st.integers(0, 2), seed=seeds)
def test_the_joint_law_lists_all_paths_from_all_starts(n, reach, seed):
    gates, h = random_gates(n, seed=seed), random_histogram(2 * reach + 1, seed=seed)
    ends, effective = [], []
    for start, p in enumerate(h.tolist(), -reach):
        ends += [(z - start, p * q) for (z, _), q in walk(gates, start).items()]
        # From offset 0, D* itself: less the start where a reset has fired.
        effective += [(z - start * any(r), p * q) for (z, r), q in walk(gates).items()]
    got = joint_law(h, *gates)
    torch.testing.assert_close(got, law(ends, len(h) + 2 * n))
    torch.testing.assert_close(got, law(effective, len(h) + 2 * n))


# When Equation 6 is which law.


@few
@given(n=st.integers(1, 3), at=st.integers(0, 4), seed=seeds)
def test_equation_6_is_the_joint_law_from_a_certain_place(n, at, seed):
    """z_k = at - 2. It is Equation 4 as well from offset 0 or if no reset can fire."""
    incr, decr, reset = random_gates(n, seed=seed)
    h = torch.eye(5, dtype=D)[at]
    six = equation_6(h, (incr, decr, reset))
    torch.testing.assert_close(six, joint_law(h, incr, decr, reset))
    four = wide(path_law(incr, decr, reset), six)
    assert (distance(six, four) < 1e-9) == (at == 2)
    never = torch.zeros_like(reset)
    six = equation_6(h, (incr, decr, never))
    torch.testing.assert_close(six, wide(path_law(incr, decr, never), six))


@few
@given(n=st.integers(1, 3), seed=seeds, data=st.data())
def test_equation_6_is_the_joint_law_after_a_certain_reset(n, seed, data):
    incr, decr, reset = random_gates(n, seed=seed)
    reset[data.draw(st.integers(0, n - 1))] = 1
    h = random_histogram(5, seed=seed)
    six = equation_6(h, (incr, decr, reset))
    torch.testing.assert_close(six, joint_law(h, incr, decr, reset))
    assert distance(six, wide(path_law(incr, decr, reset), six)) > 1e-6


@few
@given(n=st.integers(1, 3), seed=seeds)
def test_equation_6_is_neither_law_from_an_uncertain_place(n, seed):
    """Its distance to the joint law is at most q (1 - sum h^2), q the chance of no reset."""
    incr, decr, reset = random_gates(n, seed=seed)
    h = random_histogram(5, seed=seed)
    assume(h.max() < 0.99)
    six = equation_6(h, (incr, decr, reset))
    q = (1 - reset).prod().item()
    off = distance(six, joint_law(h, incr, decr, reset))
    assert 1e-9 < off <= q * (1 - h.square().sum().item()) + 1e-12
    assert distance(six, wide(path_law(incr, decr, reset), six)) > 1e-6


def test_two_cursors_are_independent():
    """Equation 6 between a query's and a key's cursor: all pairs of paths."""
    first, second = random_gates(2, seed=1), random_gates(2, seed=2)
    pairs = itertools.product(walk(first).items(), walk(second).items())
    want = law(((b - a, p * q) for ((a, _), p), ((b, _), q) in pairs), 5)
    got = displacement(path_law(*first), path_law(*second))
    torch.testing.assert_close(got, want)


def test_scanned_histograms_are_equation_4_unless_sharpened():
    incr, decr, reset = random_gates(3, seed=1)
    gates = reset[None, :, None], torch.stack([incr, decr, 1 - incr - decr], -1)[None, :, None]
    exact = path_law(incr, decr, reset)
    torch.testing.assert_close(histogram_scan(*gates, None)[0, -1, 0], exact)
    sharp = histogram_scan(*gates, torch.tensor([2.0], dtype=D))[0, -1, 0]
    assert distance(sharp, exact) > 0.1


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


def test_a_sharpened_move_is_a_reweighted_kernel_only_from_one_place():
    incr, decr, reset = random_gates(seed=1)
    matrix, gamma = transition_matrix(reset, incr, decr, 2), torch.tensor(2.0, dtype=D)
    kernel = matrix**2 / (matrix**2).sum(-1, keepdim=True)
    for h in torch.eye(5, dtype=D):
        torch.testing.assert_close(sharpen(h @ matrix, gamma, 0.0), h @ kernel)
    spread = random_histogram(5, seed=1)
    assert (sharpen(spread @ matrix, gamma, 0.0) - spread @ kernel).abs().max() > 0.01
