"""Stacked runs in their folders: the records of runs alone, whatever interrupts them."""

import math
import multiprocessing
import os
import signal

import pytest
import torch
from filelock import FileLock
from soak import SETTINGS, same, weights

from harness.engine import Options
from harness.engine.local import Engine
from harness.engine.stack_plan import plan, stack_size
from harness.runs.execute import execute, execute_all
from harness.runs.files import WriteError
from harness.runs.folder import RunFolder, finished
from harness.settings.protocol import load_protocol, resolve
from harness.training.stack import Stack
from leaderboard.record.schema import Record
from pezoo.spec import parse

torch.set_num_threads(1)


def configs_of(pe="rope", rates=(1e-3, 2e-3, 1e-3), *settings):
    protocol = load_protocol("quick", (*SETTINGS, "train.steps=12", *settings))
    made = [resolve(protocol, "copy", parse(pe), seed, "cpu", "auto") for seed in range(len(rates))]
    return [
        config.model_copy(update={"train": config.train.model_copy(update={"lr": lr})})
        for config, lr in zip(made, rates, strict=True)
    ]


def together(configs, root, stop=lambda: False):
    """The events of each run, in order."""
    events = {number: [] for number in range(len(configs))}
    execute_all(configs, root, "test", lambda number, event: events[number].append(event), stop)
    return events


def alone(configs, root):
    return [execute(config, root, "test", lambda event: None) for config in configs]


def after(steps):
    """A `stop` that says yes after so many questions."""
    left = [steps]

    def stop():
        left[0] -= 1
        return left[0] < 0

    return stop


def test_the_records_are_those_of_runs_alone(assert_alike, tmp_path):
    configs = configs_of()
    events = together(configs, tmp_path / "one")
    for config, told, record in zip(
        configs, events.values(), alone(configs, tmp_path / "two"), strict=True
    ):
        assert told[-1] == {"record": finished(tmp_path / "one" / config.hash)}
        mine = told[-1]["record"]
        assert_alike(mine, record)
        assert mine["env"]["attention_ran"] == record["env"]["attention_ran"]
        assert mine["cost"]["stacked"] == 3
        assert record["cost"]["stacked"] == 1
        assert Record.of(mine).cost.stacked == 3
    assert together(configs, tmp_path / "one")[0] == [events[0][-1]]  # nothing is left to do


def test_interrupted_members_catch_up_and_may_go_on_alone(assert_alike, tmp_path):
    configs, root = configs_of("learned"), tmp_path / "cut"
    events = together(configs, root, after(7))
    assert all("checkpoint saved" in told[-1]["busy"] for told in events.values())
    assert [stack_size(root / config.hash) for config in configs] == [3, 3, 3]
    for path in (root / configs[0].hash).glob("ckpt-*"):
        path.unlink()  # this one starts again, and finds the others ahead
    last = max((root / configs[1].hash).glob("ckpt-*.json"))
    last.unlink()  # this one falls back to the checkpoint before
    whole = alone(configs, tmp_path / "whole")
    assert_alike(execute(configs[2], root, "test", lambda event: None), whole[2])
    events = together(configs, root)
    for number in range(3):
        assert_alike(events[number][-1]["record"], whole[number])
    assert events[2][-1]["record"]["cost"]["stacked"] == 3
    assert events[1][-1]["record"]["cost"]["sessions"] == 2


def test_a_stack_killed_while_it_saved_goes_on_bit_for_bit(tmp_path):
    configs = configs_of("learned")
    whole = together(configs, tmp_path / "whole")
    root = tmp_path / "cut"
    together(configs, root, after(7))
    for config in configs[1:]:
        (root / config.hash / "ckpt-00000006.json").unlink()  # all have step 3
    events = together(configs, root)
    for number, config in enumerate(configs):
        one, two = whole[number][-1]["record"], events[number][-1]["record"]
        assert same(one, two)
        assert two["cost"]["sessions"] == 2
        assert weights(root, config) == weights(tmp_path / "whole", config)


def test_a_run_that_diverges_is_a_failed_record_and_leaves_the_others_alone(assert_alike, tmp_path):
    configs = configs_of(rates=(1e-3, 1e30, 1e-3))
    events = together(configs, tmp_path / "one")
    records = [told[-1]["record"] for told in events.values()]
    for record, other in zip(records, alone(configs, tmp_path / "two"), strict=True):
        assert_alike(record, other)
    assert records[1]["reason"].startswith("Diverged: loss is nan at step")
    assert [record["status"] for record in records] == ["done", "failed", "done"]


