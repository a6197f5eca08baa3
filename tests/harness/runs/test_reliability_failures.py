"""Failures of a run or a command are reported and recorded, and stop nothing else."""

import json
import os
import re
import signal
import subprocess
import sys
import textwrap

import pytest
import torch
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from soak import SETTINGS

from experiment.config import ConfigError
from experiment.protocol import protocol_names
from harness import tasks
from harness.cli.tables import print_records
from harness.settings.protocol import DEVICES, check_device, load_protocol, parse_request
from leaderboard.record.read import load
from pezoo import registry

FLAWED = '''
    import torch
    from pezoo.base import Encoding, PositionError

    class Raises(Encoding):
        """Fails in the middle of training, with a message of two lines."""
        def draw(self, ctx, progress=None, **plan):
            if progress and progress > 0.4:
                raise KeyError("no such\\nhead")
            return {}

    class Hungry(Encoding):
        """Asks for more memory than any address space holds."""
        def embed(self, x, ctx):
            return x + torch.empty(10**16).sum()

    class Exhausted(Encoding):
        def embed(self, x, ctx):
            raise MemoryError

    class Short(Encoding):
        """Cannot represent what it is trained on."""
        max_len = 3
        def draw(self, ctx, **plan):
            if int(ctx.pos.max()) >= 3:
                raise PositionError("position 3 is beyond max_len=3")
            return {}

    class Nan(Encoding):
        """Its loss is NaN from step 10 of 30 on."""
        def draw(self, ctx, progress=None, **plan):
            wrong = progress and progress >= 1 / 3
            return {"nan.factor": torch.tensor(float("nan") if wrong else 1.0)}
        def embed(self, x, ctx):
            return x * ctx.drawn["nan.factor"]

    class Peeks(Encoding):
        """Claims prefix_stable and adds the embedding of the next token."""
        def embed(self, x, ctx):
            return x + torch.cat([x[:, 1:], 0 * x[:, :1]], 1)

    class Bursts(Encoding):
        """Its logits are NaN at the longer test length."""
        def embed(self, x, ctx):
            return x * (float("nan") if ctx.pos.shape[1] > 15 else 1.0)

    class Tableless(Encoding):
        def __init__(self, shape):
            raise OSError("the table is not there")

    class Shapeless(Encoding):
        def __init__(self):
            raise AssertionError("never called")

    class Leaving(Encoding):
        def __init__(self, shape):
            raise SystemExit(0)

    class Numbered(Encoding):
        wraps = 5

    class Nameless(Encoding):
        def __init__(self, shape, *, size: "Missing" = 1):
            super().__init__(shape)

    def unmade():
        raise KeyError("vocabulary")
'''
NAMES = ("raises", "hungry", "exhausted", "short", "nan", "peeks", "bursts")
UNBUILT = ("tableless", "shapeless", "leaving", "numbered", "nameless")
STOPPED = "class Stop(BaseException): pass\nraise Stop('no licence')"
ENDLESS = """
import time
while True:
    try:
        time.sleep(0.01)
    except Exception:
        pass
"""


@pytest.fixture
def flawed(tmp_path, monkeypatch):
    """Installed plug-ins with one flaw each, and one that cannot be imported."""
    site = tmp_path / "site"
    (site / "flawed-1.0.dist-info").mkdir(parents=True)
    (site / "flawed.py").write_text(textwrap.dedent(FLAWED))
    points = [f"{name} = flawed:{name.title()}" for name in (*NAMES, *UNBUILT)]
    points += ["unimportable = no_such_module_anywhere:Thing"]
    for name, text in (
        ("halting", "raise KeyboardInterrupt"),
        ("stopped", STOPPED),
        ("endless", ENDLESS),
    ):
        (site / f"{name}.py").write_text(text)
        points.append(f"{name} = {name}:Thing")
    monkeypatch.setattr("pezoo.plugin.SLOW", 0.2)
    monkeypatch.setattr("pezoo.plugin.ENDLESS", 0.4)
    monkeypatch.delitem(sys.modules, "endless", raising=False)
    text = "\n".join(["[pezoo.encodings]", *points, "[pezoo.tasks]", "untask = no_such_task:T"])
    text += "\nunmade = flawed:unmade\nhalted = halting:Thing\nendless_too = endless:Thing"
    (site / "flawed-1.0.dist-info" / "entry_points.txt").write_text(text)
    (site / "flawed-1.0.dist-info" / "METADATA").write_text("Name: flawed\nVersion: 1.0\n")
    monkeypatch.syspath_prepend(site)
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    for cache in (registry.entries, tasks.locations):
        cache.cache_clear()
    yield site
    for cache in (registry.entries, tasks.locations):
        cache.cache_clear()


