"""Paired comparisons with Holm's correction, against definitions and simulations."""

import math
from statistics import fmean

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import ttest_rel

from leaderboard.stats.comparisons import SeedScores, compare, holm, paired
from leaderboard.stats.intervals import quantile, two_sided
from leaderboard.stats.ranks import verdicts
from leaderboard.stats.summary import summarise

P_VALUES = st.lists(st.floats(0, 1), max_size=8)
SEEDS = st.dictionaries(st.integers(0, 6), st.floats(0, 1).map(lambda x: round(x, 3)), max_size=6)


def rejected(values, alpha):
    """Holm's procedure as it is defined: smallest first, up to the first that is too large."""
    left, out = sorted(range(len(values)), key=values.__getitem__), set()
    while left and values[left[0]] * len(left) <= alpha:
        out.add(left.pop(0))
    return out


@given(P_VALUES, st.floats(0.001, 0.999))
def test_holm_rejects_what_the_procedure_rejects(values, alpha):
    adjusted = holm(values)
    found = {index for index, p in enumerate(adjusted) if p <= alpha}
    assert found == rejected(values, alpha)
    assert all(p <= a <= 1 for p, a in zip(values, adjusted, strict=True))


@given(SEEDS, SEEDS)
def test_the_paired_test_is_scipys(first, second):
    shared = sorted(first.keys() & second.keys())
    found = paired(SeedScores(first), SeedScores(second))
    if len(shared) < 2:
        assert found is None
        return
    stat, p = found
    differences = [round(first[seed] - second[seed], 9) for seed in shared]
    if len(set(differences)) == 1:
        assert p == (0.0 if differences[0] else 1.0)
        return
    oracle = ttest_rel([first[s] for s in shared], [second[s] for s in shared])
    assert p == pytest.approx(oracle.pvalue, abs=1e-9)
    low, high = oracle.confidence_interval(0.95)
    assert (stat.low, stat.high) == pytest.approx((max(low, -1), min(high, 1)), abs=1e-9)
    assert (stat.mean, stat.n) == (pytest.approx(fmean(differences)), len(shared))
    assert paired(SeedScores(second), SeedScores(first))[1] == pytest.approx(p)


def test_equal_differences_are_no_proof_within_a_step():
    """With one right answer in 160 as the step: t = d sqrt(3) * 160, two degrees of freedom."""
    ones = SeedScores(dict.fromkeys(range(3), 1.0), 1 / 160)
    close, far = (SeedScores(dict.fromkeys(range(3), value)) for value in (0.99, 0.0))
    for other, t in ((close, 0.01 * 3**0.5 * 160), (far, 3**0.5 * 160)):
        assert paired(ones, other)[1] == pytest.approx(1 - t / (t * t + 2) ** 0.5)
    (one,) = compare({"ones": ones, "close": close})
    assert one.sign == 0
    assert one.difference.low == pytest.approx(0.01 - 4.3027 / 160 / 3**0.5, abs=1e-5)
    assert compare({"ones": ones, "far": far})[0].sign == 1


def test_a_table():
    scores = {
        "good": SeedScores({0: 0.9, 1: 0.92, 2: 0.91, 3: 0.9}),
        "same": SeedScores({0: 0.91, 1: 0.9, 2: 0.92, 3: 0.9}),
        "bad": SeedScores({0: 0.5, 1: 0.51, 2: 0.49, 3: 0.52}),
        "alone": SeedScores({7: 1.0, 0: 1.0}),
    }
    found = {(c.first, c.second): c for c in compare(scores)}
    assert list(found) == [
        ("good", "same"),
        ("good", "bad"),
        ("good", "alone"),
        ("same", "bad"),
        ("same", "alone"),
        ("bad", "alone"),
    ]
    assert found["good", "same"].sign == 0
    assert found["good", "bad"].sign == 1
    assert found["same", "bad"].sign == 1
    alone = found["bad", "alone"]
    assert (alone.difference, alone.p, alone.adjusted, alone.sign) == (None, None, None, 0)
    one = found["good", "bad"]
    assert one.difference.mean == pytest.approx(0.4025)
    assert one.difference.low < 0.4025 < one.difference.high
    assert one.adjusted == pytest.approx(3 * one.p)  # the smallest of three
    swapped = compare({"bad": scores["bad"], "good": scores["good"]})[0]
    assert swapped.sign == -1


