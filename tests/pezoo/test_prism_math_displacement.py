"""Equations 3 to 6 against paths listed one by one, and when Equation 6 is which law.

`walk` is Algorithm 1 and nothing else: the oracle knows no formula of the paper.
"""

import itertools
from math import prod

import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from torch.nn.functional import pad

from pezoo.kernels.histogram import histogram_scan
from pezoo.prism_math import (
    displacement,
    joint_displacement,
    last_reset_distribution,
    path_displacement,
)

D = torch.float64
few = settings(max_examples=30, deadline=None)
seeds = st.integers(0, 10**6)


def enumerated_displacement(incr, decr, reset=None):
    """The sums of Equations 3 (no `reset`) and 4 to 5, path by path: gates (n,) -> (2n + 1,)."""
    n = len(incr)
    p_reset = [[1.0, 0.0]] * n if reset is None else [[1 - r, r] for r in reset.tolist()]
    p_move = [[1 - u - d, u, d] for u, d in zip(incr.tolist(), decr.tolist(), strict=True)]
    law = [0.0] * (2 * n + 1)
    for resets in itertools.product((0,) if reset is None else (0, 1), repeat=n):
        for moves in itertools.product((0, 1, -1), repeat=n):
            weight = prod(p_reset[t][resets[t]] * p_move[t][moves[t]] for t in range(n))
            # sum_t Δ_t prod_{u > t} (1 - R_u), as Equation 5 writes it
            end = sum(move * prod(1 - r for r in resets[t + 1 :]) for t, move in enumerate(moves))
            law[end + n] += weight
    return torch.tensor(law, dtype=incr.dtype)


def random_gates(n, seed=0):
    """incr, decr, reset, each (n,)."""
    generator = torch.Generator().manual_seed(seed)
    logits = torch.randn(n, 4, generator=generator, dtype=D)
    incr, decr, _ = logits[:, 1:].softmax(-1).unbind(-1)
    return incr, decr, logits[:, 0].sigmoid()


