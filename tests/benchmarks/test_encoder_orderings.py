"""The script that says which orderings of a paper the committed records show."""

import encoder_orderings
import pandas as pd
import pytest
from encoder_orderings import baselines, verdict


@pytest.mark.parametrize(
    ("one", "other", "bar", "theirs", "found"),
    [
        ([70, 80], [60, 65], 50, 20, "="),
        ([70, 80], [60, 65], 50, -20, "x"),
        ([70, 80], [60, 81], 50, 20, ""),  # a seed has the other sign
        ([63, 64], [60, 61], 50, 20, ""),  # three points
        ([70, 80], [60, 65], 50, 4, ""),  # nothing in the paper
        ([52, 54], [40, 41], 50, 20, ""),  # no better than the baseline
    ],
)
def test_an_ordering_shows_where_all_seeds_are_above_the_baseline(one, other, bar, theirs, found):
    assert verdict(pd.Series(one), pd.Series(other), bar, theirs) == found


def test_the_baseline_is_the_better_of_two_over_unseen_lengths():
    # The most frequent of two bits: equal ones are both right, of two others one is.
    found = pd.DataFrame({"task": "reverse(symbols=2)", "length": [2, 9], "seen": [False, True]})
    assert baselines(found) == {"reverse(symbols=2)": pytest.approx(75, abs=2)}


@pytest.mark.slow
def test_the_tables_of_the_committed_records(capsys, monkeypatch):
    bars = lambda found: dict.fromkeys(found.task, 50.0)  # noqa: E731
    monkeypatch.setattr(encoder_orderings, "baselines", bars)
    encoder_orderings.main()
    lines = capsys.readouterr().out.splitlines()
    assert [line.count("|") for line in lines if line.startswith("| bucket_sort")] == [15, 7, 5]
    assert lines[0].startswith("| task | baseline | nope |")
    assert next(line for line in lines if line.startswith("| all |")).count("|") == 5
