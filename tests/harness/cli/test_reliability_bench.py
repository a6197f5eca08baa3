"""Test that other commands can trust what `pezoo bench` writes."""

import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import warnings

import pytest
from soak import SETTINGS

from harness.cli import train
from harness.cli.tables import print_records
from harness.engine import Options
from harness.runs.folder import RunFolder
from harness.runs.record import new_record
from harness.runs.run import execute
from harness.settings.protocol import load_protocol, resolve
from harness.training.trainer import start
from leaderboard.record.schema import Record
from pezoo.spec import parse

SMALL = [word for setting in SETTINGS for word in ("--set", setting)]
BENCH = ["bench", "--pe", "rope", "--task", "copy", "--device", "cpu", *SMALL]


@pytest.fixture(autouse=True)
def empty_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("OMP_NUM_THREADS", "1")


def config_of(seed=0):
    return resolve(load_protocol("quick", SETTINGS), "copy", parse("rope"), seed, "cpu", "auto")


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A folder with a finished run, as text and bytes."""
    root = tmp_path_factory.mktemp("trained")
    execute(config_of(), root, "pezoo bench", lambda event: None)
    return root


@pytest.fixture
def run(trained, tmp_path):
    """A copy of that run's folder in runs/."""
    return shutil.copytree(trained, tmp_path / "runs") / config_of().hash


@pytest.mark.slow
def test_the_site_of_a_bench_is_no_source_of_records(call, tmp_path):
    (tmp_path / "none").mkdir()

    def built():
        build = "leaderboard", "build", "--runs", "runs", "--out", "runs/leaderboard"
        build += "--records", "none"
        code, out, err = call(*build, "--markdown", "L.md")
        assert code == 0, err
        return int(re.search(r"(\d+) records", out)[1])

    code, out, err = call(*BENCH, "--seeds", "0")
    assert code == 0, err
    assert (tmp_path / "runs/leaderboard/record").is_dir()
    code, out, err = call("leaderboard", "check", "runs")
    assert (code, err) == (0, "")
    assert "1 records checked, 0 refused" in out
    count = built()
    (folder,) = (path.parent for path in (tmp_path / "runs").glob("*/config.json"))
    shutil.rmtree(folder)  # a run that was deleted is nowhere
    assert built() == count - 1


def test_a_refused_fresh_deletes_nothing(call, run):
    before = {path.name: path.read_bytes() for path in run.iterdir()}
    with RunFolder(run.parent, config_of(1)).lock():
        code, _, err = call(*BENCH, "--seeds", "0-1", "--fresh")
    assert (code, "another process" in err) == (2, True)
    assert {path.name: path.read_bytes() for path in run.iterdir()} == before
    shutil.move(run, run.parent.parent / "elsewhere")
    run.symlink_to(run.parent.parent / "elsewhere")
    for fresh in (["--fresh"], []):
        code, _, err = call(*BENCH, "--seeds", "0", *fresh)
        assert (code, "is a link" in err) == (2, True)
    assert {path.name: path.read_bytes() for path in run.iterdir()} == before


def test_fresh_forgets_all_or_nothing_of_a_sweep(call, run, monkeypatch):
    asked = []
    monkeypatch.setattr(train, "train", lambda *args: asked.append(args))
    tuned = ["--tune", "lr=1e-3,3e-3", "--fresh"]
    monkeypatch.setattr(train, "possible_configs", lambda *args: [config_of(1)])
    with RunFolder(run.parent, config_of(1)).lock():
        code, _, err = call(*BENCH, *tuned)
    assert (code, "another process" in err, asked) == (2, True, [])


class OtherProcess:
    """An engine for which another process holds every run, and finishes it after two looks."""

    options = Options()
    looks = 0

    def run_all(self, configs, root, command, on_event):
        self.looks += bool(configs)
        for place, config in enumerate(configs):
            on_event(place, {"busy": "another process is training it"})
            if self.looks == 2:
                execute(config, root, command, lambda event: None)