def sets(*settings):
    return [word for setting in settings for word in ("--set", setting)]


def test_failures_are_records_with_reasons_and_the_others_go_on(call, flawed, capsys, tmp_path):
    args = ["bench", "--pe", ",".join([*NAMES, "nope"]), "--task", "copy", "--seeds", "0"]
    args += [*sets(*SETTINGS), "--runs", tmp_path / "runs", "--device", "cpu", "--format", "json"]
    code, out, err = call(*args)
    assert code == 1, err
    assert "Traceback" not in err
    records = {record["encoding"]: record for record in json.loads(out)}
    assert records.keys() == {*NAMES, "nope"}
    assert records["nope"]["status"] == "done"
    assert {records[name]["status"] for name in NAMES} == {"failed"}
    reasons = {name: records[name]["reason"] for name in NAMES}
    assert re.fullmatch(r"KeyError: 'no such\\nhead' \(flawed.py:\d+ in draw\)", reasons["raises"])
    assert reasons["hungry"].startswith("out of memory: ")
    assert reasons["exhausted"] == "out of memory"
    assert reasons["short"] == "cannot represent: position 3 is beyond max_len=3"
    assert reasons["nan"] == "Diverged: loss is nan at step 10"
    assert reasons["peeks"].startswith("LooksAhead: ")
    assert "set prefix_stable = False in peeks" in reasons["peeks"]
    assert reasons["bursts"] == "Diverged: logits are not finite at length 8"
    assert records["peeks"]["scores"] == records["bursts"]["scores"] == {"last": []}
    assert [point["step"] for point in records["raises"]["learning"]] == [10]
    assert {record["data_hash"] for record in records.values()} == {records["nope"]["data_hash"]}
    folder = tmp_path / "runs" / records["raises"]["run"]
    assert 'raise KeyError("no such\\nhead")' in (folder / "traceback.txt").read_text()

    known, problems = load([tmp_path / "runs"])
    assert (len(known), problems) == (len(NAMES) + 1, [])
    for form in ("table", "markdown", "csv"):
        print_records(known, form)
        assert capsys.readouterr().out.count("failed") >= len(NAMES)
    print_records(known, "table")
    assert "nan, seed 0 failed: Diverged: loss is nan at step 10" in capsys.readouterr().out
    code, out, _ = call("show", records["raises"]["run"], "--runs", tmp_path / "runs")
    assert code == 0
    assert "failed: KeyError" in out

    (flawed / "flawed.py").write_text(  # its author finds the mistake
        textwrap.dedent(FLAWED).replace("raise KeyError", "return None  # raise KeyError")
    )
    code, out, _ = call(*args)
    again = {record["encoding"]: record for record in json.loads(out)}
    assert code == 1
    assert (again["raises"]["status"], again["raises"]["cost"]["sessions"]) == ("done", 2)
    for name in ("short", "nan", "peeks", "bursts", "nope"):  # these would end in the same way
        assert again[name] == records[name]


