"""What a comparison is forecast to take: the arithmetic, and the measuring beneath it."""

import csv
import json
from concurrent.futures import Future

import click
import numpy as np
import pytest

from harness.cli import dry_run
from harness.cli.dry_run import Measured, forecast
from harness.settings.protocol import load_protocol, resolve
from pezoo.spec import parse

TINY = (
    *("train.batch=4", "train.steps=40", "eval.samples=4", "eval.min_samples=4"),
    *("eval.validation_samples=1", "eval.lengths=[10,20]"),
)


def config(pe="nope", task="copy", seed=0, sets=TINY):
    return resolve(load_protocol("quick", sets), task, parse(pe), seed, "cpu", "auto")


def measured(memory=100.0, modes=0, **seconds):
    """Each part takes twice as much of the processor as on the clock."""
    names = ("step", "validation", "scoring", "sets")
    parts = {name: np.array([1, 2]) * seconds.get(name, 0.0) for name in names}
    return Measured(modes=modes, memory_mb=memory, **parts)


@pytest.mark.parametrize(("steps", "every"), [(40, 7), (40, 40), (41, 10), (1, 9)])
@pytest.mark.parametrize("top", [0, 3])
def test_a_run_adds_up_as_it_would_be_trained(steps, every, top):
    one = config(sets=(*TINY, f"train.steps={steps}", f"eval.every={every}", f"eval.top={top}"))
    expected = 3 * 16.0 + 5.0  # in three modes, and the further test sets
    for step in range(1, steps + 1):
        expected += 1.0
        if step % every == 0 or step == steps:
            expected += 0.25 + (16.0 if top else 0)
    parts = {"step": 1.0, "validation": 0.25, "scoring": 16.0, "sets": 5.0, "modes": 2}
    assert [*measured(**parts).run(one)] == [expected, 2 * expected]


def test_phases_follow_one_another_and_the_largest_runs_need_the_memory():
    configs = [config("nope", seed=seed) for seed in range(3)] + [config("rope")]

    def measure(run):
        rope = run.label == "rope"
        return measured(step=2.0 if rope else 1.0, memory=300.0 if rope else 100.0)

    found = forecast({"sweep": configs[:3], "comparison": configs}, 2, measure)
    assert [(line["phase"], line["encoding"], line["runs"]) for line in found["lines"]] == [
        ("sweep", "nope", 3),
        ("comparison", "nope", 3),
        ("comparison", "rope", 1),
    ]
    assert found["device_hours"] == pytest.approx((3 * 40 + 3 * 40 + 80) / 3600)
    assert found["cpu_hours"] == 2 * found["device_hours"]
    assert found["wall_seconds"] == 80 + 120  # two rounds of two workers each, the last with rope
    assert (found["runs"], found["memory_mb"]) == (7, 400.0)


def test_the_table_fits_a_terminal_and_leaves_out_what_says_nothing():
    configs = [config("randomized", "odds_first")]
    for phase in ("", "sweep"):
        found = forecast({phase: configs}, 2, lambda runs: measured(step=1.0))
        lines = dry_run.render(found, "table").splitlines()
        assert phase or max(map(len, lines[:5])) <= 80
        assert lines[0].split()[0] == ("phase" if phase else "encoding")


def test_no_comparison_ends_before_its_longest_run():
    steps = (10, 30, 10)
    configs = [config(sets=(*TINY, f"train.steps={n}")) for n in steps]
    found = forecast({"": configs}, 4, lambda runs: measured(step=1.0))
    (line,) = found["lines"]
    assert (line["runs"], line["run_seconds"], found["wall_seconds"]) == (3, 30, 30)


def test_every_part_is_measured():
    plain, cursors = (dry_run._measure(config(pe), 1) for pe in ("nope", "prism"))
    for part in (plain.step, plain.validation, plain.scoring):
        assert (part > 0).all()
    assert (plain.modes, cursors.modes) == (0, 1)
    assert plain.memory_mb > 50


