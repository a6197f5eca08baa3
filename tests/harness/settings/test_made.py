"""What a record says is held against the encodings and the tasks themselves."""

import json
from pathlib import Path

import pytest

import leaderboard
from harness.settings.made import refusals
from leaderboard.records import Record

RECORDS = Path(leaderboard.__file__).parent / "records" / "ruoss2023-mini"
TASK = "modular_arithmetic_simple"  # lengths are odd


@pytest.fixture
def raw():
    return json.loads(next((RECORDS / TASK / "rope").glob("*.json")).read_text())


def test_a_committed_record_is_not_refused(raw):
    assert [*refusals(Record.of(raw))] == []


@pytest.mark.parametrize("field", ["encoding", "task"])
def test_what_cannot_be_built_is_refused(raw, field):
    raw["config"][field] = raw[field] = f"{raw[field]}(nonsense=1)"
    (reason,) = refusals(Record.of(raw))
    assert reason.startswith("it cannot be built: ")
    assert "nonsense" in reason


def test_what_is_longer_than_in_training_is_not_seen():
    folder = RECORDS.parent / "turing2024-mini" / "turing_addition" / "rope"
    raw = json.loads(next(folder.glob("*.json")).read_text())
    for score in (score for scores in raw["sets"].values() for score in scores):
        score["seen"] = score["length"] <= 6
    found = {reason.partition(":")[0] for reason in refusals(Record.of(raw))}
    assert found == {f"{n}+n, length {length}" for n in (9, 12) for length in (4, 6)}


def without_instances(raw, at, length):
    score = raw["scores"]["last"][at]
    status = {"length": length, "status": "no instance", "seen": False}
    raw["scores"]["last"][at] = {**dict.fromkeys(score), "wrong": []} | status
    raw["config"]["eval"]["lengths"][at] = length
    return raw


def test_an_instance_that_the_task_has_cannot_be_missing(raw):
    length = raw["scores"]["last"][-1]["length"]
    (reason,) = refusals(Record.of(without_instances(raw, -1, length)))
    assert reason == (
        f"last, length {length}: {TASK} has instances of this length, the status is no instance"
    )


def test_an_instance_that_the_task_lacks_can_only_be_missing(raw):
    even = raw["scores"]["last"][-1]["length"] + 1
    raw["scores"]["last"][-1]["length"] = raw["config"]["eval"]["lengths"][-1] = even
    (reason,) = refusals(Record.of(raw))
    assert reason.endswith(f"{TASK} has no instance of this length, the status is ok")
    assert [*refusals(Record.of(without_instances(raw, -1, even)))] == []