MAIN_THEN_HEAVY_IMPORTS = """
import io, json, sys
from contextlib import redirect_stderr
from harness.cli.main import main

for words in json.loads(sys.argv.pop()):
    sys.argv[1:] = words
    with redirect_stderr(io.StringIO()) as err:
        try:
            main()
        except SystemExit as end:
            code = end.code
    heavy = ("torch", "numpy", "numba", "scipy", "pandas", "ray", "submitit")
    loaded = [name for name in heavy if name in sys.modules]
    print(json.dumps([code, err.getvalue(), loaded]))
"""
REFUSED = (
    (["bench", "--pe", "rpoe", "--task", "copy"], "did you mean rope"),
    (["bench", "--pe", "rope", "--task", "cpoy"], "did you mean copy"),
    (["bench", "--pe", "rope", "--task", "copy", "--protocol", "qick"], "did you mean quick"),
    (["bench", "--pe", "rope", "--task", "copy", "--set", "model.width=65"], "multiple of"),
    (["bench", "--pe", "rope", "--task", "copy", "--device", "cda"], "did you mean cuda"),
    (["bench", "--pe", "randomized:" * 400 + "rope", "--task", "copy"], "a deeper nesting"),
    (["bench", "--pe", "rope", "--task", "copy", "--set", f"seeds={'[' * 3000}"], "nesting"),
    (
        ["bench", "--pe", "rope", "--task", "copy", "--device", "cpu", "--attention", "sdp"],
        "did you mean sdpa",
    ),
    (["bench", "--pe", "unimportable", "--task", "copy", "--seeds", "x"], "cannot read seeds"),
)


@pytest.mark.slow
def test_bad_input_is_refused_in_no_time(flawed, tmp_path):
    """What takes the time is an import: the same on a busy machine as on an idle one."""
    given = json.dumps([args for args, _ in REFUSED])
    done = subprocess.run(
        [sys.executable, "-c", MAIN_THEN_HEAVY_IMPORTS, given],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(flawed), *sys.path])},
    )
    found = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("[")]
    assert len(found) == len(REFUSED), done.stderr
    for (args, words), (code, err, loaded) in zip(REFUSED, found, strict=True):
        assert (code, words in err, "Traceback" in err, loaded) == (2, True, False, []), (args, err)


@pytest.mark.parametrize("long", ["x" * 5000, "a b " * 1250])
def test_long_input_is_shortened_in_messages(call, tmp_path, long):
    given = {"--pe": "rope", "--task": "copy", "--protocol": "quick", "--seeds": "0"}
    given |= {"--device": "cpu", "--attention": "auto", "--set": "train.lr=1", "--tune": "lr=1"}
    cases = [given | {option: long} for option in (*given, "--engine", "--format", "--jobs")]
    cases += [given | {"--pe": f"rope({text})"} for text in (f"base='{long}'", f"{long}=1", long)]
    cases += [given | {"--set": f"{long}=1"}, given | {"--set": f"train.steps={long}"}]
    for case in cases:
        code, out, err = call("bench", *(word for pair in case.items() for word in pair))
        assert (code, out, len(err) < 2000) == (2, "", True), err[:300]
    for args in ([long], ["list", long], ["check", long], ["show", long], ["table", long]):
        code, out, err = call(*args)
        assert (code, out, len(err) < 2000) == (2, "", True), err[:300]


def test_a_plugin_that_raises_on_import_is_named_and_all_else_works(call, flawed):
    code, out, _ = call("list", "encodings")
    assert code == 0
    start = out.index("\nunimportable ")  # its words go on in the lines below
    words = " ".join(out[start:].split())
    assert (
        "failed to import: ModuleNotFoundError: No module named 'no_such_module_anywhere'" in words
    )
    assert any(line.startswith("rope ") for line in out.splitlines())
    assert "failed to import: KeyboardInterrupt" in " ".join(out.split())
    code, out, _ = call("list", "tasks")
    assert code == 0
    assert "failed to import: KeyboardInterrupt" in " ".join(out.split())
    words = " ".join(out.split())
    assert "which failed to import: ModuleNotFoundError: No module named 'no_such_task'" in words
    for pe, task in (("unimportable", "copy"), ("rope", "untask"), ("halting", "halted")):
        code, out, err = call("bench", "--pe", pe, "--task", task)
        assert code == 2
        assert "failed to import" in err
        assert "Traceback" not in err


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("leaving", "leaving cannot be built: SystemExit: 0"),
        (
            "stopped",
            "'stopped:Thing', which failed to import: Stop: no licence (line 2)",
        ),
        ("numbered", "encoding 'numbered': wraps must be str | None; got 5"),
        (
            "nameless",
            "of nameless cannot be read: NameError: name 'Missing' is not defined",
        ),
        ("endless", "which failed to import: endless did not end within 0.4 s"),
    ],
)
def test_a_plugin_that_would_end_or_hang_the_command_is_named(call, flawed, tmp_path, name, words):
    where = ["--task", "copy", "--device", "cpu", "--runs", tmp_path]
    for args in (["bench", "--pe", f"{name},rope", *where], ["check", name]):
        code, out, err = call(*args)
        assert code == (1 if args[0] == "check" and name in ("leaving", "nameless") else 2)
        assert words in " ".join((out + err).split())
        assert "Traceback" not in out + err


