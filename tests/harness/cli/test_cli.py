"""The command line as a user meets it."""

import json
import os
import re
import subprocess
import sys
from types import SimpleNamespace

import pytest
import torch

from harness.settings.protocol import load_protocol, resolve
from leaderboard.record.read import RECORDS, read
from pezoo.spec import parse
from pezoo.testing import CHECKS

TINY = [
    *("--set", "train.steps=4"),
    *("--set", "eval.samples=4"),
    *("--set", "eval.min_samples=4"),
    *("--set", "eval.validation_samples=2"),
    *("--set", "eval.lengths=[10,20]"),
]


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (MemoryError("x"), "memory"),
        (RuntimeError("DefaultCPUAllocator: can't allocate memory"), "memory"),
        (RecursionError("x"), "nesting"),
    ],
)
def test_what_asks_for_too_much_is_one_message(call, monkeypatch, error, words):
    def fail(*args, **more):
        raise error

    monkeypatch.setattr("harness.cli.main.cli.main", fail)
    code, _, err = call("list", "tasks")
    assert (code, words in err) == (2, True)


def test_an_error_of_our_own_keeps_its_traceback(call, monkeypatch):
    def fail(*args, **more):
        raise RuntimeError("something else")

    monkeypatch.setattr("harness.cli.main.cli.main", fail)
    with pytest.raises(RuntimeError, match="something else"):
        call("list", "tasks")


def test_bench_prints_records_resumes_and_writes_a_leaderboard(call, tmp_path):
    args = ["bench", "--pe", "nope,learned", "--task", "copy", "--seeds", "0-1"]
    args += ["--runs", tmp_path, *TINY]
    code, out, err = call(*args, "--format", "json", "--log", "tensorboard")
    assert code == 0, err
    records = json.loads(out)
    assert len(list(tmp_path.glob("logs/tensorboard/*/events*"))) == 4
    assert not any("--log" in r["provenance"]["command"] for r in records)
    assert [(r["encoding"], r["seed"]) for r in records] == [
        ("nope", 0),
        ("learned", 0),
        ("nope", 1),
        ("learned", 1),
    ]
    hashes = {(r["seed"], r["backbone_hash"]) for r in records}
    assert len(hashes) == 2  # one backbone per seed, whatever the encoding
    code, out, _ = call(*args, "--format", "json")
    assert json.loads(out) == records
    code, out, _ = call(*args)
    assert "learned - not learned² cannot" in " ".join(out.split())
    assert (tmp_path / "leaderboard" / "index.html").is_file()
    run = records[0]["run"]
    code, out, _ = call("show", run[:8], "--runs", tmp_path)
    assert code == 0
    assert "last and best checkpoint" in out
    assert records[0]["data_hash"] in out
    code, out, _ = call("try", run, "12=", "--runs", tmp_path)
    assert code == 0
    assert "12=" in out
    for prompt, words in (
        ("1a=", "unknown symbol"),
        ("12", "is not a prompt of copy"),
        ("=", "of length 0"),
        ("", "'' is not a prompt of copy"),
    ):
        code, _, err = call("try", run, prompt, "--runs", tmp_path)
        assert code == 2
        assert words in err


def test_rerun_says_whether_the_results_agree(call, monkeypatch):
    path = next(RECORDS.glob("quick/copy/alibi/*.json"))
    given = read(path)
    other = given.model_copy(update={"data_hash": "0" * 16})
    for made, code, words in (
        ([given], 0, "the results agree bit for bit"),
        ([other], 1, "training data: differ"),
        ([], 2, f"run {given.run} left no record"),
    ):
        monkeypatch.setattr("harness.cli.rerun.train", lambda *args, made=made, **_: (made, None))
        found, out, err = call("leaderboard", "rerun", path)
        assert (found, words in out + err) == (code, True)


def test_a_run_of_any_attention_is_tried_on_a_cpu(call, monkeypatch):
    config = resolve(load_protocol("quick"), "copy", parse("rope"), 0, "cuda", "flex")
    record = SimpleNamespace(config=config, run=config.hash)
    monkeypatch.setattr("harness.cli.try_run.find", lambda *args: record)
    monkeypatch.setattr("harness.cli.try_run.restore", lambda *args: True)
    code, out, err = call("try", "some", "12=")
    assert code == 0, err
    assert out.startswith("12=")


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (
            ("list", "copyy"),
            "'copyy' is not one of encodings, tasks, protocols; did you mean copy?",
        ),
        (("list", "encoding"), "did you mean encodings?"),
        (("list", "rope"), "rope is one of the encodings: pezoo list encodings rope"),
        (
            ("bench", "--pe", "rope", "--task", "copy", "--attention", "flex"),
            "cannot train on a CPU",
        ),
        (
            (
                "bench",
                "--pe",
                "rope,t5,fire",
                "--task",
                "copy,reverse,sort,parity",
                "--seeds",
                "0-9999",
            ),
            "these are 120,000 runs; the most at once are 100,000",
        ),
    ],
)
def test_a_near_name_or_option_is_suggested(call, given, words):
    code, _, err = call(*given)
    assert code == 2
    assert words in " ".join(err.split())