def test_further_test_sets_and_lengths_of_the_learning_curve_are_counted(monkeypatch):
    def scored(trainer, config):
        return {n: np.ones(2) * (100 if config.eval.set else 1) for n in config.eval.lengths}

    monkeypatch.setattr(dry_run, "_scoring", scored)
    monkeypatch.setattr(dry_run, "_timed", lambda call, device: np.zeros(2))
    monkeypatch.setattr(dry_run, "_step", lambda trainer: np.zeros(2))
    sets = (*TINY, "eval.lengths=[5,6,7]", "eval.curve_lengths=[5,6]", "train.lengths=[1, 2]")
    sets += ('eval.sets=[{name="2+n", lengths=[2]}, {name="4+n", lengths=[4, 5]}]',)
    found = dry_run._measure(config(task="turing_addition", sets=sets), 1)
    assert [found.validation[0], found.scoring[0], found.sets[0]] == [2, 3, 300]


def test_lengths_that_cannot_be_represented_cost_next_to_nothing():
    sets = (*TINY, "eval.lengths=[10,400]", "eval.samples=64")
    learned, nope = (dry_run._measure(config(pe, sets=sets), 1) for pe in ("learned", "nope"))
    assert learned.scoring[1] < nope.scoring[1] / 2


def test_lengths_beyond_our_patience_grow_as_their_square(monkeypatch):
    counted = []

    def timed(call, device):
        call()
        counted.append(1)
        return np.array([3.0, 6.0])

    monkeypatch.setattr(dry_run, "_timed", timed)
    monkeypatch.setattr(dry_run, "_PATIENCE", 4.0)
    trainer = dry_run.start(config(sets=(*TINY, "eval.lengths=[10,20,40]")))
    found = dry_run._scoring(trainer, trainer.config)
    assert [seconds[0] for seconds in found.values()] == [3, 3, 12]  # one chunk each
    assert [*dry_run._sum(found)] == [18, 2 * 18]
    assert len(counted) == 3  # the first twice


def test_steps_beyond_our_patience_are_not_taken(monkeypatch):
    trainer = dry_run.start(config())
    taken = []
    monkeypatch.setattr(trainer, "advance", lambda: taken.append(trainer.step))
    dry_run._step(trainer)
    assert len(taken) == 2 * dry_run._PLACES * dry_run._IN_A_ROW
    monkeypatch.setattr(dry_run, "_PATIENCE", 0.0)
    taken.clear()
    assert (dry_run._step(trainer) >= 0).all()
    assert taken == 2 * dry_run._IN_A_ROW * [40 - dry_run._IN_A_ROW]  # the end of the training


def test_what_is_printed():
    runs = [config("nope"), config("rope")]
    found = forecast({"": runs}, 1, lambda run: measured(step=0.0125))
    table = dry_run.render(found, "table")
    assert "12.5" in table
    assert "2 runs, 0.00 device-hours, 0:00:01 with 1 at a time" in table
    assert "up to 100 MB together" in table
    assert "| nope" in dry_run.render(found, "markdown")
    data = json.loads(dry_run.render(found, "json"))
    assert data["wall_seconds"] == 1.0
    assert data["lines"][1]["step_ms"] == 12.5
    rows = [*csv.DictReader(dry_run.render(found, "csv").splitlines())]
    assert [(row["encoding"], row["step_ms"]) for row in rows] == [
        ("nope", "12.5"),
        ("rope", "12.5"),
    ]


class Short:
    """A pool of processes in which memory is short."""

    def __init__(self, *_, **__):
        pass

    def __enter__(self):
        return self

    def __exit__(self, *_):
        pass

    def submit(self, *_):
        future = Future()
        future.set_exception(RuntimeError("can't allocate memory: 40000000000 bytes"))
        return future


def test_where_memory_is_short_one_line_says_so(monkeypatch):
    monkeypatch.setattr(dry_run, "ProcessPoolExecutor", Short)
    words = "nope on copy cannot be measured: out of memory"
    with dry_run.measuring(1) as measure, pytest.raises(click.UsageError, match=words):
        measure(config())
