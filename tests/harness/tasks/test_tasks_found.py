"""A file of one's own in the folder of tasks that is not yet right."""

import sys

import pytest
import torch

from harness import tasks
from harness.cli import facts

TEXT = """
from harness.tasks.base import Task

class Mine(Task):
    name = "{name}"
    {more}
"""


@pytest.fixture
def mine(tmp_path, monkeypatch):
    """Write mine.py, whose class has this name."""

    def write(name, more=""):
        (tmp_path / "mine.py").write_text(TEXT.format(name=name, more=more))
        monkeypatch.setattr("harness.tasks.__path__", [str(tmp_path), *tasks.__path__])
        monkeypatch.setattr(tasks, "_homes", lambda: {"mine": "harness.tasks.mine"})

    yield write
    del sys.modules["harness.tasks.mine"]


def test_a_file_with_a_named_class_is_a_task_and_no_other(tmp_path):
    (tmp_path / "mine.py").write_text(TEXT.format(name="mine", more=""))
    (tmp_path / "helpers.py").write_text("name = 'x'\n\ndef make():\n    return 1\n")
    assert tasks._files(tmp_path) == {"mine": "harness.tasks.mine"}
    assert {"copy", "turing_sgd"} <= {*tasks.names()}
    assert not {"base", "digits", "turing_products"} & {*tasks.names()}


def test_a_class_of_another_name(mine):
    mine("mien")
    with pytest.raises(ValueError, match=r"tasks/mine.py holds no Task .* there: 'mien'"):
        tasks.make("mine")


def test_a_task_without_words_is_listed(mine):
    mine("mine")
    (found,) = facts.tasks()
    assert found.pop("name") == "mine"
    assert set(found.values()) == {""}


@pytest.mark.parametrize("chance", ["7", "-0.1", "'a tenth'", "float('nan')"])
def test_a_chance_that_is_no_share(mine, chance):
    mine("mine", f"chance = {chance}")
    with pytest.raises(ValueError, match="mine: chance must be a share from 0 to 1, was"):
        tasks.make("mine")


def test_an_entry_point_of_another_name(monkeypatch):
    monkeypatch.setattr(tasks, "_homes", lambda: {"backwards": "harness.tasks.reverse:Reverse"})
    with pytest.raises(ValueError, match=r"backwards = .* has another name than its class, 'rev"):
        tasks.make("backwards")


def test_options_of_a_task():
    assert tasks.make("odds_first(symbols=2)").vocab.symbols == ("0", "1", "=")
    assert tasks.make("odds_first(symbols=2)").chance == 0.5
    assert tasks.make("reverse(symbols=2)").example == "0101010=0101010"
    assert tasks.canonical("odds_first( symbols = 2 )") == "odds_first(symbols=2)"
    assert tasks.canonical("odds_first(symbols=10)") == "odds_first"
    prompt = tasks.make("multiplication(square=true)").sample(torch.Generator(), 9, 4).prompt
    assert (prompt[:, 4] == 11).all()  # "x" after four digits, in every row


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("odds_frist(symbols=2)", "did you mean odds_first"),
        ("odds_first(symbls=2)", "unknown option of odds_first 'symbls'; did you mean symbols"),
        ("odds_first(symbols=two)", "option symbols of odds_first expects int"),
        ("odds_first(symbols=11)", r"symbols must be within 2..10, was 11"),
        ("odds_first(symbols=2):copy", "a task stands alone"),
        ("addition(symbols=2)", "unknown option of addition"),
        ("copy(", "unbalanced parentheses"),
    ],
)
def test_wrong_options_of_a_task(text, words):
    with pytest.raises(ValueError, match=words):
        tasks.make(text)
