"""Workers of this machine: how many there are changes nothing, each has its cores or its GPU."""

import os
from multiprocessing.connection import Connection

import pytest
import torch

from harness.engine import EngineError, Options, make
from harness.engine.local import Engine, LocalWorkers, cores, threads_of


@pytest.mark.slow
@pytest.mark.parametrize("jobs", [1, 2])
def test_the_number_of_workers_changes_no_bit(jobs, matrix, collect, assert_like_here, tmp_path):
    configs = matrix()
    events = collect(Engine(Options(jobs, threads=1)), configs, tmp_path)
    assert all("record" in told[-1] for told in events.values())
    assert_like_here(configs, tmp_path)


def test_the_record_says_the_threads(matrix, collect, tmp_path):
    (config,) = matrix("train.steps=2", pe="rope")
    (event,) = collect(Engine(Options(threads=3)), [config], tmp_path)[0][-1:]
    assert event["record"].env.threads == 3


def test_the_cores_are_shared_out(monkeypatch, matrix):
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    monkeypatch.setattr("harness.engine.local.cores", lambda: 8)
    assert [threads_of(jobs) for jobs in (1, 2, 3, 8, 9)] == [8, 4, 2, 1, 1]
    monkeypatch.setenv("OMP_NUM_THREADS", "5")
    assert threads_of(2) == 5
    asked = [Engine(Options(jobs)).jobs(matrix()) for jobs in (None, 1, 2, 9)]
    assert asked == [2, 1, 2, 3]
    assert cores() >= 1


def test_several_gpus_get_a_worker_each(monkeypatch, matrix):
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 3)
    configs = [config.model_copy(update={"device": "cuda"}) for config in matrix() * 2]
    assert Engine(Options()).jobs(configs) == 3
    one = [config.model_copy(update={"device": "cuda:1"}) for config in configs]
    assert Engine(Options()).jobs(one) <= 2  # all share the one that they name


class Process:
    """Stands for a process that is never started."""

    def __init__(self, target, args, daemon):
        self.args, self.exitcode = args, -9

    def start(self):
        pass

    join = kill = start


def test_a_worker_takes_the_gpu_of_the_one_that_died(monkeypatch, matrix, tmp_path):
    held = []  # the workers' ends of the pipes

    class Context:
        Process = Process

        @staticmethod
        def Pipe():
            ours, theirs = torch.multiprocessing.Pipe()
            held.append(Connection(os.dup(theirs.fileno())))
            return ours, theirs

    monkeypatch.setattr("harness.engine.local.fork_server", Context)
    workers, (config, *_) = LocalWorkers(tmp_path, "test", 1, gpus=2), matrix()
    for run in range(3):
        workers.start(run, config)
    seats = {worker.run: worker.process.args[2] for worker in workers.busy.values()}
    assert seats == {0: 0, 1: 1, 2: 0}
    held[1].close()
    with open(os.devnull) as nothing:
        told = [*workers.wait(nothing.fileno())]
    assert told == [(1, {"died": "SIGKILL, mostly for lack of memory"})]
    workers.start(3, config)
    assert [w.process.args[2] for w in workers.busy.values() if w.run == 3] == [1]


@pytest.mark.parametrize(
    ("name", "options", "words"),
    [
        ("rai", Options(), "did you mean ray"),
        ("local", Options(address="here:1"), "--address belongs to --engine ray"),
        ("ray", Options(slurm=("mem_gb=1",)), "--slurm belongs to --engine submitit"),
    ],
)
def test_what_an_engine_cannot_do(name, options, words):
    with pytest.raises(EngineError, match=words):
        make(name, options)


@pytest.mark.parametrize("name", ["ray", "submitit"])
def test_an_engine_that_is_not_installed(monkeypatch, name):
    monkeypatch.setattr("harness.engine.find_spec", lambda module: None)
    with pytest.raises(EngineError, match=rf'pip install "pezoo\[{name}\]"'):
        make(name, Options())
