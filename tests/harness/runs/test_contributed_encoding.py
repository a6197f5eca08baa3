"""The encoding in the README, word for word, as a package."""

import re
import tomllib
from pathlib import Path

import pytest

from harness.runs.run import execute
from harness.settings.protocol import parse_request
from pezoo import registry
from pezoo.testing import CHECKS

ROOT = Path(__file__).parents[3]


@pytest.fixture
def installed(tmp_path, monkeypatch):
    """The README's encoding is a module, the TOML of CONTRIBUTING.md its entry points."""
    text = (ROOT / "README.md").read_text("utf-8").partition("### Add an encoding")[2]
    code = re.search(r"^```python\n(.*?)^```", text, re.M | re.S)[1]
    text = (ROOT / "CONTRIBUTING.md").read_text("utf-8")
    settings = tomllib.loads(re.search(r"^```toml\n(.*?)^```", text, re.M | re.S)[1])
    ((group, points),) = settings["project"]["entry-points"].items()
    ((name, home),) = points.items()
    folder = tmp_path / "site" / "theirs-1.0.dist-info"
    folder.mkdir(parents=True)
    (folder / "METADATA").write_text("Name: theirs\nVersion: 1.0\n")
    (folder / "entry_points.txt").write_text(f"[{group}]\n{name} = {home}\n")
    (tmp_path / "site" / f"{home.partition(':')[0]}.py").write_text(code)
    monkeypatch.syspath_prepend(tmp_path / "site")
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    registry.entries.cache_clear()
    yield name
    registry.entries.cache_clear()


TINY = (
    *("train.steps=60", "train.warmup=5", "train.lr=0.01", "train.batch=8", "train.curriculum=[]"),
    *("model.width=16", "model.heads=2", "eval.every=20", "eval.lengths=[10,20]"),
    *("eval.samples=4", "eval.min_samples=4", "eval.validation_samples=1"),
)


def test_it_is_checked_trained_and_evaluated_as_it_stands(installed, call, tmp_path):
    code, out, _ = call("check", installed)
    assert (code, out.count("ok ")) == (0, len(CHECKS)), out
    (config,) = parse_request(installed, "copy", "quick", "0", TINY).configs("cpu", "auto")
    record = execute(config, tmp_path / "runs", "test", lambda event: None)
    assert (record.encoding, record.status) == (installed, "done"), record.reason
    assert record.learning[-1].loss < record.learning[0].loss
    assert [score.length for score in record.scores.last] == [10, 20]
