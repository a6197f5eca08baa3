"""Records with settings that no run has, and many records."""

import re
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest

from harness.settings.catalog import read_catalog
from leaderboard.record.check import check as check_records

check = partial(check_records, catalog=read_catalog())
MANY = Path(__file__).parents[2] / "benchmarks" / "many_records.py"


@pytest.mark.slow
def test_five_thousand_records_are_built_in_seconds_and_little_memory(tmp_path):
    words = [sys.executable, MANY, "--records", "5000", "--root", tmp_path]
    out = subprocess.run(words, capture_output=True, text=True, check=True).stdout
    count, cpu, _, peak = map(float, re.findall(r"[\d.]+\b", out))
    assert count == 5000
    assert cpu < 20  # 8 on an idle core; a core that is shared needs more
    assert peak < 250
