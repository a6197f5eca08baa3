"""The script that compares a training step in two checkouts."""

from pathlib import Path

import pytest
import step
from click.testing import CliRunner

ROOT = str(Path(__file__).parents[2])


@pytest.mark.slow
def test_a_checkout_beside_itself():
    done = CliRunner().invoke(step.main, [ROOT, ROOT, "--pe", "nope", "--rounds", "1"])
    assert done.exit_code == 0, done.output
    name, before, after, ratio = done.output.split()
    assert name == "nope"
    assert float(ratio) == pytest.approx(float(after) / float(before), abs=0.01)
