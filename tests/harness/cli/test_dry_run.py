"""The estimated cost of a comparison: the arithmetic, and the measuring beneath it."""

import csv
import json

import numpy as np
import pytest

from harness.cli import dry_run
from harness.cli.dry_run import Measured, forecast, measure
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
        rope = run.encoding == "rope"
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


def test_no_comparison_ends_before_its_longest_run():
    configs = [config(sets=(*TINY, f"train.steps={n}")) for n in (10, 30, 10)]
    found = forecast({"": configs}, 4, lambda run: measured(step=1.0))
    (line,) = found["lines"]
    assert (line["runs"], line["run_seconds"], found["wall_seconds"]) == (3, 30, 30)


def test_each_kind_of_run_is_measured_once(monkeypatch):
    budgets = []
    monkeypatch.setattr(
        dry_run, "measure", lambda run, budget: budgets.append(budget) or measured()
    )
    configs = [config(pe, seed=seed) for pe in ("nope", "rope") for seed in range(3)]
    forecast({"": configs}, 2, dry_run.measuring({"": configs}, 1))
    assert budgets == [dry_run.BUDGET / 2] * 2


def test_encodings_are_measured_on_the_first_task_and_the_first_encoding_on_every_task(monkeypatch):
    seconds = {"nope": 1.0, "rope": 3.0, "copy": 1.0, "reverse": 5.0, "odds_first": 7.0}
    kinds = []

    def measure(run, budget):
        kinds.append((run.encoding, run.task))
        cost = seconds[run.encoding] * seconds[run.task]
        modes = 1 if run.encoding == "rope" else 0
        return measured(cost, modes, step=cost, validation=cost / 2, scoring=cost / 3, sets=cost)

    monkeypatch.setattr(dry_run, "measure", measure)
    configs = [config(pe, t) for t in ("copy", "reverse", "odds_first") for pe in ("nope", "rope")]
    cost_of = dry_run.measuring({"": configs}, 1)
    for one in configs:
        parts = cost_of(one), measure(one, 0.0)
        (found, modes), (want, own) = ([part.run(one), part.modes] for part in parts)
        assert [*found] == pytest.approx([*want])
        assert modes == own
    own = [kind for kind in dict.fromkeys(kinds) if kinds.count(kind) == 2]
    assert own == [("nope", "copy"), ("rope", "copy"), ("nope", "reverse"), ("nope", "odds_first")]


def test_every_part_is_measured():
    plain, cursors = (measure(config(pe), 0.1) for pe in ("nope", "prism"))
    for part in (plain.step, plain.validation, plain.scoring):
        assert (part > 0).all()
    assert (plain.modes, cursors.modes) == (0, 1)
    assert plain.memory_mb > 50


@pytest.fixture
def scored(monkeypatch):
    """(length, samples) that are scored, each taking as many seconds as its length."""
    calls = []

    def timed(call, device):
        before = len(calls)
        call()
        return np.full(2, float(calls[-1][0] if len(calls) > before else 0))

    def score(model, task, config, length):
        calls.append((length, config.eval.samples))

    monkeypatch.setattr(dry_run, "score", score)
    monkeypatch.setattr(dry_run, "_timed", timed)
    return calls


@pytest.mark.parametrize(("limit", "long"), [(100.0, 20), (50.0, 10), (1.0, 10)])
def test_examples_are_measured_at_two_lengths(scored, monkeypatch, limit, long):
    monkeypatch.setattr(dry_run, "SCORING", limit)
    sets = (*TINY, "eval.lengths=[5,10,20]", "eval.curve_lengths=[5,10]", "train.lengths=[1, 2]")
    sets += ('eval.sets=[{name="2+n", lengths=[20]}, {name="4+n", lengths=[5, 10]}]',)
    found = measure(config(task="turing_addition", sets=sets), 0)
    assert scored == [(5, 4), (5, 4), (long, 4)]  # 5 / 4 seconds; at most 16 times as many at 20
    assert found.scoring[0] == found.sets[0] == pytest.approx(5 + 10 + 20)
    # an example of length 2, which costs as much as the shortest; then the learning curve
    assert found.validation[0] == pytest.approx(5 / 4 + 5 + 10)


def test_lengths_that_cannot_be_represented_cost_next_to_nothing():
    sets = (*TINY, "eval.lengths=[10,400]", "eval.samples=64")
    learned, nope = (measure(config(pe, sets=sets), 0) for pe in ("learned", "nope"))
    assert learned.scoring[1] < nope.scoring[1] / 2


@pytest.mark.parametrize(("budget", "count"), [(0.0, dry_run.FEWEST), (1e9, dry_run.MOST)])
def test_steps_end_with_the_budget_and_are_spread_over_the_training(monkeypatch, budget, count):
    taken = []
    start = dry_run.start

    def started(config):
        trainer = start(config)
        advance = trainer.advance
        trainer.advance = lambda: taken.append(trainer.step) or advance()
        return trainer

    monkeypatch.setattr(dry_run, "start", started)
    measure(config(), budget)
    assert len(taken) == 1 + count  # the first compiles
    assert all(0 <= step < 40 for step in taken)
    assert count < 30 or max(taken) - min(taken) > 30


def test_what_is_printed():
    phases = {"": [config("nope"), config("rope")]}
    found = forecast(phases, 1, lambda run: measured(step=0.0125))
    table = dry_run.render(found, "table").splitlines()
    assert table[0].split()[0] == "encoding"
    assert max(map(len, table[:5])) <= 80
    assert {"12.5", "nope"} <= set(table[4].split())
    assert "| nope" in dry_run.render(found, "markdown")
    data = json.loads(dry_run.render(found, "json"))
    assert data["wall_seconds"] == 1.0
    assert data["lines"][1]["step_ms"] == 12.5
    rows = [*csv.DictReader(dry_run.render(found, "csv").splitlines())]
    assert [(row["encoding"], row["step_ms"]) for row in rows] == [
        ("nope", "12.5"),
        ("rope", "12.5"),
    ]
    swept = forecast({"sweep": phases[""]}, 1, lambda run: measured(step=0.0125))
    assert dry_run.render(swept, "table").split()[0] == "phase"


def test_where_memory_is_short_one_line_says_so(call, monkeypatch, tmp_path):
    def full(*_):
        raise RuntimeError("can't allocate memory: 40000000000 bytes")

    monkeypatch.setattr(dry_run, "measure", full)
    args = ["--pe", "nope", "--task", "copy", "--seeds", "0", "--runs", tmp_path]
    code, out, err = call("bench", *args, "--dry-run")
    assert (code, out) == (2, "")
    assert "more memory" in err
    assert "Traceback" not in err


def test_an_encoding_that_cannot_run_is_one_line(call, tmp_path):
    args = ["--pe", "rope(base=1e-100)", "--task", "copy", "--seeds", "0", "--runs", tmp_path]
    code, out, err = call("bench", *args, "--dry-run")
    assert (code, out) == (2, "")
    assert "rope(base=1e-100) cannot run on copy: Diverged: logits are not finite" in err
    assert "Traceback" not in err
