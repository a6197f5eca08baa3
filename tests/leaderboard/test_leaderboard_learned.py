"""Effective length, what has been learned, and ranks, recomputed without the leaderboard's code."""

from __future__ import annotations

from itertools import groupby
from math import inf, isinf
from statistics import fmean, median

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from made_records import raw_record

from leaderboard.record.read import RECORDS, load
from leaderboard.record.schema import Record
from leaderboard.stats.overview import counting, overview
from leaderboard.stats.tables import tables

LENGTHS, STEPS = (10, 11, 20, 50), (500, 1000, 1500)
SCORES = st.sampled_from((0, 89, 90, 100))
RUN = st.tuples(
    st.tuples(*[SCORES] * len(LENGTHS)),
    st.tuples(*[st.sampled_from((0.5, 0.97, 0.98, 1.0))] * len(STEPS)),
)


@st.composite
def results(draw):
    """{(task, encoding): {seed: (right answers of 100 by length, validation by step)}}"""
    seeds = draw(st.sampled_from((1, 2, 3, 5)))
    names = "abcd"[: draw(st.integers(2, 4))]
    tasks = ("copy", "reverse", "sort")[: draw(st.integers(1, 3))]
    cells = [(task, name) for task in tasks for name in names]
    ran = [one for one in cells if one[1] == "a" or draw(st.integers(0, 4))]
    # A good run is likely, so that tasks are learned and counted.
    good = st.just(((100, 100, 90, 0), (0.5, 0.98, 1.0)))
    return {one: {seed: draw(good | good | RUN) for seed in range(seeds)} for one in ran}


def reach_of(runs, lengths=LENGTHS):
    """The longest length over the training length that four of five seeds pass, and all before."""
    found = None
    for at, length in enumerate(lengths):
        passed = sum(right[at] >= 90 for right, _ in runs.values())
        if 5 * passed < 4 * len(runs):
            break
        found = length / lengths[0]
    return found


def steps_of(runs):
    firsts = []
    for _, validation in runs.values():
        passed = [step for step, share in zip(STEPS, validation, strict=True) if share >= 0.98]
        firsts.append(min(passed, default=inf))
    middle = median(firsts)
    return None if isinf(middle) else middle


def mean_of(runs):
    return fmean(fmean(right[1:]) / 100 for right, _ in runs.values())


def place(means, name):
    """1 + the number of better ones."""
    return 1 + sum(round(means[name], 9) < round(other, 9) for other in means.values())


@settings(max_examples=60, deadline=None)
@given(results())
def test_reach_learned_and_ranks_are_those_of_a_plain_computation(results):
    records = [
        Record.of(
            raw_record(
                name, seed, dict(zip(LENGTHS, right, strict=True)), task=task,
                learning=[{"step": s, "exact": v} for s, v in zip(STEPS, curve, strict=True)],
            )
        )
        for (task, name), runs in results.items()
        for seed, (right, curve) in runs.items()
    ]  # fmt: skip
    found = tables(records)
    names = {name for _, name in results}
    learned = {one for one, runs in results.items() if reach_of(runs) is not None}
    for table in found:
        task = table.first.task
        means = {name: mean_of(results[task, name]) for t, name in learned if t == task}
        for row in table.rows:
            runs, own = results[task, row.label], row.label in means
            assert (row.learned, row.reach) == (own, reach_of(runs))
            assert row.steps_until_learned == (steps_of(runs) if own else None)
            assert row.rank == (place(means, row.label) if own else None)
            assert (row.unseen is None, row.by_seed == ()) == (not own, not own)
    ran = [[one for one in results if one[0] == table.first.task] for table in found]
    counts = [
        2 * len(own) >= len(names) and 2 * sum(one in learned for one in own) >= len(own)
        for own in ran
    ]
    assert [*counting(found)] == counts
    tasks = [table.first.task for table, counted in zip(found, counts, strict=True) if counted]
    means = {
        name: fmean(mean_of(results[task, name]) for task in tasks)
        for name in names
        if tasks and all((task, name) in learned for task in tasks)
    }
    lines = overview(found)
    for line in lines:
        assert line.rank == (place(means, line.label) if line.label in means else None)
        assert line.learned == sum(name == line.label for _, name in learned)
    after = [line.learned for line in lines if line.rank is None]
    assert [line.rank is None for line in lines] == sorted(line.rank is None for line in lines)
    assert after == sorted(after, reverse=True)


@pytest.mark.parametrize("protocol", ["prism2025-mini", "recall"])
def test_reach_of_the_committed_records_is_that_of_a_plain_computation(protocol):
    records, problems = load([RECORDS / protocol])
    assert not problems
    rows = {
        (row.task, row.settings, row.encoding, row.seeds): row
        for table in tables(records)
        for row in table.rows
        if not row.mode
    }

    def key(record):
        return record.task, record.shared_hash, record.encoding, record.config.spec

    compared = 0
    for (task, shared, encoding, _), group in groupby(sorted(records, key=key), key):
        runs = {run.seed: run for run in group if not run.for_tuning}
        row = rows.get((task, shared, encoding, tuple(sorted(runs))))
        if row is None:  # some of the seeds stand apart
            continue
        scores = {
            length: [
                s.exact for run in runs.values() for s in run.scores.last if s.length == length
            ]
            for length in sorted({s.length for run in runs.values() for s in run.scores.last})
        }
        own = next(run.config.train.lengths[1] for run in runs.values())
        reach = None
        for length, shares in scores.items():
            if length < own:
                continue
            if 5 * sum((share or 0) >= 0.9 for share in shares) < 4 * len(runs):
                break
            reach = length / own
        assert (row.reach, row.learned) == (reach, reach is not None)
        compared += 1
    assert compared >= 20
