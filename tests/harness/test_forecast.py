"""What a matrix is predicted to take: the arithmetic, and the measuring beneath it."""

import json
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness import dry_run, dry_step, forecast, tasks
from harness.cli import cost
from harness.data.seeds import generator
from harness.forecast import Compilation, Phase, Probe, Usage, kind, makespan, usage
from harness.settings.protocol import Stage, load_protocol, resolve
from harness.training.trainer import draw_length
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


def alone(runs):
    """A phase in which none is stacked."""
    return Phase(runs, [(run,) for run in range(len(runs))])


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
    assert usage([one], probe) == Usage(expected, 2 * expected)
    share = expected - steps  # all but the steps, which the three take together
    assert usage([one] * 3, probe) == Usage(steps + 3 * share, 2 * (steps + 3 * share))


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
    probes = {
        kind(runs[:1]): probe_of(step=1.0),
        kind(runs[3:]): probe_of(step=2.0, memory=300.0),
    }
    phases = {"sweep": alone(runs[:3]), "comparison": alone(runs)}
    found = forecast.forecast(phases, probes, 2)
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
    runs = [short, long, short]
    found = forecast.forecast({"": alone(runs)}, {kind(runs[:1]): probe_of()}, 1)
    (line,) = found.lines
    assert (line.runs, line.run.seconds, line.total.seconds) == (3, 30, 50)


def test_a_stack_is_one_job_and_its_runs_have_shares_of_it():
    runs = [config(seed=seed) for seed in range(5)]
    probes = {
        kind(runs[:3]): probe_of(step=1.5, memory=300.0),
        kind(runs[:2]): probe_of(step=1.2, memory=200.0),
    }
    found = forecast.forecast({"": Phase(runs, [(0, 1, 2), (3, 4)])}, probes, 2)
    (line,) = found.lines
    assert (line.runs, line.stacked) == (5, 2)  # 0.6 s of a step is more than 0.5 s
    assert line.run == Usage(24, 48)
    assert found.total == Usage(40 * 2.7, 80 * 2.7)
    assert (found.wall, found.memory_mb, found.jobs) == (60, 500.0, 2)


def test_each_worker_compiles_each_size_once():
    runs = [config(seed=seed) for seed in range(3)] + [config(task="reverse")]
    one, other = (
        Probe(
            *[Usage(1.0, 2.0)] * 4, 0, 1.0, True, Compilation(Usage(first, 0), Usage(2, 0), sizes)
        )
        for first, sizes in ((9.0, frozenset({8, 16})), (3.0, frozenset({16, 24})))
    )
    probes = {kind(runs[:1]): one, kind(runs[3:]): other}
    found, plain = (
        forecast.forecast({"": alone(runs)}, chosen, 2)
        for chosen in (probes, dict.fromkeys(probes, probe_of(1.0, 1.0, 1.0, 1.0)))
    )
    assert found.compilation.sizes == {8, 16, 24}
    assert found.wall == plain.wall + 9 + 2 * 2
    assert found.total.seconds == plain.total.seconds + 2 * (9 + 2 * 2)


@pytest.mark.parametrize("members", [1, 4])
@pytest.mark.parametrize(
    "curriculum",
    [(), (Stage(until=0.25, max=5),), (Stage(until=0.1, max=2), Stage(until=0.6, max=7))],
)
def test_the_shares_of_lengths_are_those_that_a_run_draws(curriculum, members):
    task = tasks.make("copy")
    train = config().train.model_copy(update={"steps": 4000, "curriculum": curriculum})
    drawn = Counter(
        max(draw_length(task, train, step, generator(step, seed)) for seed in range(members))
        for step in range(train.steps)
    )
    shares = dry_step.length_shares(task, train, members)
    assert sum(shares.values()) == pytest.approx(1)
    assert drawn.keys() <= shares.keys()
    for length, share in shares.items():
        assert drawn[length] / train.steps == pytest.approx(share, abs=0.02)


