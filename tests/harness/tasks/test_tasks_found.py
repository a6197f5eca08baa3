"""A contributed file in the folder of tasks that has an error."""

import sys

import pytest
import torch

from harness import tasks
from harness.cli import listing

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
        monkeypatch.setattr("harness.tasks.__path__", [str(tmp_path)])
        tasks.locations.cache_clear()

    tasks.make("copy")  # imports the base class while the folder of tasks is there
    yield write
    tasks.locations.cache_clear()
    sys.modules.pop("harness.tasks.mine", None)


def test_a_file_with_a_named_class_is_a_task_and_no_other(mine, tmp_path):
    assert {"copy", "turing_sgd"} <= {*tasks.names()}
    assert not {"base", "grids", "turing_products"} & {*tasks.names()}
    (tmp_path / "helpers.py").write_text("name = 'x'\n\ndef make():\n    return 1\n")
    mine("mine")
    assert tasks.locations() == {"mine": "harness.tasks.mine:Mine"}


def test_a_file_that_cannot_be_read_is_named(mine):
    mine("mine", "def :")
    with pytest.raises(ValueError, match="SyntaxError"):
        tasks.make("mine")


@pytest.mark.parametrize(
    ("place", "words"),
    [("math:pi", "not a subclass"), ("harness.tasks.reverse:Reverse", "make the names equal")],
)
def test_a_wrong_entry_point_is_named(monkeypatch, place, words):
    monkeypatch.setattr(tasks, "locations", lambda: {"mine": place})
    with pytest.raises(ValueError, match=words):
        tasks.make("mine")


def test_two_tasks_of_one_name_are_an_error(mine, tmp_path):
    (tmp_path / "other.py").write_text(TEXT.format(name="mine", more=""))
    mine("mine")
    with pytest.raises(ValueError, match=r"mine\.py and .*other\.py"):
        tasks.names()


def test_a_task_without_words_is_listed(mine):
    mine("mine")
    (found,) = listing.task("mine")
    assert found.pop("name") == "mine"
    assert set(found.values()) == {""}


@pytest.mark.parametrize("chance", ["7", "-0.1", "'a tenth'", "float('nan')"])
def test_a_chance_that_is_no_share(mine, chance):
    mine("mine", f"chance = {chance}")
    with pytest.raises(ValueError, match="chance"):
        tasks.make("mine")


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
        ("odds_frist(symbols=2)", "odds_first"),
        ("odds_first(symbls=2)", "did you mean symbols"),
        ("odds_first(symbols=two)", "int"),
        ("odds_first(symbols=11)", "symbols"),
        ("odds_first(symbols=2):copy", "cannot wrap"),
        ("addition(symbols=2)", "unknown option of addition"),
        ("copy(", "unbalanced parentheses"),
    ],
)
def test_wrong_options_of_a_task(text, words):
    with pytest.raises(ValueError, match=words):
        tasks.make(text)
