"""What a matrix is predicted to take: the arithmetic, and the measuring beneath it."""

import json
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness import dry_run, forecast, tasks
from harness.cli import cost
from harness.config import Stage, load_protocol, resolve
from harness.forecast import Probe, Usage, kind, makespan, run_usage
from harness.seeds import generator
from harness.train import draw_length
from pezoo.spec import parse

TINY = (
    "train.batch=4",
    "train.steps=40",
    "eval.samples=4",
    "eval.min_samples=4",
    "eval.validation_samples=1",
    "eval.lengths=[10,20]",
)


def config(pe="nope", task="copy", seed=0, sets=TINY):
    return resolve(load_protocol("quick", sets), task, parse(pe), seed, "cpu", "auto")


def probe_of(step=1.0, validation=0.0, scoring=0.0, saving=0.0, modes=0, memory=100.0):
    parts = (Usage(value, 2 * value) for value in (step, validation, scoring, saving))
    return Probe(*parts, modes, memory, True)


@pytest.mark.parametrize(
    ("steps", "every", "save"), [(40, 7, 40), (40, 40, 7), (41, 10, 1), (1, 9, 9)]
)
@pytest.mark.parametrize("top", [0, 3])
def test_a_run_adds_up_as_it_would_be_trained(steps, every, save, top):
    sets = (f"train.steps={steps}", f"train.checkpoint_every={save}", f"eval.every={every}")
    one = config(sets=(*TINY, *sets, f"eval.top={top}"))
    probe = probe_of(step=1.0, validation=0.25, scoring=16.0, saving=0.5, modes=2)
    expected = 3 * 16.0
    for step in range(1, steps + 1):
        expected += 1.0
        if step % every == 0 or step == steps:
            expected += 0.25 + (16.0 if top else 0)
        if step % save == 0 or step == steps:
            expected += 0.5
    assert run_usage(one, probe) == Usage(expected, 2 * expected)


@given(st.lists(st.integers(1, 100), min_size=1, max_size=12), st.integers(1, 5))
def test_the_makespan_is_that_of_workers_that_take_the_next_run(seconds, jobs):
    waiting, running, now = list(seconds), [], 0
    while waiting or running:  # second by second
        while waiting and len(running) < jobs:
            running.append(waiting.pop(0))
        now += 1
        running = [left - 1 for left in running if left > 1]
    assert makespan(seconds, jobs) == now


def test_phases_follow_one_another_and_memory_is_that_of_the_largest_at_once():
    runs = [config("nope", seed=seed) for seed in range(3)] + [config("rope")]
    probes = {kind(runs[0]): probe_of(step=1.0), kind(runs[3]): probe_of(step=2.0, memory=300.0)}
    found = forecast.forecast({"sweep": runs[:3], "comparison": runs}, probes, jobs=2)
    assert [(one.phase, one.encoding, one.runs) for one in found.lines] == [
        ("sweep", "nope", 3),
        ("comparison", "nope", 3),
        ("comparison", "rope", 1),
    ]
    assert found.total == Usage(6 * 40 + 80, 2 * (6 * 40 + 80))
    assert found.wall == 80 + 120  # 40 40 | 40; then 40 40 | 40 80
    assert found.memory_mb == 400.0
    assert found.device_hours == pytest.approx(320 / 3600)
    assert (found.runs, found.device) == (7, "cpu")


def test_a_line_shows_its_costliest_run():
    short, long = (config(sets=(*TINY, f"train.steps={steps}")) for steps in (10, 30))
    found = forecast.forecast({"": [short, long, short]}, {kind(short): probe_of()}, jobs=1)
    (line,) = found.lines
    assert (line.runs, line.run.seconds, line.total.seconds) == (3, 30, 50)


@pytest.mark.parametrize(
    "curriculum",
    [(), (Stage(until=0.25, max=5),), (Stage(until=0.1, max=2), Stage(until=0.6, max=7))],
)
def test_the_shares_of_lengths_are_those_that_a_run_draws(curriculum):
    task = tasks.make("copy")
    train = config().train.model_copy(update={"steps": 8000, "curriculum": curriculum})
    drawn = Counter(
        draw_length(task, train, step, generator("a test", step)) for step in range(train.steps)
    )
    shares = dry_run.length_shares(task, train)
    assert sum(shares.values()) == pytest.approx(1)
    assert drawn.keys() == shares.keys()
    for length, share in shares.items():
        assert drawn[length] / train.steps == pytest.approx(share, abs=0.02)


def test_lengths_between_measured_ones():
    times = {1: Usage(1.0, 10.0), 5: Usage(3.0, 30.0)}
    assert dry_run._between(times, 5) == Usage(3.0, 30.0)
    assert dry_run._between(times, 2) == Usage(1.5, 15.0)
    power = dry_run._power({10: Usage(1.0, 2.0), 20: Usage(8.0, 8.0)}, 40)  # cubic, quadratic
    assert (power.seconds, power.cpu) == (pytest.approx(64.0), pytest.approx(32.0))
    assert dry_run._power({10: Usage(1.0, 2.0)}, 20) == Usage(4.0, 8.0)


def test_a_probe_measures_every_part_and_counts_modes():
    plain, cursors = (dry_run.probe(config(pe)) for pe in ("nope", "prism"))
    for part in (plain.step, plain.validation, plain.scoring, plain.saving):
        assert part.seconds > 0
        assert part.cpu > 0
    assert (plain.modes, cursors.modes) == (0, 1)
    assert plain.whole
    assert plain.memory_mb > 50


def test_lengths_that_cannot_be_represented_cost_nothing(monkeypatch):
    counted = []
    real = dry_run._power
    monkeypatch.setattr(
        dry_run, "_power", lambda times, length: counted.append(length) or real(times, length)
    )
    dry_run.probe(config("learned"))
    assert counted == [10]
    dry_run.probe(config("nope"))
    assert counted == [10, 10, 20]


def test_a_step_is_looked_for_that_draws_the_length():
    trainer = dry_run.start(config(sets=(*TINY, "train.steps=1000")))
    for length in (1, 7, 10):
        steps = dry_run._steps_with(trainer, length)
        for step in (next(steps) for _ in range(3)):
            draws = generator("train", "copy", 1, 0, step)
            assert draw_length(trainer.task, trainer.config.train, step, draws) == length


def found_by(monkeypatch, *encodings, **changes):
    """A forecast in which every kind was measured alike."""
    runs = [config(pe) for pe in encodings]
    return forecast.forecast({"": runs}, {kind(run): probe_of(**changes) for run in runs}, jobs=1)


def test_what_is_printed(monkeypatch, capsys):
    found = found_by(monkeypatch, "nope", "rope", step=0.0125)
    cost.print_forecast(found, "table")
    out = capsys.readouterr().out
    assert "12.5" in out
    assert "2 runs, 0.00 device-hours, 1 s with 1 at a time, up to 100 MB together" in out
    assert "busy" not in out  # twice as much processor as clock
    cost.print_forecast(found, "json")
    data = json.loads(capsys.readouterr().out)
    assert data["wall_seconds"] == 1.0
    assert data["lines"][1]["probe"]["step"] == {"seconds": 0.0125, "cpu": 0.025}
