"""Student's t against scipy, which the project does not need otherwise."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from leaderboard.stats.intervals import quantile, two_sided


@given(t=st.floats(-1e6, 1e6), freedom=st.integers(1, 2000))
def test_two_sided_is_scipys(t, freedom):
    want = 2 * stats.t.sf(abs(t), freedom)
    assert two_sided(t, freedom) == pytest.approx(want, rel=1e-9, abs=1e-290)


@given(level=st.floats(0.01, 0.999), freedom=st.integers(1, 2000))
def test_quantile_is_scipys(level, freedom):
    assert quantile(level, freedom) == pytest.approx(
        stats.t.ppf((1 + level) / 2, freedom), rel=1e-8
    )


def test_ends():
    assert (two_sided(0.0, 3), two_sided(1e200, 3)) == (1.0, 0.0)
