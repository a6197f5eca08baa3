"""One run on several processes is the run of one process, up to the rounding of sums."""

import os
import re
import signal
import subprocess
import sys
import time
from itertools import cycle

import pytest
import torch
import torch.distributed as dist
from soak import SETTINGS
from torch.distributed.elastic.multiprocessing import SignalException
from torch.distributed.elastic.multiprocessing.errors import ChildFailedError, ProcessFailure

from harness.engine import EngineError, Options, ddp, make
from harness.engine.ddp import Team
from harness.runs.folder import RunFolder, finished
from harness.runs.run import execute
from harness.settings.protocol import load_protocol, resolve
from harness.training.trainer import start
from pezoo.spec import parse

NOISY = "prism_2025(cursors=1,d_pe=8,hidden=8,state_noise=0.3,gate_noise=0.2,orthogonal=0.1)"
ENCODINGS = ["rope", "learned", "randomized:relative", "shifted_sinusoidal", NOISY]
CURVE = (*SETTINGS, "train.steps=5", "train.warmup=2", "eval.every=1", "model.dropout=0.1")


def config_of(pe, *settings, task="copy"):
    protocol = load_protocol("quick", (*SETTINGS, *settings))
    return resolve(protocol, task, parse(pe), 0, "cpu", "auto")


@pytest.fixture
def alone(tmp_path):
    """A group of this process alone."""
    store = dist.FileStore(str(tmp_path / "store"), 1)
    dist.init_process_group("gloo", store=store, rank=0, world_size=1)
    yield
    dist.destroy_process_group()


@pytest.mark.parametrize(("pe", "task"), [*zip(ENCODINGS, cycle(("copy", "addition")))])
def test_parts_of_a_batch_add_up_to_the_whole(pe, task, alone):
    config = config_of(pe, "train.batch=7", "model.dropout=0.1", task=task)  # 2, 2 and 3 rows
    whole, parts = start(config), Team(accumulate=3).begin(config)
    for _ in range(3):
        assert parts.backward() == pytest.approx(float(whole.backward()), rel=1e-5)
        for one, two in zip(whole.model.parameters(), parts.model.parameters(), strict=True):
            torch.testing.assert_close(two.grad, one.grad, rtol=1e-3, atol=1e-6)
        assert parts.advance() == pytest.approx(float(whole.advance()), rel=1e-5)
    assert parts.spread == {"processes": 1, "accumulate": 3}


def test_a_part_without_answers_adds_nothing(alone):
    """Rows of one prompt and its answer in turn: a row of six tokens may hold digits alone."""
    settings = ("train.batch=6", "train.context=6", "train.lengths=[10, 10]")
    config = config_of("rope", *settings)
    whole, parts = start(config), Team(accumulate=6).begin(config)
    rows = whole.make_batch()[0].answer
    assert not rows.any(1).all()
    assert parts.backward() == pytest.approx(float(whole.backward()), rel=1e-5)
    for one, two in zip(whole.model.parameters(), parts.model.parameters(), strict=True):
        torch.testing.assert_close(two.grad, one.grad, rtol=1e-3, atol=1e-6)


def test_all_steps_are_taken_together_until_somebody_asks_to_stop(alone):
    config = config_of("rope", "train.steps=3")
    signals = [False, True]
    team = Team(interrupted=lambda: signals.pop(0))
    trainer = team.begin(config)
    assert not team.inside
    trainer.advance()
    assert (team.inside, team.stopping) == (True, False)
    trainer.advance()
    assert (team.inside, team.stopping) == (False, True)


