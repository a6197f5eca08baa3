"""Jobs through submitit's local executor, and what a Slurm job is asked for."""

import os
import pickle
import re

import pytest

from harness.engine import EngineError, Options, make
from harness.runs.folder import RunFolder

LONG = ("train.steps=300", "train.checkpoint_every=10", "eval.every=300")
LOCAL = ("cluster=local",)


@pytest.mark.slow
def test_a_killed_job_is_replaced_and_the_records_are_the_same(
    matrix, collect, kill_one, assert_like_here, monkeypatch, tmp_path
):
    monkeypatch.setattr("harness.engine.submitit.PATIENCE", 0.0)
    configs = matrix(*LONG, pe="learned")
    events = collect(make("submitit", Options(slurm=LOCAL)), configs, tmp_path, kill_one)
    (killed,) = kill_one.runs
    assert [i for i in events if any("again" in event for event in events[i])] == [killed]
    assert all(events[i][-1]["record"].status == "done" for i in events)
    assert events[killed][-1]["record"].cost.sessions == 2  # from its checkpoint
    assert not list(tmp_path.glob("*/progress.json"))
    assert_like_here(configs, tmp_path)


@pytest.mark.slow
def test_ctrl_c_saves(matrix, collect, press_ctrl_c, tmp_path):
    configs = matrix("train.steps=50000", pe="rope,learned")
    engine = make("submitit", Options(jobs=1, slurm=LOCAL))
    with pytest.raises(KeyboardInterrupt):
        collect(engine, configs, tmp_path, press_ctrl_c)
    (busy,) = (event["busy"] for event in press_ctrl_c.last.values())
    step = int(re.match(r"stopped at step (\d+) of 50000, checkpoint saved", busy)[1])
    assert (tmp_path / configs[0].hash / f"ckpt-{step:08d}.json").is_file()
    assert not list(tmp_path.glob(".sweep-*"))


def fake_slurm(folder, monkeypatch):
    """An sbatch that accepts every script and starts none."""
    for name, text in (("srun", ""), ("sbatch", "echo Submitted batch job 7"), ("sacct", "")):
        (folder / name).write_text(f"#!/bin/sh\n{text}\n")
        (folder / name).chmod(0o755)
    monkeypatch.setenv("PATH", str(folder), prepend=os.pathsep)


def test_what_slurm_is_asked_for(monkeypatch, matrix, tmp_path):
    fake_slurm(tmp_path, monkeypatch)
    slurm = ("partition=big", "mem_gb=8", "timeout_min=90", "gpus_per_node=1")
    engine = make("submitit", Options(threads=4, slurm=slurm))
    assert engine.device("auto") == "cuda"
    job = engine._executor(tmp_path / "jobs", "cuda").submit(print)
    asked = (tmp_path / "jobs" / f"{job.job_id}_submission.sh").read_text()
    for words in ("partition=big", "mem=8GB", "time=90", "gpus-per-node=1", "cpus-per-task=4"):
        assert f"#SBATCH --{words}\n" in asked


class Trap:
    """A pickle that makes a file when it is read."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return (os.mkdir, (str(self.path),))


def test_the_result_comes_from_the_run_and_no_pickle_is_read(monkeypatch, matrix, tmp_path):
    from harness.engine.remote import RemoteJob

    fake_slurm(tmp_path, monkeypatch)
    monkeypatch.setattr("harness.engine.submitit.PATIENCE", 0.0)
    (config,) = matrix("train.steps=2", pe="rope")
    workers = make("submitit", Options()).workers([config], tmp_path / "runs", "test")
    workers.alive.parent.mkdir()
    workers.alive.touch()
    run = RemoteJob(config, workers.root, "test", 1, workers.alive)
    handle = workers.submit(run)
    handle[0].paths.result_pickle.write_bytes(pickle.dumps(("success", Trap(tmp_path / "trap"))))
    handle[0].paths.stderr.write_text("first\nModuleNotFoundError: No module named 'x'\n")
    assert workers.ended(handle) is None  # a slow file system has a while to show it
    died = workers.ended(handle)["died"]
    assert died.endswith("left no result. ModuleNotFoundError: No module named 'x'")
    with RunFolder(workers.root, config).lock():
        assert "another process is training it" in run()["busy"]
        assert workers.ended(handle) == run.outcome() == {"busy": run()["busy"]}
    record = run()["record"]
    assert workers.ended(handle) == {"record": record}
    assert record.status == "done"
    run.clear()
    assert run.outcome() is None
    assert not (tmp_path / "trap").exists()
    assert not [*run.folder.glob("*.last"), *run.folder.glob("progress.json")]


def test_a_queue_that_takes_no_more_starts_nothing_more(monkeypatch, matrix, collect, tmp_path):
    fake_slurm(tmp_path, monkeypatch)
    (tmp_path / "sbatch").write_text("#!/bin/sh\necho too many jobs >&2; exit 1\n")
    engine, configs = make("submitit", Options(jobs=1)), matrix("train.steps=2")
    events = collect(engine, configs, tmp_path / "runs")
    assert [len(events[i]) for i in events] == [1, 0, 0]
    for words in ("cannot be submitted", "too many jobs", "2 more not started"):
        assert words in events[0][0]["error"]


def test_an_interrupted_slurm_job_comes_back_with_its_job(matrix, tmp_path):
    from harness.engine.remote import RemoteJob

    (config,) = matrix("train.steps=2", pe="rope")
    (tmp_path / "sweep").touch()
    task = RemoteJob(config, tmp_path, "test", 1, tmp_path / "sweep")
    event = task.checkpoint().result()
    assert event["record"].status == "done"


@pytest.mark.parametrize(
    ("device", "slurm", "words"),
    [
        ("cuda:1", LOCAL, "expected auto, cpu or cuda, was 'cuda:1'"),
        ("auto", ("partition",), "expected key=value"),
        ("auto", (*LOCAL, "partitoin=big"), "Unknown argument 'partitoin'"),
        ("auto", (*LOCAL, "mem_gb=lots"), "mem_gb"),
        ("auto", ("cluster=sturm",), "sturm"),
    ],
)
def test_a_wrong_setting_ends_before_anything_is_submitted(device, slurm, words):
    with pytest.raises(EngineError, match=words):
        make("submitit", Options(slurm=slurm)).device(device)


def test_no_slurm_here(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    assert make("submitit", Options()).device("auto") == "cpu"
    with pytest.raises(EngineError, match="srun"):
        make("submitit", Options(slurm=("cluster=slurm",))).device("auto")
