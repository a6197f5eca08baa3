"""Logs hold the numbers of the run's events and record: their files are read back."""

import json
import struct
from pathlib import Path

import pytest

from experiment.config import ConfigError
from harness.runs import logs
from harness.runs.logs import Logs
from harness.settings.protocol import load_protocol, resolve
from harness.training.optimiser import rate
from leaderboard.record.read import RECORDS, read
from pezoo.spec import parse


def read_tensorboard(folder: Path, run: str) -> dict:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    (own,) = (folder / "logs" / "tensorboard").glob(f"*{run}")
    events = EventAccumulator(str(own)).Reload()
    tags = events.Tags()["scalars"]
    return {(tag, one.step): one.value for tag in tags for one in events.Scalars(tag)}


def read_wandb(folder: Path, run: str) -> dict:
    """The offline file: after 7 bytes, records in blocks of 32 KiB, as LevelDB's log has them."""
    from wandb.proto.wandb_internal_pb2 import Record

    (path,) = (folder / "logs" / "wandb").glob(f"offline-*/run-{run}.wandb")
    data, at, whole, found = path.read_bytes(), 7, b"", {}
    while at + 7 <= len(data):
        if 32768 - at % 32768 < 7:
            at += 32768 - at % 32768
        size, kind = struct.unpack("<xxxxHB", data[at : at + 7])
        whole, at = whole + data[at + 7 : at + 7 + size], at + 7 + size
        if kind in (1, 4):  # the whole record, or its last part
            record, whole = Record.FromString(whole), b""
            row = {
                item.key or item.nested_key[0]: json.loads(item.value_json)
                for item in record.history.item
            }
            place = row.get("step", row.get("length"))
            found |= {(key, place): value for key, value in row.items() if "/" in key}
    return found


def read_trackio(folder: Path, run: str) -> dict:
    from trackio.sqlite_storage import SQLiteStorage

    (name,) = (n for n in SQLiteStorage.get_runs(logs.PROJECT) if n.endswith(run[:8]))
    rows = SQLiteStorage.get_logs(logs.PROJECT, name)
    return {(key, row["step"]): row[key] for row in rows for key in row if "/" in key}


READERS = {"tensorboard": read_tensorboard, "wandb": read_wandb, "trackio": read_trackio}


@pytest.fixture
def local(monkeypatch, tmp_path):
    monkeypatch.setenv("TRACKIO_DIR", str(tmp_path / "trackio"))
    for name in ("WANDB_MODE", "WANDB_PROJECT"):
        monkeypatch.delenv(name, raising=False)


def expected(record) -> dict:
    """What the log of a whole run holds, but for steps per second."""
    train, found = record.config.train, {}
    for point in record.learning:
        found["train/loss", point.step] = point.loss
        found["train/learning_rate", point.step] = train.lr * rate(train, point.step - 1)
        found["validation/exact", point.step] = point.exact
    for row in record.scores.last:
        found["test/exact", row.length], found["test/token", row.length] = row.exact, row.token
    seconds, last = record.cost.train_seconds, train.steps
    found["train/seconds", last] = seconds
    found["train/tokens_per_second", last] = record.cost.tokens / seconds
    return found


@pytest.mark.parametrize("kind", logs.KINDS)
def test_the_files_hold_what_the_events_say(local, tmp_path, kind):
    pytest.importorskip(kind)
    paths = sorted(RECORDS.rglob("quick/copy/**/*.json"))[:2]
    records = [read(path) for path in paths]
    configs = [record.config for record in records]
    with Logs([kind], configs, ["rope · copy", "nope · copy"], tmp_path) as opened:
        for step in (33, 1003):  # of two runs at once
            for run, record in enumerate(records):
                before = [p.exact for p in record.learning if p.step < step]  # none or some
                event = {"step": step, "loss": 2.5 + run, "rate": 9.0}
                opened.update(run, event | {"exact": before[-1] if before else None})
        for run, record in enumerate(records):
            opened.update(run, {"record": record})
    for run, record in enumerate(records):
        train, want = record.config.train, expected(record)
        for step in (33, 1003):
            want["train/loss", step], want["train/steps_per_second", step] = 2.5 + run, 9.0
            want["train/learning_rate", step] = train.lr * rate(train, step - 1)
        assert READERS[kind](tmp_path, record.run) == pytest.approx(want)  # TensorBoard: float32


def test_names_are_checked_before_anything_runs(call, monkeypatch, tmp_path):
    args = ["bench", "--pe", "nope", "--task", "copy", "--runs", tmp_path, "--log"]
    code, _, err = call(*args, "tensorbord")
    assert (code, err.count("\n")) == (2, 1)
    assert "did you mean tensorboard?" in err
    monkeypatch.setattr(logs, "find_spec", lambda name: None)
    code, _, err = call(*args, "wandb")
    assert (code, err.count("\n")) == (2, 2)
    assert "pip install 'pezoo[wandb]'" in err
    assert not any(tmp_path.iterdir())


def test_a_folder_named_wandb_is_no_package(monkeypatch, tmp_path):
    (tmp_path / "wandb_").mkdir()
    monkeypatch.setitem(logs.KINDS, "wandb_", logs.Wandb)
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ConfigError, match="needs a package"):
        logs.check(["wandb_"])


def test_a_log_that_fails_is_left_with_a_warning(monkeypatch, tmp_path):
    class Full:
        def __init__(self, *_):
            raise OSError("No space left on device")

    monkeypatch.setitem(logs.KINDS, "wandb", Full)
    config = resolve(load_protocol("quick", ()), "copy", parse("rope"), 0, "cpu", "auto")
    event = {"step": 9, "of": 99, "loss": 1.0, "rate": 9.0, "exact": None}
    with Logs(["wandb"], [config], ["rope"], tmp_path) as opened:
        with pytest.warns(UserWarning, match="--log wandb stopped: No space left"):
            opened.update(0, event)
        opened.update(0, event | {"step": 10})  # says nothing more