def seeds(record, name, *values, first=0):
    return [record(name, first + at, {10: 100, 20: v}) for at, v in enumerate(values)]


def test_verdicts_in_words(record):
    rows = summarise(
        seeds(record, "a", 90, 91, 92)
        + seeds(record, "b", 89, 92, 90)
        + seeds(record, "c", 10, 12, 11)
        + seeds(record, "d", 5, 5, first=7)
    )
    assert verdicts(rows) == [
        "Paired t tests over shared seeds, 5 % level, Holm's correction over 3 pairs:",
        "a: better than c",
        "b: better than c",
        "All other pairs that share two seeds: not distinguishable",
    ]
    assert verdicts(rows[:2]) == [
        "Paired t tests over shared seeds, 5 % level, Holm's correction over 1 pair: "
        "no two are distinguishable"
    ]


def test_two_with_custom_options_are_left_out_not_put_down_to_their_seeds(record):
    typed = [one for n in range(2) for one in seeds(record, f"c(n={n})", 60 + n, 62, 61)]
    own = "; an encoding set apart adds its own pairs to its own tests alone"
    test = "Paired t tests over shared seeds, 5 % level, Holm's correction"
    left = "Encodings set apart are not compared with each other"
    a, b = seeds(record, "a", 10, 12, 11), seeds(record, "b", 11, 10, 12)
    assert verdicts(summarise(a + typed)) == [
        f"{test} over the pairs of each encoding set apart:",
        "c(n=1): better than a",
        "c(n=0): better than a",
        left,
    ]
    words = verdicts(summarise(a + b + typed))
    assert words[0] == f"{test} over 1 pair{own}:"
    same = [one for n in range(2) for one in seeds(record, f"c(n={n})", 11, 11, 11)]
    apart = seeds(record, "d(n=3)", 90, 91, first=7)
    assert verdicts(summarise(a + b + same + apart)) == [
        f"{test} over 1 pair{own}: no two are distinguishable",
        "Not compared, with fewer than two shared seeds: d(n=3)",
        left,
    ]


def test_why_nothing_is_compared(record):
    a = seeds(record, "a", 5, 6)
    unable = [record("b", n, {10: 99, 20: "cannot represent"}) for n in range(2)]
    typed = [one for n in range(2) for one in seeds(record, f"c(n={n})", 5, 6)]
    for records, why in (
        (a, "there is only one encoding"),
        (a + unable, "only a has a score at unseen lengths"),
        (
            [*unable, record("c", 0, {10: 99, 20: "no instance"})],
            "no encoding has a score at unseen lengths",
        ),
        (a + seeds(record, "b", 5, 5, first=1), "no two encodings share two seeds"),
        (typed, "those that share two seeds are all set apart"),
    ):
        assert verdicts(summarise(records)) == [f"No comparison: {why}"]


def test_a_row_with_custom_options_changes_no_other_verdict(record):
    plain = seeds(record, "a", 60, 62, 61) + seeds(record, "b", 50, 50, 51)
    tuned = [one for n in range(9) for one in seeds(record, f"c(n={n})", 60 + n, 61 + 2 * n, 62)]
    before, after = (
        {row.label: row.ranks for row in summarise(records)} for records in (plain, plain + tuned)
    )
    assert before == {"a": (1, 1), "b": (2, 2)}
    assert {label: after[label] for label in before} == before


@given(t=st.floats(-1e6, 1e6))
def test_students_t_with_one_and_two_degrees_has_a_closed_form(t):
    one, two = 1 - 2 / math.pi * math.atan(abs(t)), 1 - abs(t) / math.hypot(t, math.sqrt(2))
    near = 1e-8 if 0 < abs(t) < 1e-4 else 1e-12  # scipy loses digits of one degree there
    assert two_sided(t, 1) == pytest.approx(one, abs=near)
    assert two_sided(t, 2) == pytest.approx(two, abs=1e-12)


@given(level=st.floats(0.01, 0.999), freedom=st.integers(1, 2000))
def test_a_quantile_leaves_the_rest(level, freedom):
    assert two_sided(quantile(level, freedom), freedom) == pytest.approx(1 - level, rel=1e-9)


def test_ends():
    assert (two_sided(0.0, 3), two_sided(1e200, 3)) == (1.0, 0.0)