def test_dry_run_trains_nothing(call, tmp_path):
    args = ["bench", "--pe", "nope", "--task", "copy", "--runs", tmp_path, *TINY, "--dry-run"]
    code, out, _ = call(*args, "--tune", "lr=1e-3,3e-3", "--seeds", "0-2")
    assert code == 0
    rows = out.partition("--")[2].partition("\n\n")[0].splitlines()[1:]
    assert [line.split()[:4] for line in rows] == [
        ["sweep", "nope", "copy", "2"],
        ["comparison", "nope", "copy", "3"],
    ]
    assert "5 runs" in out
    assert list(tmp_path.iterdir()) == []


def test_help_imports_nothing_slow():
    code = (
        "import sys; from click.testing import CliRunner; from harness.cli.main import cli;"
        "assert CliRunner().invoke(cli, ['--help']).exit_code == 0;"
        "print([m for m in ('torch', 'pandas', 'scipy', 'matplotlib') if m in sys.modules])"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout.strip() == "[]"


def test_check_names_each_check(call, monkeypatch):
    monkeypatch.setattr("pezoo.registry.names", lambda: ["alibi"])
    for what in ("alibi", "--all"):
        code, out, _ = call("check", what)
        assert code == 0
        assert out.count("ok ") == len(CHECKS)
        assert ("alibi:" in out.splitlines()) == (what == "--all")
    assert call("check")[0] == call("check", "alibi", "--all")[0] == 2
    code, _, words = call("check", "mine.py")
    assert code == 2
    assert "expected the name of an encoding or a task, got the file mine.py" in words


def test_check_says_an_error_once(call, monkeypatch):
    def bias(self, q, k, ctx):
        return ctx.querypos

    monkeypatch.setattr("pezoo.encodings.alibi.ALiBi.bias", bias)
    code, out, _ = call("check", "alibi")
    assert code == 1
    assert out.count("querypos") == 1
    assert out.count("FAIL") == 1
    others = re.search(r"fix check_shapes first; (\d+) more fail with it: check_inputs, ", out)
    assert "check_long" in out
    assert out.splitlines()[-1] == f"{1 + int(others[1])} of {len(CHECKS)} checks fail"
    monkeypatch.setattr("pezoo.encodings.alibi.ALiBi.__init__", bias)
    code, out, _ = call("check", "alibi")
    assert code == 1
    assert out.splitlines()[1:] == ["the other checks need one that can be built"]


def test_check_stops_at_an_encoding_that_is_random(call, monkeypatch):
    def bias(self, q, k, ctx):
        return torch.rand(q.shape[2], k.shape[2]).to(q.dtype)

    monkeypatch.setattr("pezoo.encodings.alibi.ALiBi.bias", bias)
    code, out, _ = call("check", "alibi")
    assert code == 1
    assert "FAIL  check_deterministic: two passes over the same tokens differ" in out
    assert out.splitlines()[-1] == "the other checks need one that computes the same twice"


def test_leaderboard_build(call, tmp_path, monkeypatch):
    records = tmp_path / "records"
    records.mkdir()
    out = [*("--out", tmp_path / "site"), *("--markdown", tmp_path / "LEADERBOARD.md")]
    code, text, _ = call("leaderboard", "build", "--records", records, *out)
    assert code == 0
    assert "0 records" in text
    assert (tmp_path / "site" / "index.html").is_file()
    monkeypatch.chdir(tmp_path)
    (tmp_path / "runs").mkdir()
    own = ("--runs", "runs", "--out", "mine", "--records", records)
    assert call("leaderboard", "build", *own)[0] == 0
    assert (tmp_path / "mine" / "index.html").is_file()
    code, out, _ = call("leaderboard", "build", "--records", records, "--out", "mine")
    assert (code, out) == (0, "0 records -> mine/index.html\n")
    assert not (tmp_path / "leaderboard").exists()  # LEADERBOARD.md shows published records


@pytest.mark.skipif(sys.platform != "linux", reason="xdg-open is Linux's")
def test_open_prints_the_address_where_there_is_no_browser(tmp_path):
    opener, index = tmp_path / "xdg-open", tmp_path / "index.html"
    opener.write_text("#!/bin/sh\necho 'no method available' >&2\nexit 3\n")
    opener.chmod(0o755)
    index.touch()
    lacking = {"DISPLAY", "WAYLAND_DISPLAY", "BROWSER"}
    env = {k: v for k, v in os.environ.items() if k not in lacking} | {"PATH": str(tmp_path)}
    command = [sys.executable, "-m", "harness", "leaderboard", "open", "--out", str(tmp_path)]
    shown = subprocess.run(command, env=env, capture_output=True, text=True, timeout=60)
    assert (shown.returncode, shown.stdout.strip(), shown.stderr) == (0, index.as_uri(), "")


def test_the_recorded_command_leaves_out_where_the_runs_lie():
    from harness.cli.train import recorded_command

    words = ["bench", "--pe", "rope", "--runs", "/some/where", "--seeds", "0", "--runs=here"]
    assert recorded_command(words) == "pezoo bench --pe rope --seeds 0"
