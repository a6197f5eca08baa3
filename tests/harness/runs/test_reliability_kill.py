"""Real processes that are killed, interrupted, without disk space, or at the same run."""

import os
import re
import signal
import subprocess
import sys
import time
from multiprocessing import active_children
from resource import RLIMIT_FSIZE, setrlimit

import pytest
import torch
from filelock import Timeout
from soak import SETTINGS, same, soak, weights

from harness.engine import Options
from harness.engine.local import Engine, fork_server, threads_of
from harness.runs.events import Stopped, holder
from harness.runs.folder import RunFolder, finished
from harness.runs.run import execute
from harness.settings.protocol import load_protocol, resolve
from harness.training.trainer import start
from pezoo.spec import parse

DRAWN = "randomized:prism_2025(cursors=1,d_pe=8,hidden=8,state_noise=0.3)"  # of every generator
LONG = (*SETTINGS, "train.steps=120", "train.checkpoint_every=10", "eval.every=60")


@pytest.fixture(autouse=True)
def one_thread(monkeypatch):
    """In every process, so that whole runs can be made in this one."""
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    assert torch.get_num_threads() == threads_of(2) == 1


def config_of(pe="rope", seed=0, settings=LONG):
    return resolve(load_protocol("quick", settings), "copy", parse(pe), seed, "cpu", "auto")


def quietly(config, root):
    return execute(config, root, "test", lambda event: None)


def everything(configs, root, on_event=lambda index, event: None, jobs=2):
    """Run them as `pezoo bench` does; the last event of each."""
    last = {}

    def note(index, event):
        on_event(index, event)
        last[index] = event

    Engine(Options(jobs)).run_all(configs, root, "test", note)
    return last