def test_what_cannot_be_stacked_trains_one_after_the_other(assert_alike, tmp_path, monkeypatch):
    def refuse(self):
        raise RuntimeError("no rule for this")

    monkeypatch.setattr(Stack, "advance", refuse)
    configs = configs_of()
    events = together(configs, tmp_path / "one")
    for told, record in zip(events.values(), alone(configs, tmp_path / "two"), strict=True):
        assert "one after the other" in told[0]["again"]
        assert "no rule for this" in told[0]["again"]
        assert_alike(told[-1]["record"], record)
        assert told[-1]["record"]["learning"] == record["learning"]  # bit for bit


def test_a_member_that_somebody_holds_or_that_cannot_begin(tmp_path):
    configs = configs_of("learned")
    broken = configs[1].model_copy(update={"encoding": "learned(max_len=-1)"})
    folder = RunFolder(tmp_path, configs[0])
    with FileLock(folder.path / ".lock"):
        events = together([configs[0], broken, configs[2]], tmp_path)
    assert events[0] == [{"busy": f"another process is training it: process {os.getpid()}"}]
    assert "max_len must be at least 1" in events[1][-1]["record"]["reason"]
    assert events[2][-1]["record"]["status"] == "done"


def test_a_disk_that_is_full_ends_all(tmp_path, monkeypatch):
    def full(self, trainer, curve):
        raise WriteError("no space")

    monkeypatch.setattr(RunFolder, "save", full)
    events = together(configs_of(), tmp_path)
    assert [told[-1] for told in events.values()] == [{"error": "no space", "halt": True}] * 3
    assert not list(tmp_path.glob("*/result.json"))


def test_the_plan(tmp_path):
    ropes, nopes = configs_of("rope"), configs_of("nope")
    mixed = [one for pair in zip(ropes, nopes, strict=True) for one in pair]
    assert plan(mixed, tmp_path, 1) == [(0, 2, 4), (1, 3, 5)]
    assert plan(mixed, tmp_path, 2) == [(0, 2, 4), (1, 3, 5)]
    assert plan(mixed, tmp_path, 4) == [(0,), (1,), (2, 4), (3, 5)]
    assert plan(mixed, tmp_path, 99) == [(run,) for run in range(6)]
    many = [ropes[0].model_copy(update={"seed": seed}) for seed in range(100)]
    assert [len(job) for job in plan(many, tmp_path, 1)] == [25] * 4
    execute_until(ropes[1], tmp_path)
    assert plan(ropes, tmp_path, 1) == [(0, 2), (1,)]  # begun alone, it continues alone
    assert plan(nopes, tmp_path, 1, "auto") == [(0,), (1,), (2,)]
    on_gpu = [run.model_copy(update={"device": "cuda"}) for run in nopes]
    assert plan(on_gpu, tmp_path, 1, "auto") == [(0, 1, 2)]


def execute_until(config, root):
    with pytest.raises(Exception, match="step"):
        execute(config, root, "test", lambda event: None, stop=after(3))
    assert stack_size(root / config.hash) == 1


@pytest.mark.parametrize(
    "stack", ["auto", *(pytest.param(stack, marks=pytest.mark.slow) for stack in ("on", "off"))]
)
def test_the_local_engine(stack, tmp_path):
    configs, events = configs_of(rates=(1e-3,) * 3), []
    engine = Engine(Options(jobs=1, threads=1, stack=stack))
    engine.run_all(configs, tmp_path, "test", lambda *told: events.append(told))
    records = [event["record"] for _, event in events if "record" in event]
    sizes = {record["cost"]["stacked"] for record in records}
    assert sorted(record["seed"] for record in records) == [0, 1, 2]
    assert sizes == ({3} if stack == "on" else {1})
    assert all(math.isfinite(record["learning"][-1]["loss"]) for record in records)


def test_a_stack_that_is_killed_goes_on(assert_alike, tmp_path):
    configs = configs_of(rates=(1e-3,) * 3)
    killed = []

    def on_event(run, event):
        if "step" in event and not killed:
            killed.extend(multiprocessing.active_children())
            for process in killed:
                process.kill()

    engine, last = Engine(Options(jobs=1, threads=1, stack="on")), {}

    def note(run, event):
        on_event(run, event)
        last[run] = event

    engine.run_all(configs, tmp_path / "one", "test", note)
    assert [process.exitcode for process in killed] == [-signal.SIGKILL]
    for number, record in enumerate(alone(configs, tmp_path / "two")):
        assert_alike(last[number]["record"], record)
