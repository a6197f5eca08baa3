"""Resets as origins, and distances from increments, against loops and listed outcomes."""

import itertools
import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from pezoo.prism_math import (
    last_reset,
    last_reset_distribution,
    learned_distance,
    metric_axioms,
    relative_coordinate,
    same_origin,
    signed_displacement,
)

D = torch.float64
few = settings(max_examples=40, deadline=None)
moves = st.lists(st.sampled_from([-1, 0, 1]), max_size=7)


def tau(resets, t):
    return max((s for s in range(t + 1) if resets[s]), default=-1)


def outcomes(p):
    """Every 0/1 vector and its probability."""
    for resets in itertools.product((0, 1), repeat=len(p)):
        yield resets, math.prod(x if r else 1 - x for x, r in zip(p, resets, strict=True))


def tokens(data, steps):
    return data.draw(st.lists(st.integers(0, 1), min_size=len(steps) + 1, max_size=len(steps) + 1))


@few
@given(st.lists(st.integers(0, 1), min_size=1, max_size=9))
def test_the_last_reset(resets):
    want = [tau(resets, t) for t in range(len(resets))]
    assert last_reset(torch.tensor(resets)).tolist() == want
    both = torch.tensor([resets, [0] * len(resets)], dtype=torch.bool)
    assert last_reset(both).tolist() == [want, [-1] * len(resets)]


@few
@given(st.lists(st.floats(0, 1), min_size=1, max_size=5))
def test_its_distribution_lists_all_outcomes(p):
    size = len(p)
    want = torch.zeros(size, size + 1, dtype=D)
    same = torch.zeros(size, size, dtype=D)
    for resets, weight in outcomes(p):
        last = [tau(resets, t) for t in range(size)]
        for t in range(size):
            want[t, last[t] + 1] += weight
            for s in range(size):
                same[t, s] += weight * (last[t] == last[s])
    reset = torch.tensor(p, dtype=D)
    torch.testing.assert_close(last_reset_distribution(reset), want)
    torch.testing.assert_close(same_origin(reset), same)
    torch.testing.assert_close(last_reset_distribution(reset).sum(-1), torch.ones(size, dtype=D))
    batch = torch.stack([reset.flip(0), reset])
    torch.testing.assert_close(last_reset_distribution(batch)[1], want)
    torch.testing.assert_close(same_origin(batch)[1], same)


@few
@given(steps=moves, data=st.data())
def test_the_relative_coordinate_starts_at_the_last_reset(steps, data):
    resets = tokens(data, steps)
    r = relative_coordinate(torch.tensor(steps, dtype=D), torch.tensor(resets))
    for t in range(len(resets)):
        assert r[t] == sum(steps[max(tau(resets, t), 0) : t])
        if resets[t]:
            assert r[t] == 0


@few
@given(steps=moves, data=st.data())
def test_algorithm_1_stands_one_increment_further(steps, data):
    """After token t at r^_t + increment_t; before it at r^_t, unless token t resets."""
    resets = tokens(data, steps)
    r = relative_coordinate(torch.tensor(steps, dtype=D), torch.tensor(resets)).tolist()
    z = 0
    for t, step in enumerate(steps):
        if not resets[t]:
            assert z == r[t]
        z = (0 if resets[t] else z) + step
        assert z == r[t] + step


@few
@given(steps=moves, data=st.data())
def test_equation_2_holds_between_tokens_of_one_origin(steps, data):
    resets = tokens(data, steps)
    increments, reset = torch.tensor(steps, dtype=D), torch.tensor(resets)
    d = signed_displacement(increments, reset)
    r = relative_coordinate(increments, reset)
    apart = []
    for k in range(len(resets)):
        for t in range(k, len(resets)):
            if tau(resets, k) == tau(resets, t):
                assert d[k, t] == sum(steps[k:t]) == r[t] - r[k]
                assert d[t, k] == -d[k, t]
            else:
                assert d[k, t].isnan()
                assert d[t, k].isnan()
                apart.append((k, t))
    assert bool(apart) == any(resets[1:])