def random_histogram(size, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(size, generator=generator, dtype=D).softmax(-1)


def walk(gates, start=0):
    """Algorithm 1 from an offset: {(end, resets): probability} over all 6^n paths."""
    ends = {}
    incr, decr, reset = (g.tolist() for g in gates)
    steps = [(fired, step) for fired in (0, 1) for step in (-1, 0, 1)]
    for path in itertools.product(steps, repeat=len(incr)):
        weight, z = 1.0, start
        for t, (fired, step) in enumerate(path):
            weight *= reset[t] if fired else 1 - reset[t]
            weight *= {1: incr[t], -1: decr[t], 0: 1 - incr[t] - decr[t]}[step]
            z = (0 if fired else z) + step
        key = z, tuple(fired for fired, _ in path)
        ends[key] = ends.get(key, 0) + weight
    return ends


def law(pairs, size):
    """(2 size - 1,) from (d, probability)."""
    out = torch.zeros(2 * size - 1, dtype=D)
    for d, p in pairs:
        out[d + size - 1] += p
    return out


def marginal(h, gates):
    """h (L,) after all paths, by `walk` from each of its offsets -> (L + 2n,)."""
    reach, n = len(h) // 2, len(gates[0])
    out = torch.zeros(len(h) + 2 * n, dtype=D)
    for i, p in enumerate(h.tolist()):
        for (z, _), q in walk(gates, i - reach).items():
            out[z + reach + n] += p * q
    return out


def distance(p, q):
    """Total variation."""
    return (p - q).abs().sum().item() / 2


def equation_6(h, gates):
    n = len(gates[0])
    return displacement(pad(h, (n, n)), marginal(h, gates))


def wide(p, like):
    margin = (len(like) - len(p)) // 2
    return pad(p, (margin, margin))


def point(size, at):
    return torch.eye(size, dtype=D)[at]


@pytest.mark.parametrize("n", range(5))
def test_equation_3(n):
    incr, decr, _ = random_gates(n, seed=n)
    want = torch.zeros(2 * n + 1, dtype=D)
    for steps in itertools.product((-1, 0, 1), repeat=n):
        weight = 1.0
        for t, step in enumerate(steps):
            weight *= float({1: incr[t], -1: decr[t], 0: 1 - incr[t] - decr[t]}[step])
        want[sum(steps) + n] += weight
    torch.testing.assert_close(enumerated_displacement(incr, decr), want)
    torch.testing.assert_close(path_displacement(incr, decr), want)
    zero = torch.zeros_like(incr)
    torch.testing.assert_close(enumerated_displacement(incr, decr, zero), want)


@pytest.mark.parametrize("n", range(1, 5))
def test_equations_4_and_5_are_algorithm_1_from_offset_0(n):
    gates = random_gates(n, seed=n)
    want = law(((z, p) for (z, _), p in walk(gates).items()), n + 1)
    torch.testing.assert_close(enumerated_displacement(*gates), want)
    torch.testing.assert_close(path_displacement(*gates), want)


@few
@given(n=st.integers(1, 5), seed=seeds)
def test_the_recursion_is_the_enumeration(n, seed):
    gates = random_gates(n, seed)
    torch.testing.assert_close(path_displacement(*gates), enumerated_displacement(*gates))


def test_the_increment_of_the_resetting_token_counts():
    """Reset and step forward with certainty: 1 by Equation 5 and by Algorithm 1, not 0."""
    one, zero = torch.ones(1, dtype=D), torch.zeros(1, dtype=D)
    assert enumerated_displacement(one, zero, one).tolist() == [0, 0, 1]
    assert walk((one, zero, one))[1, (1,)] == 1


@few
@given(n=st.integers(1, 3), seed=seeds)
def test_a_product_from_u_equal_t_is_to_move_first(n, seed):
    """Had the reset come after the move of its token, another law: TV(Eq. 5, it) says how far."""
    incr, decr, reset = (g.tolist() for g in random_gates(n, seed))
    moved_first, other = torch.zeros(2 * n + 1, dtype=D), torch.zeros(2 * n + 1, dtype=D)
    for path in itertools.product(itertools.product((0, 1), (-1, 0, 1)), repeat=n):
        weight, z, product = 1.0, 0, 0
        for t, (fired, step) in enumerate(path):
            weight *= reset[t] if fired else 1 - reset[t]
            weight *= {1: incr[t], -1: decr[t], 0: 1 - incr[t] - decr[t]}[step]
            z = 0 if fired else z + step
            product += step * (not any(r for r, _ in path[t:]))
        moved_first[z + n] += weight
        other[product + n] += weight
    torch.testing.assert_close(moved_first, other)
    gates = random_gates(n, seed)
    # The last token's own increment alone makes them differ wherever it may reset.
    assert distance(enumerated_displacement(*gates), other) > 1e-6


@few
@given(n=st.integers(1, 4), seed=seeds)
def test_the_first_reset_of_the_window_does_not_matter(n, seed):
    """In Equation 5 the product starts after t, so R_k is in no term."""
    incr, decr, reset = random_gates(n, seed)
    other = reset.clone()
    other[0] = 1 - reset[0]
    a, b = (enumerated_displacement(incr, decr, r) for r in (reset, other))
    torch.testing.assert_close(a, b)


@few
@given(n=st.integers(1, 5), seed=seeds)
def test_equation_4_is_a_mixture_of_equation_3_over_the_last_reset(n, seed):
    incr, decr, reset = random_gates(n, seed)
    weight = last_reset_distribution(reset)[-1]
    want = weight[0] * path_displacement(incr, decr)
    for s in range(n):
        part = path_displacement(incr[s:], decr[s:])
        want = want + weight[s + 1] * wide(part, want)
    torch.testing.assert_close(path_displacement(incr, decr, reset), want)


@few
@given(n=st.integers(0, 3), reach=st.integers(0, 2), seed=seeds)
def test_the_joint_law_lists_all_paths_from_all_starts(n, reach, seed):
    gates, h = random_gates(n, seed), random_histogram(2 * reach + 1, seed)
    pairs = []
    for i, p in enumerate(h.tolist()):
        start = i - reach
        pairs += [(z - start, p * q) for (z, _), q in walk(gates, start).items()]
    got = joint_displacement(h, *gates)
    torch.testing.assert_close(got, law(pairs, len(h) + 2 * n))
    torch.testing.assert_close(got.sum(), torch.tensor(1.0, dtype=D))


@few
@given(n=st.integers(1, 3), reach=st.integers(0, 2), seed=seeds)
def test_the_joint_law_is_equation_5_without_a_reset_and_less_the_start_with_one(n, reach, seed):
    gates, h = random_gates(n, seed), random_histogram(2 * reach + 1, seed)
    pairs = []
    for i, p in enumerate(h.tolist()):
        for (effective, fired), q in walk(gates).items():  # from 0: D* itself
            pairs.append((effective - (i - reach if any(fired) else 0), p * q))
    torch.testing.assert_close(joint_displacement(h, *gates), law(pairs, len(h) + 2 * n))


def test_batches():
    gates = [torch.stack(pair) for pair in zip(random_gates(3, 1), random_gates(3, 2), strict=True)]
    h = torch.stack([random_histogram(5, 1), random_histogram(5, 2)])
    for row in range(2):
        own = [g[row] for g in gates]
        torch.testing.assert_close(path_displacement(*gates)[row], path_displacement(*own))
        want = joint_displacement(h[row], *own)
        torch.testing.assert_close(joint_displacement(h, *gates)[row], want)


# When Equation 6 is which law.


@few
@given(n=st.integers(1, 3), reach=st.integers(0, 2), seed=seeds)
def test_equation_6_is_equation_4_from_a_certain_origin(n, reach, seed):
    """z_k = 0: as at the first token of a sequence."""
    gates = random_gates(n, seed)
    six = equation_6(point(2 * reach + 1, reach), gates)
    torch.testing.assert_close(six, wide(path_displacement(*gates), six))


@few
@given(n=st.integers(1, 3), at=st.integers(0, 4), seed=seeds)
def test_equation_6_is_the_joint_law_from_a_certain_place(n, at, seed):
    """z_k = at - 2. It is Equation 4 as well if no reset can fire, and not otherwise."""
    incr, decr, reset = random_gates(n, seed)
    h = point(5, at)
    six = equation_6(h, (incr, decr, reset))
    torch.testing.assert_close(six, joint_displacement(h, incr, decr, reset))
    four = wide(path_displacement(incr, decr, reset), six)
    assert (distance(six, four) < 1e-9) == (at == 2)
    zero = torch.zeros_like(reset)
    six = equation_6(h, (incr, decr, zero))
    torch.testing.assert_close(six, wide(path_displacement(incr, decr), six))


@few
@given(n=st.integers(1, 3), seed=seeds, data=st.data())
def test_equation_6_is_the_joint_law_after_a_certain_reset(n, seed, data):
    incr, decr, reset = random_gates(n, seed)
    reset[data.draw(st.integers(0, n - 1))] = 1
    h = random_histogram(5, seed)
    six = equation_6(h, (incr, decr, reset))
    torch.testing.assert_close(six, joint_displacement(h, incr, decr, reset))
    assert distance(six, wide(path_displacement(incr, decr, reset), six)) > 1e-6


@few
@given(n=st.integers(1, 3), seed=seeds)
def test_equation_6_is_neither_law_from_an_uncertain_place(n, seed):
    """And its distance to the joint law is at most q (1 - sum h^2)."""
    incr, decr, reset = random_gates(n, seed)
    h = random_histogram(5, seed)
    assume(h.max() < 0.99)
    six = equation_6(h, (incr, decr, reset))
    q = (1 - reset).prod().item()
    off = distance(six, joint_displacement(h, incr, decr, reset))
    assert 1e-9 < off <= q * (1 - h.square().sum().item()) + 1e-12
    assert distance(six, wide(path_displacement(incr, decr, reset), six)) > 1e-6


@few
@given(n=st.integers(1, 3), seed=seeds)
def test_the_gap_is_the_spread_of_the_start_twice(n, seed):
    """Equation 6 - joint law = q Eq. 3 * (law of z - z' - no move); variances 2 Var(z) apart."""
    incr, decr, reset = random_gates(n, seed)
    h = random_histogram(3, seed)
    spread = displacement(h, h)
    spread[2] -= 1
    free = path_displacement(incr, decr)
    gap = torch.zeros(2 * (3 + 2 * n) - 1, dtype=D)
    for i, a in enumerate(spread.tolist(), -2):
        for j, b in enumerate(free.tolist(), -n):
            gap[i + j + 2 + 2 * n] += (1 - reset).prod() * a * b
    six = equation_6(h, (incr, decr, reset))
    torch.testing.assert_close(six - joint_displacement(h, incr, decr, reset), gap)
    zero = torch.zeros_like(reset)
    six = equation_6(h, (incr, decr, zero))
    more = variance(six) - variance(path_displacement(incr, decr))
    assert more == pytest.approx(2 * variance(h))


def variance(p):
    d = torch.arange(len(p), dtype=D) - len(p) // 2
    mean = (p * d).sum()
    return (p * (d - mean) ** 2).sum().item()


def test_two_cursors_are_independent():
    """Equation 6 between a query's and a key's cursor: all pairs of paths."""
    first, second = random_gates(2, 1), random_gates(2, 2)
    pairs = itertools.product(walk(first).items(), walk(second).items())
    want = law(((b - a, p * q) for ((a, _), p), ((b, _), q) in pairs), 5)
    got = displacement(path_displacement(*first), path_displacement(*second))
    torch.testing.assert_close(got, want)


def test_sharpened_histograms_are_no_marginals():
    """Even from a certain origin, where Equation 6 is exact without sharpening."""
    incr, decr, reset = random_gates(3, 1)
    gates = reset[None, :, None], torch.stack([incr, decr, 1 - incr - decr], -1)[None, :, None]
    exact = path_displacement(incr, decr, reset)
    plain = histogram_scan(*gates, None)[0, -1, 0]
    torch.testing.assert_close(plain, exact)
    sharp = histogram_scan(*gates, torch.tensor([2.0], dtype=D))[0, -1, 0]
    assert distance(sharp, exact) > 0.1


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: displacement(torch.ones(3), torch.ones(5)), "the same offsets, were given 3 and"),
        (lambda: path_displacement(torch.ones(2), torch.ones(2)), r"incr \+ decr"),
        (lambda: path_displacement(torch.ones(2), torch.zeros(3)), "one shape"),
        (lambda: joint_displacement(torch.ones(4) / 4, *torch.zeros(2, 2)), "odd number"),
        (lambda: joint_displacement(2 * torch.ones(3), *torch.zeros(2, 2)), "h_from must hold"),
    ],
)
def test_bad_input(call, words):
    with pytest.raises(ValueError, match=words):
        call()
