import pytest

from harness.runs.run import Rate


def test_the_first_step_is_not_counted_and_a_second_passes_between_two_rates(monkeypatch):
    clock = iter([100.0, 100.5, 101.25, 102.0])
    monkeypatch.setattr("harness.runs.run.time.perf_counter", lambda: next(clock))
    own = Rate()
    rates = [own.due(step) for step in (7, 9, 11, 17)]
    assert rates == [None, pytest.approx(4), None, pytest.approx(5)]