def test_across_a_reset_coordinates_do_not_sum_the_increments():
    """Three steps forward, a reset at token 2: a path of 3, and coordinates 1 apart."""
    increments, reset = torch.ones(3), torch.tensor([0, 0, 1, 0])
    r = relative_coordinate(increments, reset)
    assert (r[3] - r[0]).item() == 1
    assert signed_displacement(increments)[0, 3] == 3


@few
@given(st.lists(st.floats(-10, 10), max_size=7))
def test_displacements_add_up_and_distances_are_pseudometrics(steps):
    increments = torch.tensor(steps, dtype=D)
    signed = signed_displacement(increments)
    torch.testing.assert_close(signed, -signed.T)
    over = signed[:, :, None] + signed[None]  # from k over m to l
    torch.testing.assert_close(over, signed[:, None].expand_as(over))
    for d in (learned_distance(increments), signed.abs()):
        assert (d >= 0).all()
        assert (d.diagonal() == 0).all()
        assert torch.equal(d, d.T)
        assert (d[:, None, :] <= d[:, :, None] + d[None] + 1e-9).all()
    assert (signed.abs() <= learned_distance(increments) + 1e-9).all()


@few
@given(moves)
def test_distinct_tokens_are_apart_if_no_increment_is_zero(steps):
    d = learned_distance(torch.tensor(steps, dtype=D))
    together = (d == 0).sum() - len(d)
    assert (together == 0) == (0 not in steps)


@few
@given(st.integers(1, 5), st.integers(0, 10**6))
def test_the_axioms_are_the_loops(size, seed):
    d = torch.randint(-2, 6, (2, size, size), generator=torch.Generator().manual_seed(seed))
    got = metric_axioms(d.to(D))
    for row, matrix in enumerate(d.tolist()):
        every = range(size)
        triples = itertools.product(every, repeat=3)
        want = (
            max(max(0, -matrix[k][n]) for k in every for n in every),
            max(abs(matrix[k][k]) for k in every),
            max(abs(matrix[k][n] - matrix[n][k]) for k in every for n in every),
            max(max(0, matrix[k][n] - matrix[k][m] - matrix[m][n]) for k, m, n in triples),
            sum(matrix[k][n] == 0 for k in every for n in every if k < n),
        )
        assert tuple(gap[row].item() for gap in got) == want


@few
@given(moves)
def test_learned_distances_keep_the_axioms(steps):
    increments = torch.tensor(steps, dtype=D)
    *gaps, together = metric_axioms(learned_distance(increments))
    assert gaps == [0, 0, 0, 0]
    assert (together == 0) == (0 not in steps)
    assert metric_axioms(signed_displacement(increments).abs())[:4] == (0, 0, 0, 0)
    assert (metric_axioms(signed_displacement(increments)).negative > 0) == any(steps)


def test_the_net_displacement_puts_a_return_at_distance_zero():
    steps = torch.tensor([1.0, -1.0])
    assert signed_displacement(steps)[0, 2] == 0
    assert learned_distance(steps)[0, 2] == 2


def test_distances_scale_and_batch():
    steps = torch.tensor([[1.0, -2.0, 0.5], [0.0, 1.0, 1.0]], dtype=D)
    torch.testing.assert_close(learned_distance(3 * steps), 3 * learned_distance(steps))
    torch.testing.assert_close(learned_distance(steps)[1], learned_distance(steps[1]))
    torch.testing.assert_close(signed_displacement(steps)[1], signed_displacement(steps[1]))


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: metric_axioms(torch.zeros(2, 3)), r"must be \(\.\.\., T, T\), were \(2, 3\)"),
        (lambda: last_reset(torch.tensor([0.5, 1.0])), "must be 0 or 1.*last_reset_distribution"),
        (lambda: last_reset_distribution(torch.tensor([1.5])), "probabilities in"),
        (lambda: same_origin(torch.tensor([-1])), "probabilities in"),
        (
            lambda: relative_coordinate(torch.ones(3), torch.zeros(3)),
            r"resets \(3,\) need one increment less, \(2,\), was given \(3,\)",
        ),
    ],
)
def test_bad_input(call, words):
    with pytest.raises(ValueError, match=words):
        call()