def bench(root, seeds, settings=LONG, jobs=2, before=None, words=()):
    """`pezoo bench` in a process group of its own; JSON, because pages take seconds."""
    if not words:
        words = [*("--pe", "rope", "--task", "copy", "--seeds", seeds, "--device", "cpu")]
        words += ["--format", "json"]
        words += [word for setting in settings for word in ("--set", setting)]
    code = "from harness.__main__ import run; run()"

    def begin():
        signal.signal(signal.SIGINT, signal.SIG_DFL)  # a shell's background jobs ignore it
        if before is not None:
            before()

    return subprocess.Popen(
        [sys.executable, "-c", code, "bench", *words, "--jobs", str(jobs), "--runs", str(root)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        preexec_fn=begin,
    )


def eventually(what, seconds=300):
    """Wait until it is true."""
    end = time.monotonic() + seconds
    while not what():
        assert time.monotonic() < end, "this did not happen in time"
        time.sleep(0.02)


def saved(root, configs):
    """The checkpoints that there are."""
    return {path for c in configs for path in (root / c.hash).glob("ckpt-*.json")}


def free(root, config):
    """Return True if no process holds the run."""
    try:
        with RunFolder(root, config).lock():
            return True
    except Timeout:
        return False


def assert_like_whole_runs(root, configs, tmp_path):
    for config in configs:
        whole = quietly(config, tmp_path / "whole")
        assert same(whole, finished(root / config.hash))
        assert weights(tmp_path / "whole", config) == weights(root, config)


def test_runs_killed_at_random_moments_lose_nothing(tmp_path):
    report = soak([config_of(DRAWN, settings=SETTINGS)], tmp_path, kills=3)
    assert report.faults == 0, report
    assert report.kills == 3
    assert report.runs >= 1


@pytest.mark.slow
def test_a_signal_saves_and_the_same_command_goes_on(tmp_path):
    """Sent to the command alone, as a service manager or `kill` does."""
    settings = (*LONG, "train.steps=5000")
    configs = [config_of(seed=seed, settings=settings) for seed in (0, 1)]
    process = bench(tmp_path, "0-2", settings)
    eventually(lambda: all(saved(tmp_path, [config]) for config in configs))
    process.send_signal(signal.SIGTERM)
    out, err = process.communicate(timeout=300)
    err = " ".join(err.split())
    assert process.returncode == 143, err
    assert out == ""
    assert "0 of 3 runs done, 3 stopped or not started" in err
    assert "run the same command" in err
    assert "Traceback" not in err
    for config in configs:
        words = rf"seed {config.seed}: skipped: stopped at step (\d+) of 5000, checkpoint saved"
        step = int(re.search(words, err)[1])
        resumed, whole = start(config), start(config)
        RunFolder(tmp_path, config).restore(resumed)
        while whole.step < step:
            whole.advance()
        assert resumed.step == step
        for one, two in zip(resumed.model.parameters(), whole.model.parameters(), strict=True):
            assert torch.equal(one, two)
        with pytest.raises(Stopped, match=f"step {step + 1} of 5000"):
            execute(config, tmp_path, "test", lambda event: None, stop=lambda: True)


PRESSED = """
import os, signal, sys
from importlib.abc import MetaPathFinder

class Press(MetaPathFinder):
    def find_spec(self, name, path, target=None):
        if name == module:
            os.kill(os.getpid(), signal.SIGINT)

signal.signal(signal.SIGINT, signal.default_int_handler)  # as a terminal's commands have it
sys.meta_path.insert(0, Press())
module = sys.argv.pop(1)
from harness.__main__ import run
run()
"""
BENCH = ("bench", "--pe", "rope", "--task", "copy", "--seeds", "0")


@pytest.mark.parametrize(
    ("module", "args"),
    [
        ("harness.cli.main", ("list", "tasks")),
        ("click", ("list", "tasks")),
        ("pydantic", ("list", "tasks")),
        ("torch", BENCH),
        ("filelock", BENCH),
    ],
)
def test_ctrl_c_during_an_import_prints_no_traceback(module, args, tmp_path):
    done = subprocess.run(
        [sys.executable, "-c", PRESSED, module, *args], cwd=tmp_path, capture_output=True, text=True
    )
    assert done.returncode in (130, -signal.SIGINT), done.stderr
    assert (done.stdout, "Traceback" in done.stderr) == ("", False), done.stderr


def serves(process):
    """Return True if a process of the group is a fork server, or about to be one."""
    listed = ["ps", "-o", "args", "-g", str(process.pid)]
    return "forkserver" in subprocess.run(listed, capture_output=True, text=True).stdout


@pytest.mark.slow
def test_ctrl_c_while_workers_start_prints_no_traceback(tmp_path):
    process = bench(tmp_path, "0-1")
    eventually(lambda: serves(process))
    os.killpg(process.pid, signal.SIGINT)
    _, err = process.communicate(timeout=300)
    assert (process.returncode, "Traceback" in err) == (130, False), err


@pytest.mark.slow
def test_ctrl_c_at_any_moment_prints_no_traceback_of_this_project(tmp_path):
    for delay in (0, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 1.7, 2.5):
        process = bench(tmp_path, "0-1", (*LONG, "train.steps=5000"))
        time.sleep(delay)
        os.killpg(process.pid, signal.SIGINT)
        _, err = process.communicate(timeout=300)
        if "Traceback" in err:  # of Python itself, before it runs a line of ours
            assert process.returncode in (1, -signal.SIGINT), err
            assert "harness" not in err, err
        else:
            assert process.returncode in (130, -signal.SIGINT), err


@pytest.mark.slow
def test_a_full_disk_ends_bench_with_a_message_and_the_last_good_state(tmp_path):
    config, root = config_of(), tmp_path / "cut"
    asked = []
    with pytest.raises(Stopped):
        execute(config, root, "test", lambda e: None, lambda: asked.append(1) or len(asked) > 15)
    good = {path.name: path.read_bytes() for path in (root / config.hash).glob("ckpt-*")}
    limit = (20_000, 20_000)  # bytes in one file: less than a model
    full = bench(root, "0-1", jobs=1, before=lambda: setrlimit(RLIMIT_FSIZE, limit))
    _, err = full.communicate(timeout=300)
    err = " ".join(err.split())
    assert full.returncode == 1
    assert re.search(r"cannot write .*000020.safetensors \(\d+ bytes\): File too large", err), err
    assert "1 more not started" in err
    assert "Errno" not in err
    assert "Traceback" not in err
    assert {path.name: path.read_bytes() for path in (root / config.hash).glob("ckpt-*")} == good
    assert not (root / config_of(seed=1).hash).exists()
    last = everything([config], root)
    assert last[0]["record"].cost.sessions == 2
    assert_like_whole_runs(root, [config], tmp_path)


@pytest.mark.slow
def test_a_killed_worker_is_replaced_and_a_run_that_kills_two_has_failed(tmp_path):
    configs, killed = [config_of(seed=seed) for seed in (0, 1)], {0: set(), 1: set()}

    def on_event(index, event):
        for child in active_children():
            if "step" in event and len(killed[index]) <= index:
                killed[index].add(child.pid)
                child.kill()

    last = everything(configs, tmp_path, on_event, jobs=1)
    assert [len(killed[index]) for index in (0, 1)] == [1, 2]
    first, second = last[0]["record"], last[1]["record"]
    assert first.status == "done"
    assert second.status == "failed"
    assert "died 2 times, at last by SIGKILL, mostly for lack of memory" in second.reason
    from leaderboard.record.read import load

    records, problems = load([tmp_path])
    assert (sorted(r.status for r in records), problems) == (["done", "failed"], [])
    again = everything(configs, tmp_path, jobs=1)  # such a failure may not repeat itself
    assert again[1]["record"].status == "done"


def hold(config, root, pipe):
    """Train in a process of its own; say so when the run is ours."""
    execute(config, root, "first", lambda event: pipe.send(event))


def test_of_two_processes_one_trains_and_the_other_takes_the_next_run(tmp_path):
    configs = [config_of(seed=seed) for seed in (0, 1)]
    context = fork_server()
    ours, theirs = context.Pipe(duplex=False)
    other = context.Process(target=hold, args=(configs[0], tmp_path, theirs))
    other.start()
    ours.recv()  # its first step
    os.kill(other.pid, signal.SIGSTOP)  # it holds the run for as long as we like
    last = everything(configs, tmp_path, jobs=1)
    stopped = f"process {other.pid} is stopped; kill -CONT {other.pid} lets it go on"
    assert stopped in last[0]["busy"]
    assert last[1]["record"].status == "done"
    assert finished(tmp_path / configs[0].hash) is None
    other.kill()
    other.join()
    last = everything(configs[:1], tmp_path, jobs=1)  # the lock of a dead process is no lock
    assert last[0]["record"].status == "done"
    assert last[0]["record"].provenance.command == "test"


@pytest.mark.slow
def test_a_stopped_worker_without_a_parent_is_named_with_what_to_do(tmp_path):
    settings = (*LONG, "train.steps=5000")
    held, root = config_of(settings=settings), tmp_path
    first = bench(root, "0", settings, jobs=1)
    eventually(lambda: saved(root, [held]))
    (pid,) = re.findall(r"process (\d+)", holder(str(root / held.hash / ".lock")))
    os.kill(int(pid), signal.SIGSTOP)
    first.kill()
    first.wait()
    assert not free(root, held)  # a stopped process may go on at any moment
    advice = f"process {pid} is stopped; kill -CONT {pid} lets it go on, kill -9 {pid} frees"
    assert advice in everything([held], root, jobs=1)[0]["busy"]
    os.kill(int(pid), signal.SIGCONT)
    eventually(lambda: free(root, held))  # it sees that its parent is dead


def race(config, root, name, gate, pipe):
    gate.wait()
    try:
        record = execute(config, root, name, lambda event: None)
        pipe.send("trained" if record.provenance.command == name else "shown")
    except Timeout:
        pipe.send("busy")


def test_of_processes_that_start_together_exactly_one_trains(tmp_path):
    config, context = config_of(), fork_server()
    gate = context.Barrier(3)
    ours, theirs = context.Pipe(duplex=False)
    racers = [context.Process(target=race, args=(config, tmp_path, x, gate, theirs)) for x in "abc"]
    for racer in racers:
        racer.start()
    for racer in racers:
        racer.join()
    assert [ours.recv() for _ in racers].count("trained") == 1
    assert finished(tmp_path / config.hash).cost.sessions == 1
