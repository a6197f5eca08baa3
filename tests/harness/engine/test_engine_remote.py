"""Runs that travel as jobs, and what is heard of them."""

import json
import os
import socket
import subprocess

import pytest
from soak import SETTINGS, same

from harness.engine.remote import PROGRESS, RemoteJob, RemoteWorkers
from harness.runs.files import WriteError
from harness.runs.folder import RunFolder, finished
from harness.runs.run import execute
from harness.settings.protocol import load_protocol, resolve
from pezoo.spec import parse

LOSS = {"step": 4, "loss": 0.5}


def config_of(*settings):
    protocol = load_protocol("quick", (*SETTINGS, "train.steps=4", *settings))
    return resolve(protocol, "copy", parse("rope"), 0, "cpu", "auto")


def job_of(config, root):
    alive = root / "alive"
    alive.touch()
    return RemoteJob(config, root.resolve(), "test", 1, alive)


class Here(RemoteWorkers):
    """Executes a job when it is submitted; `lose` ends it as a machine that is gone."""

    def __init__(self, root, lose=False):
        super().__init__(root, "test", 1)
        self.lose, self.cancelled = lose, []

    def submit(self, job):
        event = job()
        return {"died": "gone"} if self.lose else event

    def ended(self, handle):
        return handle

    def cancel(self, handle, progress):
        self.cancelled.append(progress)


class Away(Here):
    """Jobs of which nothing is heard but their progress."""

    def submit(self, job):
        return None


def heard(workers):
    with open(os.devnull) as nothing:
        return [*workers.wait(nothing.fileno())]


def write_progress(root, config, event):
    path = RunFolder(root, config).path / PROGRESS
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps(event))
    return path


@pytest.mark.parametrize(("rate", "status"), [("1e-3", "done"), ("1e15", "failed")])
def test_a_job_gives_the_last_event_of_its_run(rate, status, tmp_path):
    config = config_of(f"train.lr={rate}")
    record = job_of(config, tmp_path)()["record"]
    assert record.status == status
    assert same(record, execute(config, tmp_path / "alone", "test", lambda event: None))
    assert not list(tmp_path.glob(f"*/{PROGRESS}"))


def test_a_job_saves_when_its_sweep_ends(tmp_path):
    job = job_of(config_of(), tmp_path)
    job.alive.unlink()
    assert job() == {"busy": "stopped at step 1 of 4, checkpoint saved"}
    assert len(list(tmp_path.glob("*/ckpt-00000001.json"))) == 1


def test_a_lost_job_that_has_its_record_keeps_it(tmp_path, monkeypatch):
    def full(self, record, final=True):
        raise WriteError("no space")

    config, workers = config_of(), Here(tmp_path, lose=True)
    monkeypatch.setattr(RunFolder, "finish", full)
    workers.start(3, config)
    assert heard(workers) == [(3, {"died": "gone"})]
    monkeypatch.undo()
    workers.start(3, config)
    assert heard(workers) == [(3, {"record": finished(tmp_path / config.hash)})]


def test_progress_is_told_once(tmp_path):
    workers, config = Away(tmp_path), config_of()
    workers.start(0, config)
    assert heard(workers) == []
    for event in (LOSS, LOSS | {"step": 5}):
        write_progress(tmp_path, config, event)
        assert heard(workers) == [(0, event)]
        assert heard(workers) == []


@pytest.mark.parametrize(
    ("event", "waits"), [(LOSS, True), ({"step": 4, "phase": "evaluating"}, False), (None, False)]
)
def test_a_job_that_is_stopped_is_waited_for_while_it_trains(event, waits, tmp_path):
    workers, config = Away(tmp_path), config_of()
    workers.start(0, config)
    path = event and write_progress(tmp_path, config, event)
    workers.stop()
    stopped = [told for told in heard(workers) if "busy" in told[1]]
    assert stopped == ([] if waits else [(0, {"busy": "stopped"})])
    assert workers.cancelled == ([] if waits else [event or {}])
    assert not path or path.exists() == waits


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
    workers.start(0, config_of())
    assert {path.name for path in tmp_path.glob(".sweep-*")} == {
        *(".sweep-living", ".sweep-elsewhere", ".sweep-empty", workers.alive.name)
    }
    workers.close()
    assert not workers.alive.exists()