def torchrun(root, *words, processes=2, launcher="torch.distributed.run"):
    command = [sys.executable, "-m", launcher, "--nproc-per-node", str(processes)]
    command += ["--standalone", "-m", "harness", "bench", "--task", "copy", "--seeds", "0"]
    return subprocess.Popen(
        [*command, "--device", "cpu", "--threads", "1", "--runs", str(root), *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def sets(settings):
    return [word for setting in settings for word in ("--set", setting)]


@pytest.mark.slow
def test_two_processes_have_the_loss_curve_of_one(tmp_path):
    root = tmp_path / "two"
    words = ["--pe", NOISY, "--accumulate", "2", *sets(CURVE), "--format", "json"]
    out, err = torchrun(root, *words).communicate(timeout=600)
    config = config_of(NOISY, *CURVE)
    one, two = execute(config, tmp_path / "one", "test", print), finished(root / config.hash)
    assert two is not None, err
    curves = [[point.loss for point in record.learning] for record in (one, two)]
    assert len(curves[1]) == config.train.steps == 5
    assert curves[1] == pytest.approx(curves[0], abs=1e-4)
    assert (two.env.processes, two.env.accumulate) == (2, 2)
    assert one.cost.tokens == two.cost.tokens
    assert one.data_hash == two.data_hash
    assert out.count('"run":') == 1  # process 0 alone prints


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (SignalException("", signal.SIGINT), 130),
        (SignalException("", signal.SIGTERM), 143),
        (ChildFailedError("", {0: ProcessFailure(0, 0, 2, "")}), 2),
        (ChildFailedError("", {0: ProcessFailure(0, 0, -9, "")}), 137),
    ],
)
def test_our_launcher_ends_as_bench_does(error, code, monkeypatch):
    def fail():
        raise error

    monkeypatch.setattr("torch.distributed.run.main", fail)
    with pytest.raises(SystemExit) as caught:
        ddp.launch()
    assert caught.value.code == code


@pytest.mark.slow
def test_ctrl_c_ends_our_launcher_with_130(tmp_path):
    words = ["--pe", "rope", *sets((*SETTINGS, "train.steps=50000"))]
    process = torchrun(tmp_path, *words, processes=1, launcher="harness.engine.ddp")
    end = time.monotonic() + 300
    while not list(tmp_path.glob("*/ckpt-*.json")):
        assert time.monotonic() < end, process.communicate()
        time.sleep(0.1)
    os.killpg(process.pid, signal.SIGINT)
    _, err = process.communicate(timeout=100)
    assert (process.returncode, "Traceback" in err) == (130, False), err


def test_what_torchrun_is_for():
    with pytest.raises(EngineError, match="torchrun --nproc-per-node"):
        make("ddp", Options()).device("auto")
    with pytest.raises(EngineError, match="--accumulate belongs to --engine ddp"):
        make("local", Options(accumulate=2))


def test_a_batch_needs_a_row_for_every_part(alone, tmp_path):
    engine = make("ddp", Options(accumulate=9))
    assert engine.device("auto") == "cpu"
    with pytest.raises(EngineError, match=r"train.batch 8 cannot be split into 9 parts"):
        engine.run_all([config_of("rope")], tmp_path, "test", print)


def test_runs_of_one_process_and_their_failures(alone, tmp_path):
    configs = [config_of("rope", "train.steps=2"), config_of("rope", "train.lr=1e15")]
    events = {}
    make("ddp", Options()).run_all(configs, tmp_path, "test", events.__setitem__)
    assert [events[i]["record"].status for i in (0, 1)] == ["done", "failed"]
    assert "Diverged" in events[1]["record"].reason


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_saves_a_checkpoint(number, alone, tmp_path):
    config, told = config_of("rope", "train.steps=50000"), []

    def on_event(run, event):
        told.append(event)
        if "loss" in event:
            signal.raise_signal(number)

    with pytest.raises(KeyboardInterrupt) as caught:
        make("ddp", Options()).run_all([config, config_of("nope")], tmp_path, "test", on_event)
    assert caught.value.signal == number
    step = int(re.match(r"stopped at step (\d+) of 50000, checkpoint saved", told[-1]["busy"])[1])
    assert (tmp_path / config.hash / f"ckpt-{step:08d}.json").is_file()


@pytest.mark.slow
def test_the_processes_end_with_torchrun_and_a_checkpoint_is_saved(tmp_path):
    config = config_of("rope", "train.steps=50000")
    settings = sets((*SETTINGS, "train.steps=50000"))
    process = torchrun(tmp_path, "--pe", "rope", *settings)  # kill -9 leaves it no time to tell
    folder = tmp_path / config.hash
    end = time.monotonic() + 300
    while not list(folder.glob("ckpt-*.json")):
        assert time.monotonic() < end, process.communicate()
        time.sleep(0.1)
    process.kill()
    _, err = process.communicate(timeout=100)  # until every process has closed its end
    words = r"stopped at step (\d+) of 50000, checkpoint saved"
    step = int(re.search(words, " ".join(err.split()))[1])
    assert (folder / f"ckpt-{step:08d}.json").is_file()
    with RunFolder(tmp_path, config).lock():
        pass  # nobody trains it any more
