"""`pezoo perf --harness`: whole steps, and another implementation beside them."""

import json
from dataclasses import replace

import pytest
import torch

from harness.perf import measure
from harness.perf.measure import reference
from harness.settings.protocol import load_protocol, resolve
from pezoo.spec import parse

SMALL = ("model.width=16", "model.heads=2", "train.batch=3")
WORDS = [word for text in SMALL for word in ("--set", text)]


def config(encoding="rope", sets=SMALL, task="copy"):
    return resolve(load_protocol("quick", sets), task, parse(encoding), 0, "cpu", "auto")


def test_the_reference_is_for_its_own_sizes_alone():
    known = reference()
    assert known.cpu_seconds == {
        "nope": 1.24, "rope": 1.33, "relative": 1.66, "randomized:relative": 1.69
    }  # fmt: skip
    same = config("relative", known.settings)
    assert known.of(same, 40) == 1.66
    assert known.of(same, 39) is None
    assert known.of(config("alibi", known.settings), 40) is None
    assert known.of(config("relative", known.settings, "reverse"), 40) is None
    assert known.of(same.model_copy(update={"device": "cuda"}), 40) is None
    for other in ("model.layers=4", "model.heads=4", "model.width=128", "train.batch=64"):
        assert known.of(config("relative", (*known.settings, other)), 40) is None


def test_a_turn_is_one_step_at_the_length(monkeypatch):
    candidate = measure.Candidate(config(), 7)
    lengths = []
    draw = candidate.trainer.draw
    monkeypatch.setattr(candidate.trainer, "draw", lambda: lengths.append(draw()) or lengths[-1])
    before = torch.nn.utils.parameters_to_vector(candidate.trainer.model.parameters()).clone()
    taken = candidate.step()
    after = torch.nn.utils.parameters_to_vector(candidate.trainer.model.parameters())
    assert (before != after).any()
    candidate.turn_to(9)
    candidate.step()
    assert [length for _, length in lengths] == [7, 9]
    assert candidate.trainer.step == 2
    assert min(taken.values()) > 0


def test_the_first_step_at_a_length_is_charged_for_what_it_alone_takes(monkeypatch):
    candidate = measure.Candidate(config(), 7)
    seen = set()

    def step():
        length = candidate.trainer.config.train.lengths[0]
        first, _ = length not in seen, seen.add(length)
        return {"step": 9.0, "cpu": 2.0 + first * length}

    monkeypatch.setattr(candidate, "step", step)
    assert candidate.first_steps() == 5  # of lengths 4, 5 and 6


class Fake:
    def __init__(self, config, length):
        self.config, self.length = config, length
        self.factor = {"rope": 1.0, "nope": 0.5}[config.label]
        self.turns = 0

    def step(self):
        self.turns += 1
        cpu = (1.5 if self.turns % 2 else 2) * self.factor
        return {"step": 4 * self.factor, "cpu": cpu, "data": 0.1}

    def first_steps(self):
        return 4.0


def test_a_row_by_hand(monkeypatch):
    monkeypatch.setattr(measure, "Candidate", Fake)
    known = replace(reference(), length=5, batch=3, model={"width": 16})
    report = measure.measure([config("rope"), config("nope")], 5, 3, "rope", known)
    rope, nope = report.rows
    assert nope["step_ms"] == 2000
    assert nope["step_ratio"] == 0.5
    assert nope["models_x_steps_per_s"] == 0.5
    assert (nope["cpu_s"], nope["cpu_s_least"]) == (1, 0.75)
    assert nope["data_share"] == 0.05
    assert nope["cpu_s_new_length"] == 4
    assert (nope["reference_cpu_s"], nope["times_cheaper"]) == (1.24, 1.24)
    assert rope["times_cheaper"] == pytest.approx(1.33 / 2)


def test_the_command(call):
    code, out, err = call("perf", "--harness", *WORDS, "--length", "6", "--repeats", "1",
                          "--pe", "nope", "--format", "json")  # fmt: skip
    assert code == 0, err
    found = json.loads(out)
    assert [row["encoding"] for row in found["rows"]] == ["rope", "nope"]
    settings = {"layers": 5, "width": 16, "batch": 3, "length": 6}
    assert found["settings"].items() >= settings.items()
    assert "randomized-encodings paper" in found["settings"]["reference"]
    for row in found["rows"]:
        assert row["cpu_s"] > 0
        assert row["reference_cpu_s"] is row["times_cheaper"] is None