def test_others_work_beside_plugins_that_would_end_or_hang_the_command(call, flawed, monkeypatch):
    with pytest.warns(UserWarning, match="the import of endless takes long"):
        code, out, _ = call("list", "encodings")
    assert (code, any(line.startswith("rope ") for line in out.splitlines())) == (0, True)
    code, out, _ = call("list", "tasks")
    assert (code, any(line.startswith("copy ") for line in out.splitlines())) == (0, True)
    assert "'endless', which failed to import: endless did not" in " ".join(out.split())
    code, out, err = call("explain", "copy(aligned=5)")
    assert (code, "left out: plug-in leaving: SpecError: leaving cannot" in err) == (0, True)
    assert "rope" in out
    monkeypatch.setattr("pezoo.registry.names", lambda: ["nope", *UNBUILT, "stopped", "endless"])
    code, out, _ = call("check", "--all", "--quiet")
    assert (code, "nope:\nall" in out) == (1, True)
    assert out.splitlines()[-1] == (
        f"{len(UNBUILT) + 2} of {len(UNBUILT) + 3} encodings fail: "
        + ", ".join([*UNBUILT, "stopped", "endless"])
    )


def test_ctrl_c_during_the_import_of_a_plugin_is_no_fault_of_it(flawed, monkeypatch):
    press = "import signal\nsignal.raise_signal(signal.SIGINT)"
    (flawed / "no_such_module_anywhere.py").write_text(press)
    usual = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with pytest.raises(KeyboardInterrupt):
            registry.entries()["unimportable"].load()
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    finally:
        signal.signal(signal.SIGINT, usual)


def test_a_plugin_that_leaves_amid_a_command_is_one_message(call, flawed, monkeypatch):
    scope = {}
    exec(compile("def leave(*_): raise SystemExit(0)", "/site/plug.py", "exec"), scope)
    monkeypatch.setattr("pezoo.encodings.nope.NoPE.embed", scope["leave"])
    where = ["--task", "copy", "--device", "cpu", "--dry-run"]
    code, _, err = call("bench", "--pe", "nope", *where)
    assert (code, err.splitlines()[-1]) == (2, "Error: SystemExit: 0 (plug.py:1 in leave)")


@pytest.mark.parametrize(
    ("pe", "task", "words"),
    [
        ("tableless", "copy", "tableless on copy cannot be built: OSError: the table is not there"),
        ("shapeless", "copy", "takes 1 positional argument but 2 were given"),
        ("rope", "unmade", "task 'unmade', flawed:unmade, cannot be made: KeyError: 'vocabulary'"),
    ],
)
def test_a_plugin_that_cannot_be_built_is_refused(call, flawed, tmp_path, pe, task, words):
    where = ["--device", "cpu", "--runs", tmp_path]
    code, _, err = call("bench", "--pe", pe, "--task", task, *where)
    assert code == 2
    assert words in err
    assert "Traceback" not in err


@pytest.mark.parametrize("pe", ["ideal", "ideal_sh"])
def test_an_encoding_that_reads_a_relation_which_the_task_lacks_is_refused(call, tmp_path, pe):
    where = ["--device", "cpu", "--runs", tmp_path]
    code, _, err = call("bench", "--pe", pe, "--task", "ngram_copy", *where)
    assert code == 2
    assert f"{pe} cannot run on ngram_copy: " in err


