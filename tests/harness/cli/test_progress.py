"""What runs are called while they train."""

from harness.cli.progress import names
from harness.settings.protocol import load_protocol, resolve
from pezoo.spec import parse


def test_runs_of_a_sweep_can_be_told_apart():
    protocol = load_protocol("quick", ())
    first, second = (
        resolve(protocol, "copy", parse("rope"), seed, "cpu", "auto") for seed in (0, 1)
    )
    assert names([first, second]) == ["rope · copy · seed 0", "rope · copy · seed 1"]
    train = first.train.model_copy(update={"lr": 0.003})
    faster = first.model_copy(update={"train": train})
    assert names([first, faster]) == [
        "rope · copy · seed 0 · lr 0.002",
        "rope · copy · seed 0 · lr 0.003",
    ]
    assert names([]) == []