def test_lengths_between_measured_ones():
    times = {1: Usage(1.0, 10.0), 5: Usage(3.0, 30.0)}
    assert dry_step._between(times, 5) == Usage(3.0, 30.0)
    assert dry_step._between(times, 2) == Usage(1.5, 15.0)
    power = dry_run._power({10: Usage(1.0, 2.0), 20: Usage(8.0, 8.0)}, 40)  # cubic, quadratic
    assert (power.seconds, power.cpu) == (pytest.approx(64.0), pytest.approx(32.0))
    assert dry_run._power({10: Usage(1.0, 2.0)}, 20) == Usage(4.0, 8.0)


def test_a_probe_measures_every_part_and_counts_modes():
    plain, cursors = (dry_run.probe([config(pe)]) for pe in ("nope", "prism"))
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
    dry_run.probe([config("learned")])
    assert counted == [10]
    dry_run.probe([config("nope")])
    assert counted == [10, 10, 20]


def test_a_step_is_looked_for_that_draws_the_length():
    seeds = (0, 1)
    trainers = [
        dry_run.start(config(seed=seed, sets=(*TINY, "train.steps=1000"))) for seed in seeds
    ]
    for members, length in ((1, 1), (1, 10), (2, 7)):
        steps = dry_step._steps_with(trainers[:members], length)
        for step in (next(steps) for _ in range(3)):
            drawn = [
                draw_length(
                    one.task, one.config.train, step, generator("train", "copy", 1, seed, step)
                )
                for seed, one in zip(seeds, trainers[:members], strict=False)
            ]
            assert max(drawn) == length


def found_by(monkeypatch, *encodings, **changes):
    """A forecast in which every kind was measured alike."""
    runs = [config(pe) for pe in encodings]
    probes = {kind([run]): probe_of(**changes) for run in runs}
    return forecast.forecast({"": alone(runs)}, probes, 1)


def test_a_stack_is_measured_as_one_and_chosen_as_bench_would(monkeypatch):
    runs = [config(seed=seed) for seed in range(3)]
    said = []

    def here(work, runs):
        return work(runs)

    for choose, faster in ((False, False), (True, True), (True, False)):
        monkeypatch.setattr(dry_run, "advice", lambda runs, faster=faster: (faster, "as measured"))
        bench = dry_run._Bench(here, choose, said.append)
        plan = bench.settle(Phase(runs, [(0, 1, 2)])).plan
        stacked = faster or not choose
        assert plan == ([(0, 1, 2)] if stacked else [(0,), (1,), (2,)])
        assert [*bench.found] == [kind(runs if stacked else runs[:1])]
        assert all(probe.step.cpu > 0 for probe in bench.found.values())
    assert "copy: 3 runs train as one stack" in said[0]
    monkeypatch.setattr(dry_run, "stackable", lambda runs: (False, "cannot"))
    assert dry_run._Bench(here, False, print).settle(Phase(runs, [(0, 1, 2)])).plan[0] == (0,)


def test_the_sizes_that_a_run_compiles_for():
    trainer = dry_run.start(config(sets=(*TINY, "train.lengths=[1, 20]")))
    more = {20: Usage(9.0, 9.0), 11: Usage(2.0, 2.0), 10: Usage(0.1, 0.1), 1: Usage(1.0, 1.0)}
    assert dry_step._compilation(trainer, more, range(1, 21)) == Compilation()
    train = trainer.config.train.model_copy(update={"compile": True})
    trainer.config = trainer.config.model_copy(update={"train": train})
    found = dry_step._compilation(trainer, more, range(1, 21))
    assert found.sizes == {8, 16, 24, 32, 40, 48}  # 4 to 42 tokens
    assert (found.first, found.further) == (Usage(9.0, 9.0), Usage(1.5, 1.5))  # 11 and 10 share one


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
