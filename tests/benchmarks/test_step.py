"""The script that compares a training step in two checkouts."""

from pathlib import Path

import pytest
import step
from click.testing import CliRunner

ROOT = str(Path(__file__).parents[2])


@pytest.mark.slow
def test_a_checkout_beside_itself(monkeypatch):
    monkeypatch.setattr(step, "STEPS", 1)
    small = "--pe nope --rounds 1 --set model.width=16 --set model.heads=2 --set train.batch=2"
    done = CliRunner().invoke(step.main, [ROOT, ROOT, *small.split()])
    assert done.exit_code == 0, done.output
    name, before, after, ratio = done.output.split()
    assert name == "nope"
    assert float(ratio) == pytest.approx(float(after) / float(before), rel=0.05)  # as rounded
