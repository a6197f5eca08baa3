"""What a record says is held against the encodings and the tasks themselves."""

import json
from pathlib import Path

import pytest

import leaderboard
from experiment.config import ConfigError
from harness.settings.made import _versions, refusals
from leaderboard.record.read import Record

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
        f"scores.last, length {length}: {TASK} has instances of this length, "
        "the status is no instance"
    )


def test_an_instance_that_the_task_lacks_can_only_be_missing(raw):
    even = raw["scores"]["last"][-1]["length"] + 1
    raw["scores"]["last"][-1]["length"] = raw["config"]["eval"]["lengths"][-1] = even
    (reason,) = refusals(Record.of(raw))
    assert reason.endswith(f"{TASK} has no instance of this length, the status is ok")
    assert [*refusals(Record.of(without_instances(raw, -1, even)))] == []


def committed(folder):
    return json.loads(min((RECORDS.parent / folder).glob("*.json")).read_text())


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"token": 0.0}, "token=0.0 of 1408 tokens, but "),
        ({"token": 0.5}, "right ones of 128 answers give "),
        ({"token": 1.0}, "right ones of 128 answers give "),
        ({"token": 0.0, "tokens": None}, "token=0.0, but "),
        ({"token": 1.0, "tokens": None}, "token=1.0, but "),
        ({"token": 0.75, "tokens": 128 * 12}, "1536 tokens in 128 answers: each has at most 11"),
        ({"count": 105, "exact": 1.0}, "105 examples, but the settings give 128"),
    ],
)
def test_scores_fit_the_examples_and_their_tokens(changes, words):
    raw = committed("quick/copy/alibi")
    score = raw["scores"]["best"][0]
    assert (score["correct"], score["tokens"]) == (105, 1408)
    score |= changes
    (reason,) = refusals(Record.of(raw))
    assert reason.startswith("scores.best, length 10: ")
    assert words in reason


def test_chance_is_that_of_the_task(raw):
    (reason,) = refusals(Record.of(raw | {"chance": 0.99}))
    assert reason == f"chance is 0.99, but {TASK} has 0.2"


@pytest.mark.parametrize(("encoding", "has"), [("rope", 0), ("prism", 82364), ("learned", 1408)])
def test_an_encoding_has_the_parameters_that_it_is_built_with(encoding, has):
    raw = committed(f"quick/copy/{encoding}")
    assert [*refusals(Record.of(raw))] == []
    raw["cost"]["encoding_parameters"] += 1
    (reason,) = refusals(Record.of(raw))
    assert reason == f"cost.encoding_parameters is {has + 1}, but {encoding} has {has}"


@pytest.mark.parametrize(("encoding", "refused"), [("nope", True), ("learned", False)])
def test_only_a_limited_encoding_cannot_represent_a_length(encoding, refused):
    raw = committed(f"quick/copy/{encoding}")
    for scores in raw["scores"].values():
        scores[1] = {"length": 11, "seen": False, "status": "cannot represent"}
    reasons = [*refusals(Record.of(raw))]
    says = ['scores have "cannot represent", but nope represents every length']
    assert reasons == (says if refused else [])


def test_the_settings_of_a_changed_protocol_are_those_of_the_command():
    raw = json.loads(min((RECORDS.parent / "quick+af9ba2").rglob("*.json")).read_text())
    assert [*refusals(Record.of(raw))] == []
    command = raw["provenance"]["command"]
    raw["provenance"]["command"] = command.replace("steps=1200", "steps=1300")
    (reason,) = refusals(Record.of(raw))
    assert reason == "the settings of protocol quick+af9ba2 are not those that the command makes"
    raw["provenance"]["command"] = command.replace("train.steps", "train.setps")
    (reason,) = refusals(Record.of(raw))
    assert reason.startswith("the command cannot run: unknown setting in train 'setps'")


def test_an_override_that_an_earlier_version_cannot_take():
    new = ("eval.curve_lengths=[11]",)  # not among the lengths of the first version
    assert {one.name.partition("+")[0] for one in _versions("quick", new)} == {"quick"}
    with pytest.raises(ConfigError, match="curve_lengths has 12, which is not among lengths"):
        _versions("quick", ("eval.curve_lengths=[12]",))


def test_a_protocol_has_no_versions_of_another_whose_name_begins_alike():
    names = {one.name.partition("+")[0] for one in _versions("ruoss2023", ("train.lr=0.5",))}
    assert names == {"ruoss2023"}
