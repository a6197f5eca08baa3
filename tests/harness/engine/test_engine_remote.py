"""Jobs that travel: several runs in one, and what is heard of them."""

import json
import os
import socket
import subprocess

import pytest
from soak import SETTINGS

from harness.engine import EngineError, Options, make
from harness.engine.remote import PROGRESS, RemoteJob, RemoteWorkers
from harness.runs.execute import execute
from harness.runs.files import WriteError
from harness.runs.folder import RunFolder, finished
from harness.settings.protocol import load_protocol, resolve
from pezoo.spec import parse


def seeds(count, *settings, pe="rope"):
    protocol = load_protocol("quick", (*SETTINGS, "train.steps=4", *settings))
    return [resolve(protocol, "copy", parse(pe), seed, "cpu", "auto") for seed in range(count)]


def job_of(configs, root):
    alive = root / "alive"
    alive.touch()
    return RemoteJob(tuple(configs), root.resolve(), "test", 1, alive)


class Here(RemoteWorkers):
    """Executes a job when it is submitted; `lose` ends it as a machine that is gone."""

    def __init__(self, root, lose=False):
        super().__init__(root, "test", 1)
        self.lose, self.cancelled = lose, []

    def submit(self, job):
        events = job()
        return {"died": "gone"} if self.lose else events

    def ended(self, handle):
        return handle

    def cancel(self, handle, progress):
        self.cancelled.append(progress)


def heard(workers, times=1):
    with open("/dev/null") as nothing:
        return [event for _ in range(times) for event in workers.wait(nothing.fileno())]


def test_a_job_trains_a_stack_and_gives_the_last_event_of_each(tmp_path, assert_alike):
    configs = [*seeds(2), seeds(1, "train.lr=1e30")[0]]
    events = job_of(configs, tmp_path)()
    records = [event["record"] for event in events]
    assert [record["status"] for record in records] == ["done", "done", "failed"]
    assert records[0]["cost"]["stacked"] == 3
    for config, record in zip(configs, records, strict=True):
        assert_alike(record, execute(config, tmp_path / "alone", "test", lambda event: None))
    assert not list(tmp_path.glob(f"*/{PROGRESS}"))


def test_a_sweep_that_ends_has_every_member_save(tmp_path):
    job = job_of(seeds(2), tmp_path)
    job.alive.unlink()
    busy = {"busy": "stopped at step 1 of 4, checkpoint saved"}
    assert job() == [busy, busy]
    assert len(list(tmp_path.glob("*/ckpt-00000001.json"))) == 2


def test_a_member_of_a_lost_job_that_has_its_record_keeps_it(tmp_path, monkeypatch):
    def full(self, record, final=True):
        raise WriteError("no space")

    configs = seeds(2)
    workers = Here(tmp_path, lose=True)
    monkeypatch.setattr(RunFolder, "finish", full)
    workers.start((3, 5), configs)
    assert heard(workers) == [(3, {"died": "gone"}), (5, {"died": "gone"})]
    monkeypatch.undo()
    (event,) = job_of(configs[:1], tmp_path)()
    workers.start((3, 5), configs)
    RunFolder(tmp_path, configs[1]).clear()
    assert heard(workers) == [(3, event), (5, {"died": "gone"})]
    assert finished(tmp_path / configs[0].hash) == event["record"]


def test_words_are_heard_although_a_step_was_told_since(tmp_path):
    workers, (config, other) = Here(tmp_path), seeds(2)
    workers.submit, workers.ended = (lambda job: None), (lambda handle: None)
    workers.start((0, 1), [config, other])
    path = RunFolder(tmp_path, config).path / PROGRESS
    path.parent.mkdir(exist_ok=True)
    note, step = {"again": "its process died"}, {"step": 1, "loss": 0.5}
    path.write_text(json.dumps(step | {"said": [note]}))
    assert [event for _, event in heard(workers)] == [note, step | {"said": [note]}]
    path.write_text(json.dumps(step | {"step": 2, "said": [note]}))
    assert [event["step"] for _, event in heard(workers)] == [2]
    path.write_text(json.dumps({"record": {"seed": 0}, "said": [note]}))  # before the other's
    assert [(run, event["record"]) for run, event in heard(workers)] == [(0, {"seed": 0})]
    workers.stop()
    assert heard(workers) == [(1, {"busy": "stopped"})]
    assert len(workers.cancelled) == 1
    assert not path.exists()


@pytest.mark.parametrize("phase", ["training", "evaluating"])
def test_a_job_that_is_stopped_is_waited_for_while_it_trains(phase, tmp_path):
    workers, configs = Here(tmp_path), seeds(2)
    workers.submit, workers.ended = (lambda job: None), (lambda handle: None)
    workers.start((0, 1), configs)
    for config, phased in zip(configs, (phase == "evaluating", False), strict=True):
        sign = {"step": 4, "phase": phase} if phased else {"step": 4, "loss": 0.5}
        path = RunFolder(tmp_path, config).path / PROGRESS
        path.parent.mkdir(exist_ok=True)
        path.write_text(json.dumps(sign | {"said": []}))
    workers.stop()
    told = heard(workers)
    assert bool(workers.cancelled) == (phase == "evaluating") == (not path.exists())
    assert [event for _, event in told if "busy" in event] == [{"busy": "stopped"}] * (
        2 if phase == "evaluating" else 0
    )


def test_torchrun_trains_one_model_and_not_a_stack():
    with pytest.raises(EngineError, match="one model; engines that stack are local, ray"):
        make("ddp", Options(stack="on"))
    assert make("submitit", Options(stack="on"))


def test_what_is_compiled_is_not_stacked(call, tmp_path):
    words = ("--pe", "rope", "--task", "copy", "--runs", tmp_path, "--stack", "on", "--compile")
    code, out, err = call("bench", *words)
    assert (code, out) == (2, "")
    assert "leave --compile out, or --stack on" in " ".join(err.split())


def test_the_file_of_a_killed_driver_goes_and_those_of_others_stay(tmp_path):
    dead = subprocess.Popen(["true"])
    dead.wait()
    for name, words in (
        ("dead", f"{socket.gethostname()} {dead.pid}"),
        ("living", f"{socket.gethostname()} {os.getpid()}"),
        ("elsewhere", f"another-machine {dead.pid}"),
        ("empty", ""),
    ):
        (tmp_path / f".sweep-{name}").write_text(words)
    workers = Here(tmp_path)
    workers.start((0,), seeds(1))
    assert {path.name for path in tmp_path.glob(".sweep-*")} == {
        *(".sweep-living", ".sweep-elsewhere", ".sweep-empty", workers.alive.name)
    }
    workers.close()
    assert not workers.alive.exists()
