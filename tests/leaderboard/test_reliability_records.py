"""Records with settings that no run has, and many records."""

import json
import re
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest

from harness.settings.catalog import read_catalog
from leaderboard.record.check import check as check_records
from leaderboard.record.read import RECORDS, load

check = partial(check_records, catalog=read_catalog())
MANY = Path(__file__).parents[2] / "benchmarks" / "many_records.py"


NONSENSE = {
    ("train", "steps"): "4000",
    ("train", "lr"): "0.002",
    ("train", "lengths"): [10],
    ("eval", "samples"): None,
    ("eval", "every"): 0,
    ("model", "width"): -64,
    ("model", "heads"): 3,
}


@pytest.mark.parametrize("place", NONSENSE)
def test_settings_that_no_run_has_are_refused_by_name(place, tmp_path):
    record = json.loads(next(RECORDS.glob("quick/copy/rope/*.json")).read_text())
    part, name = place
    record["config"][part][name] = NONSENSE[place]
    (tmp_path / "a.json").write_text(json.dumps(record))
    (line,) = check([tmp_path]).refused
    assert f"config.{part}" in line
    assert name in line
    records, (problem,) = load([tmp_path])
    assert (records, f"config.{part}" in problem) == ([], True)


def test_what_a_record_holds_follows_from_its_settings(tmp_path):
    record = json.loads(next(RECORDS.glob("quick/copy/rope/*.json")).read_text())
    record["learning"] = record["learning"][-1:]
    record["scores"]["last"][0] |= {"count": 10**9, "correct": 0, "exact": 0.0}
    (tmp_path / "a.json").write_text(json.dumps(record))
    (line,) = check([tmp_path]).refused
    assert "learning needs a point every 250 steps: 8, was 1" in line
    assert "1000000000 examples of at most 128" in line


@pytest.mark.slow
def test_five_thousand_records_are_built_in_seconds_and_little_memory(tmp_path):
    words = [sys.executable, MANY, "--records", "5000", "--root", tmp_path]
    out = subprocess.run(words, capture_output=True, text=True, check=True).stdout
    count, cpu, _, peak = map(float, re.findall(r"[\d.]+\b", out))
    assert count == 5000
    assert cpu < 20  # 8 on an idle core; a core that is shared needs more
    assert peak < 250