@pytest.mark.parametrize(
    ("setting", "words"),
    [
        ("train.lr=1e30", "a number among the settings is not finite"),
        ("train.clip=inf", "train.clip: Input should be a finite number"),
        ("name=my protocol", "protocol: String should match pattern"),
        (f"description={'x' * 2100}", "provenance.command: String should have at most 2000"),
        ("description=a\x07b", "provenance.command: holds control"),
        ("eval.lengths=[]", "eval.lengths: Tuple should have at least 1"),
        ("eval.lengths=[10,10]", "record: scores name a length twice"),
        ("train.lengths=[1,999999999]", "train.lengths.1: Input should be less than"),
        ("train.steps=1e9", "train.steps 1000000000 and eval.every 250 make"),
        (f"seeds='{2**63}'", "seed: Input should be less than"),
    ],
)
def test_what_no_record_can_hold_is_found_before_training(call, tmp_path, setting, words):
    args = ["bench", "--pe", "nope", "--task", "copy", "--device", "cpu", "--runs", tmp_path]
    code, _, err = call(*args, *sets(setting))
    assert code == 2
    assert words in " ".join(err.split())
    assert not list(tmp_path.iterdir())


def test_what_no_record_can_say_of_a_sweep_is_found_before_it(call, tmp_path):
    args = ["bench", "--pe", "nope", "--task", "copy", "--device", "cpu", "--runs", tmp_path]
    code, _, err = call(*args, "--tune", "lr=1e-3,3e-3", "--tune-seeds", "100-1100")
    assert code == 2
    assert "--tune asks for 2,002 runs of each encoding" in " ".join(err.split())
    assert not list(tmp_path.iterdir())


def test_more_threads_than_a_process_survives_are_refused(call, tmp_path, monkeypatch):
    args = ["bench", "--pe", "nope", "--task", "copy", "--device", "cpu", "--runs", tmp_path]
    monkeypatch.setenv("OMP_NUM_THREADS", "20000")
    code, _, err = call(*args)
    assert (code, "OMP_NUM_THREADS is 20000: expected at most 1024" in err) == (2, True)


def test_names_that_are_checked_without_torch():
    for device in DEVICES[1:]:
        assert torch.device(device).type == device


WORDS = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=40)


def refusal(call):
    """The message with which it is refused, or None; any other exception is a fault."""
    try:
        call()
    except ValueError as error:
        return str(error)


GIVEN = {"pe": "rope", "task": "copy", "protocol": "quick", "seeds": "0", "set": "train.lr=1"}
GIVEN |= {"device": "cpu", "attention": "auto"}


@settings(max_examples=200, suppress_health_check=list(HealthCheck))
@given(place=st.sampled_from([*GIVEN]), text=WORDS)
@example(place="protocol", text="x" * 5000)
@example(place="protocol", text="/")
def test_a_command_line_is_right_or_refused_with_a_message(place, text):
    asked, (*words, setting, device, attention) = [], (GIVEN | {place: text}).values()
    message = refusal(
        lambda: asked.append(
            parse_request(*words, (setting,)).configs(check_device(device), attention)
        )
    )
    assert message or asked[0]


VALUES = st.one_of(
    st.integers(-(10**9), 10**9),
    st.floats(),
    st.booleans(),
    WORDS,
    st.lists(st.integers(-3, 50), max_size=3),
    st.just({}),
)


@settings(max_examples=100, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_a_protocol_is_right_or_refused_with_a_message(tmp_path_factory, data):
    lines = []
    for line in open_protocol().splitlines():
        key, equals, _ = line.partition(" = ")
        if equals and data.draw(st.integers(0, 9)) == 0:
            line = f"{key} = {toml(data.draw(VALUES))}"
        lines.append(line)
    path = tmp_path_factory.mktemp("protocols") / "mine.toml"
    path.write_text("\n".join(lines), encoding="utf-8")
    message = refusal(lambda: load_protocol(str(path)))
    assert message is None or str(path) in message


def open_protocol():
    from experiment.protocol import PROTOCOLS

    name = protocol_names()[0]
    return (PROTOCOLS / f"{name}.toml").read_text(encoding="utf-8")


def toml(value):
    return (
        "{}" if value == {} else json.dumps(value).replace("NaN", "nan").replace("Infinity", "inf")
    )


@settings(max_examples=50, suppress_health_check=list(HealthCheck))
@given(content=st.binary(max_size=60))
def test_a_file_that_is_no_protocol_is_refused(tmp_path_factory, content):
    path = tmp_path_factory.mktemp("protocols") / "mine.toml"
    path.write_bytes(content)
    with pytest.raises(ConfigError, match="protocol"):
        load_protocol(str(path))
