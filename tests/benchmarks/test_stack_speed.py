"""The benchmark of stacks measures two ways of taking the same steps."""

from stack_speed import speedup

from harness.settings.protocol import load_protocol, resolve
from pezoo.spec import parse


def test_a_stack_is_compared_with_its_runs_alone():
    small = ("model.width=16", "model.heads=2", "train.batch=4", "train.lengths=[1, 3]")
    protocol = load_protocol("quick", ("train.curriculum=[]", *small))
    runs = [resolve(protocol, "copy", parse("nope"), seed, "cpu", "auto") for seed in (0, 1)]
    assert 0.05 < speedup(runs, rounds=1) < 50
