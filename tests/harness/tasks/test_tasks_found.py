"""A file of one's own in the folder of tasks that is not yet right."""

import sys

import pytest

from harness import tasks
from harness.cli.listing import _tasks

TEXT = """
from harness.tasks.base import Task

class Mine(Task):
    name = "{name}"
"""


@pytest.fixture
def mine(tmp_path, monkeypatch):
    """Write mine.py, whose class has this name."""

    def write(name):
        (tmp_path / "mine.py").write_text(TEXT.format(name=name))
        monkeypatch.setattr("harness.tasks.__path__", [str(tmp_path), *tasks.__path__])
        monkeypatch.setattr(tasks, "_homes", lambda: {"mine": "harness.tasks.mine"})

    yield write
    del sys.modules["harness.tasks.mine"]


def test_a_class_of_another_name(mine):
    mine("mien")
    with pytest.raises(ValueError, match=r"tasks/mine.py holds no Task .* there: 'mien'"):
        tasks.make("mine")


def test_a_task_without_words_is_listed(mine):
    mine("mine")
    assert _tasks() == [["mine", "", ""]]


def test_an_entry_point_of_another_name(monkeypatch):
    monkeypatch.setattr(tasks, "_homes", lambda: {"backwards": "harness.tasks.reverse:Reverse"})
    with pytest.raises(ValueError, match=r"backwards = .* has another name than its class, 'rev"):
        tasks.make("backwards")
