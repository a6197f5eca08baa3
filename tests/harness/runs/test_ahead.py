"""Settings that a task cannot serve are refused before training."""

import pytest
from soak import SETTINGS

from harness.runs.run import draw_all, execute
from harness.settings.protocol import load_protocol, resolve
from harness.tasks.base import TaskError
from pezoo.spec import parse

# Goes right over ones, and halts behind the first blank: n + 1 steps at most.
WALK = """
states = ["go", "done"]
symbols = ["0", "1", "_"]
final = ["done"]
max_steps = [{steps}]
[transitions.go]
0 = ["0", "R", "go"]
1 = ["1", "R", "go"]
_ = ["_", "R", "done"]
"""


@pytest.fixture
def config_of(tmp_path, monkeypatch):
    def make(machine, *settings):
        monkeypatch.chdir(tmp_path)
        (tmp_path / "walk.toml").write_text(machine)
        protocol = load_protocol("quick", (*SETTINGS, *settings))
        task = "turing_machine(file=walk.toml,steps=0)"
        return resolve(protocol, task, parse("rope"), 0, "cpu", "auto")

    return make


def test_a_machine_that_does_not_halt_at_a_test_length_fails_before_training(config_of, tmp_path):
    config = config_of(WALK.format(steps=8), "eval.lengths=[6, 8]")
    record = execute(config, tmp_path, "test", lambda event: None)
    assert record.status == "failed"
    assert "has not halted after 8 steps" in record.reason
    assert record.learning == []
    assert not [*tmp_path.rglob("ckpt-*")]


@pytest.mark.parametrize("steps", [3, 5])
def test_so_does_one_at_a_training_length(steps, config_of):
    with pytest.raises(TaskError, match=f"not halted after {steps} steps"):
        draw_all(config_of(WALK.format(steps=steps), "eval.lengths=[1, 2]"))


def test_the_test_set_itself_is_drawn_so_that_no_rare_input_is_missed(config_of):
    machine = WALK.format(steps=6).replace('0 = ["0", "R", "go"]', '0 = ["0", "R", "done"]')
    some = ("eval.lengths=[6]", "eval.samples=500", "eval.max_tokens=100_000")
    with pytest.raises(TaskError, match="1 1 1 1 1 1"):  # only 111111 takes 7 steps
        draw_all(config_of(machine, *some))
