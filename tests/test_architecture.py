"""Imports run one way, between the packages, between the rooms of a package and between files.

Imports inside functions count, and so do those for type checking alone.
"""

import ast
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKAGES = ("pezoo", "experiment", "leaderboard", "harness")
# What is further right may import what is further left.
ROOMS = (
    *("pezoo", "experiment"),
    *("leaderboard.escape", "leaderboard.processes", "leaderboard.record", "leaderboard.catalog"),
    *("leaderboard.check", "leaderboard.stats", "leaderboard", "leaderboard.text"),
    *("leaderboard.charts", "leaderboard.papers", "leaderboard.render", "leaderboard.build"),
    *("harness.turing", "harness.theory", "harness.tasks"),
    *("harness.settings", "harness.data", "harness.model", "harness.training", "harness.runs"),
    *("harness.perf", "harness.engine", "harness.show", "harness.extend"),
    *("harness.cli", "harness.__main__"),
)


def _files():
    found = {}
    for package in PACKAGES:
        for path in (ROOT / package).rglob("*.py"):
            parts = path.relative_to(ROOT).with_suffix("").parts
            found[".".join(parts).removesuffix(".__init__")] = path
    return found


FILES = _files()


def imported(text):
    """The modules of the three packages that a file's text imports."""
    names = set()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert not node.level, "imports are written from the package on"
            inside = {f"{node.module}.{alias.name}" for alias in node.names}
            names |= {name if name in FILES else node.module for name in inside}
    return names & FILES.keys()


@cache
def imports():
    return {name: imported(path.read_text("utf-8")) - {name} for name, path in FILES.items()}


MOST_LINES = 42_080  # a higher number needs an entry in docs/decisions


def test_the_source_stays_small():
    lines = sum(len(path.read_text("utf-8").splitlines()) for path in FILES.values())
    assert lines <= MOST_LINES, lines


def room(module):
    parts = module.split(".")
    return ".".join(parts[:2]) if parts[0] in ("harness", "leaderboard") else parts[0]


def test_no_file_imports_itself_through_others():
    try:
        TopologicalSorter(imports()).prepare()
    except CycleError as error:
        pytest.fail(f"files import each other: {' <- '.join(error.args[1])}")


def test_imports_between_rooms_run_one_way():
    wrong = [
        f"{name} imports {other}"
        for name, others in imports().items()
        for other in others
        if name != "harness" and ROOMS.index(room(name)) < ROOMS.index(room(other))
    ]
    assert not wrong


def height(module, package):
    """How many files of a package stand on each other, up to this one."""
    below = [name for name in imports()[module] if name.startswith(package)]
    return 1 + max((height(name, package) for name in below), default=0)


@pytest.mark.parametrize(
    ("package", "most"), [("leaderboard.charts.", 2), ("leaderboard.render.", 3)]
)
def test_charts_and_pages_have_few_floors(package, most):
    assert max(height(name, package) for name in FILES if name.startswith(package)) <= most


def test_the_check_sees_every_kind_of_import():
    text = """
import pezoo.spec
from pezoo import registry
from harness.runs import cost, folder
if TYPE_CHECKING:
    from pezoo.base import Encoding
def function():
    from leaderboard.record.read import Record
    import torch
"""
    assert imported(text) == {
        *("pezoo.spec", "pezoo.registry", "harness.runs.cost", "harness.runs.folder"),
        *("pezoo.base", "leaderboard.record.read"),
    }