def test_runs_that_another_process_holds_are_missing_or_waited_for(run, capsys, monkeypatch):
    monkeypatch.setattr(train, "WAIT", 0.01)
    configs, engine = [config_of(0), config_of(1)], OtherProcess()
    records, bad = train.train(configs, run.parent, engine, fresh=False)
    assert ([record.seed for record in records], bad) == ([0], True)
    assert "1 of 2 runs have no record yet" in capsys.readouterr().err
    for form in ("table", "markdown"):
        print_records(records, form, configs)
        assert "PARTIAL: no record yet of rope, seed 1" in capsys.readouterr().out
    records, bad = train.train(configs, run.parent, engine, fresh=False, wait=True)
    assert ([record.seed for record in records], bad, engine.looks) == ([0, 1], False, 2)
    assert train.recorded_command(["bench", "--wait", "--pe", "rope"]) == "pezoo bench --pe rope"


def test_waiting_has_no_end_and_says_once_what_is_skipped(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(train, "WAIT", 0)
    failed = {"status": "failed", "reason": "killed"}
    record = Record.of(new_record(config_of(0), "pezoo bench") | failed)

    class Busy:
        options = Options()
        looks = 0

        def run_all(self, configs, root, command, on_event):
            self.looks += 1
            last = self.looks == 1200
            on_event(0, {"record": record} if last else {"busy": "another process is training it"})

    engine = Busy()
    found = train.train([config_of(0)], tmp_path, engine, fresh=False, wait=True)
    assert (found, engine.looks) == (([record], True), 1200)
    assert capsys.readouterr().err.count("skipped") == 1


@pytest.mark.slow
def test_workers_start_where_the_folder_for_temporary_files_has_a_long_path(tmp_path):
    folder = tmp_path / ("x" * 120)
    folder.mkdir()
    code = (
        "from harness.engine.local import fork_server\n"
        "if __name__ == '__main__':\n"
        "    context = fork_server()\n"
        "    context.set_forkserver_preload([])\n"
        "    process = context.Process(target=print, args=('started',))\n"
        "    process.start(); process.join(); raise SystemExit(process.exitcode)\n"
    )
    (tmp_path / "start.py").write_text(code)
    path = os.pathsep.join(sys.path)
    environment = {**os.environ, "TMPDIR": str(folder), "PYTHONPATH": path}
    words = [sys.executable, tmp_path / "start.py"]
    done = subprocess.run(words, env=environment, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, "started\n"), done.stderr


@pytest.mark.slow
def test_show_and_try_say_when_they_use_an_older_checkpoint(call, run):
    show, answer = ("show", run.name), ("try", run.name, "12=")
    assert call(*show)[0] == call(*answer)[0] == 0
    (run / "ckpt-00000030.pt").write_bytes(b"")
    for words in (show, answer):
        with pytest.warns(UserWarning, match="checkpoint 30 is damaged"):
            code, _, err = call(*words)
        assert (code, err.count("step 27 of 30")) == (0, 1)
    assert warnings.formatwarning("a", UserWarning, "x.py", 1) == "warning: a\n"
    (run / "ckpt-00000030.json").unlink()
    for words in (show, answer):
        assert "step 27 of 30" in call(*words)[2]


def test_a_strangers_record_does_not_steer_the_terminal(call, run):
    record = json.loads((run / "result.json").read_text())
    failed = record | {"status": "failed", "reason": "a\x1b[2Jb"}
    (run / "result.json").write_text(json.dumps(failed))
    code, out, _ = call("show", run.name)
    assert (code, "a [2Jb" in out, "\x1b" in out) == (0, True, False)
    (run / "result.json").write_text(json.dumps(failed | {"encoding": "\x1b]0;title\x07"}))
    code, out, err = call("show", run.name)
    assert (code, out, "\x1b" in err) == (2, "", False)


def test_a_failed_record_that_is_none_is_no_traceback(call, run):
    (run / "result.json").write_text(json.dumps({"run": run.name, "status": "failed"}))
    for command in (("show", run.name), ("try", run.name, "12=")):
        code, _, err = call(*command)
        assert (code, "damaged result" in err) == (2, True)


def test_try_makes_no_folder(call, run):
    record = json.loads((run / "result.json").read_text()) | {"status": "failed"}
    record["config"]["seed"] = 5
    (run / "result.json").write_text(json.dumps(record))
    code, _, err = call("try", run.name, "12=")
    assert (code, "another version" in err) == (2, True)
    assert list(run.parent.iterdir()) == [run]


def test_known_records_are_not_trained_again(call, run, tmp_path):
    (tmp_path / "kept").mkdir()
    record = shutil.copy(run / "result.json", tmp_path / "kept" / f"{run.name}.json")
    shutil.rmtree(run)
    code, out, err = call(*BENCH, "--seeds", "0", "--known", "kept", "--format", "json")
    assert (code, [one["run"] for one in json.loads(out)]) == (0, [run.name]), err
    assert not run.exists()
    assert call(*BENCH, "--seeds", "0", "--known", "kept", "--dry-run")[1].startswith("nothing")
    record = record.rename(tmp_path / "kept" / "copied.json")
    assert call(*BENCH, "--seeds", "0", "--known", "kept", "--dry-run")[1].startswith("nothing")
    other = json.loads(record.read_text())
    other["scores"]["last"][0]["token"] /= 2
    twin = tmp_path / "kept" / "twin.json"
    twin.write_text(json.dumps(other))
    code, _, err = call(*BENCH, "--seeds", "0", "--known", "kept")
    assert (code, "another record" in err) == (2, True), err
    twin.unlink()
    code, _, err = call(*BENCH, "--seeds", "0", "--known", "kept", "--fresh")
    assert (code, "leave one of them out" in err) == (2, True)
    code, _, err = call(*BENCH, "--seeds", "0", "--known", "none")
    assert (code, "no folder none" in err) == (2, True)
    record.write_text(f'{{"run": "{run.name}"}}')
    code, _, err = call(*BENCH, "--seeds", "0", "--known", "kept")
    assert (code, record.name in err) == (2, True)
    record.write_text("{}")
    record = record.rename(tmp_path / "kept" / f"{run.name}.json")
    code, _, err = call(*BENCH, "--seeds", "0", "--known", "kept")
    assert (code, record.name in err) == (2, True)


def sealed(folder, record):
    """A result.json with a DONE that fits it."""
    text = json.dumps(record).encode()
    (folder / "result.json").write_bytes(text)
    (folder / "DONE").write_text(hashlib.sha256(text).hexdigest())


def test_a_record_counts_by_its_settings_and_not_by_its_name(call, run, tmp_path):
    record = json.loads((run / "result.json").read_text())
    for other in (
        record | {"config": record["config"] | {"seed": 1}},
        {"run": run.name},
        {"run": run.name, "status": "done"},
        {},
    ):
        sealed(run, other)
        with pytest.warns(UserWarning, match="not used"):
            assert RunFolder(run.parent, config_of()).result() is None
    (tmp_path / "kept").mkdir()
    foreign = json.dumps(record | {"config": record["config"] | {"seed": 1}})
    (tmp_path / "kept" / f"{run.name}.json").write_text(foreign)
    code, _, err = call(*BENCH, "--seeds", "0", "--known", "kept")
    assert (code, "it is of run" in err) == (2, True)


def test_a_strange_sweep_beside_a_run_is_not_used(run):
    folder = RunFolder(run.parent, config_of())
    (run / "tuning.json").write_text('{"x": 1}')
    assert folder.origin() == {}
    tuned = RunFolder(run.parent, config_of().replace(protocol="quick+tune-12345678"))
    tuned.note_tuning({"x": 1})
    with pytest.warns(UserWarning, match="not used"):
        assert tuned.origin() == {}


def test_a_checkpoint_beyond_the_last_step_is_not_used(run, tmp_path):
    (last,) = sorted(run.glob("ckpt-*.json"))[-1:]
    for path in run.glob(f"{last.stem}.*"):
        shutil.copy(path, run / path.name.replace(last.stem, "ckpt-00000999"))
    (run / "ckpt-00000005.json").mkdir()
    folder = RunFolder(run.parent, config_of())
    trainer = start(config_of())
    with pytest.warns(UserWarning, match="checkpoint 999"):
        curve = folder.restore(trainer)
    folder.save(trainer, curve)  # drops what is older or beyond
    assert not (run / "ckpt-00000999.json").exists()
    assert (run / "ckpt-00000005.json").is_dir()
