"""What a release says of itself: versions in the CHANGELOG, workflows that name what exists."""

import re
from pathlib import Path

import pytest
import yaml

import pezoo
from harness.cli.main import COMMANDS
from harness.settings.catalog import read_catalog
from pezoo.registry import entries

ROOT = Path(__file__).parents[1]
WORKFLOWS = sorted((ROOT / ".github").rglob("*.yml"))


def test_the_changelog_names_every_version_above_one():
    text = (ROOT / "CHANGELOG.md").read_text("utf-8").partition("### Versions of")[2]
    known, own = read_catalog(), entries().items()
    found = {name: getattr(pezoo, entry.cls).version for name, entry in own if entry.cls}
    found |= {name: known.task_version(name) for name in known.tasks}
    later = {name: version for name, version in found.items() if version > 1}
    assert {name: int(n) for name, n in re.findall(r"`(\w+)` (\d+)", text)} == later


def test_the_citation_has_the_version():
    cited = yaml.safe_load((ROOT / "CITATION.cff").read_text("utf-8"))
    assert str(cited["version"]) == pezoo.__version__


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_workflows_are_pinned_and_name_what_exists(path):
    text = path.read_text("utf-8")
    assert yaml.safe_load(text)
    for action in re.findall(r"uses: (\S+)", text):
        assert re.fullmatch(r"[\w-]+/[\w-]+@v\d+\.\d+\.\d+", action), action
    for script in re.findall(r"\.ci/\w+", text):
        assert (ROOT / script).stat().st_mode & 0o100, script
    assert set(re.findall(r"\bpezoo (\w+)", text)) <= {*COMMANDS}
