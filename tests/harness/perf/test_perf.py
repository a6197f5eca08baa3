"""`pezoo perf`: what it measures, against sums done by hand, and what it prints."""

import csv
import io
import json
import statistics
import time
from itertools import pairwise

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.perf import measure, timing
from harness.perf.memory import peak_bytes, state_bytes
from harness.settings.protocol import load_protocol, resolve
from pezoo.base import PositionError
from pezoo.registry import names
from pezoo.spec import parse

SMALL = ("model.width=16", "model.heads=2", "train.batch=3")
TINY = ["--repeats", "2", *(word for text in SMALL for word in ("--set", text))]
PAGE = 4096  # tensors this large are never packed together
seconds = st.floats(1e-6, 1e3)


def config(encoding, *, sets=SMALL, task="copy"):
    return resolve(load_protocol("quick", sets), task, parse(encoding), 0, "cpu", "auto")


def test_candidates_take_turns_and_the_warmup_is_not_counted():
    order = []

    def turn(name):
        order.append(name)
        return {"phase": float(len(order))}

    taken = timing.interleave({n: lambda n=n: turn(n) for n in "abc"}, rounds=2, warmup=1)
    assert "".join(order) == "abc" * 3
    assert taken == {"a": {"phase": [4, 7]}, "b": {"phase": [5, 8]}, "c": {"phase": [6, 9]}}


@given(st.lists(st.tuples(seconds, st.floats(0.1, 10)), min_size=1, max_size=9))
def test_a_ratio_survives_any_slowdown_of_whole_rounds(rounds):
    base = [slow for slow, _ in rounds]
    these = [slow * factor for slow, factor in rounds]
    expected = statistics.median(factor for _, factor in rounds)
    assert timing.ratio(these, base) == pytest.approx(expected)


def test_the_clock_sees_a_sleep_and_hands_on_the_result():
    taken, result = timing.clock(lambda: time.sleep(0.02) or "done", "cpu")
    assert 0.02 <= taken < 2
    assert result == "done"


@settings(max_examples=15)
@given(st.lists(st.one_of(st.integers(1, 64), st.none()), max_size=12))
def test_the_peak_is_the_largest_running_sum(plan):
    """A number allocates that many pages, None releases the oldest tensor that is left."""
    sizes, live, peak = [], 0, 0
    for step in plan:
        if step is not None:
            sizes.append(step)
            live += step
        elif sizes:
            live -= sizes.pop(0)
        peak = max(peak, live)

    def run():
        kept = []
        for step in plan:
            if step is not None:
                kept.append(torch.empty(step * PAGE, dtype=torch.uint8))
            elif kept:
                kept.pop(0)

    assert peak_bytes(run, "cpu") == peak * PAGE


def test_the_peak_counts_what_autograd_keeps():
    x = torch.ones(PAGE, requires_grad=True)

    def run():
        y = x.exp()  # kept for the backward pass of exp
        z = y.sin()  # keeps y again, nothing new
        z.sum().backward()

    # y and z stay until the end; beside them live two gradients of that size at the most.
    assert 3 * 4 * PAGE <= peak_bytes(run, "cpu") <= 5 * 4 * PAGE


def test_state_counts_a_storage_once_and_a_view_whole():
    whole = torch.zeros(100)
    state = {
        "views": (whole[:3], whole[5:]),
        "other": [torch.zeros(7, dtype=torch.float64)],
        "n": 3,
    }
    assert state_bytes(state) == 400 + 56
    assert state_bytes(None) == 0


def test_the_decode_step_gives_the_logits_of_the_whole_sequence():
    candidate = measure.Candidate(config("alibi"), 4)
    batch = candidate.batch
    assert batch.inputs.shape == (3, 4 + 1 + 4)  # digits, "=", digits
    model = candidate.trainer.model.eval()
    with torch.no_grad():
        whole = model(batch.inputs, batch.pos)
    step = candidate.feed(candidate.cache, candidate.last)
    torch.testing.assert_close(step[:, 0], whole[:, -1])


def test_a_turn_trains_at_the_asked_length_and_leaves_the_cache_alone(monkeypatch):
    candidate = measure.Candidate(config("nope"), 7)
    lengths = []
    sample = type(candidate.trainer.task).sample
    monkeypatch.setattr(
        type(candidate.trainer.task),
        "sample",
        lambda self, draws, batch, length: (
            lengths.append(length) or sample(self, draws, batch, length)
        ),
    )
    before = candidate.cache.layers[0][0].clone()
    first, second = candidate.turn(), candidate.turn()
    assert lengths == [7] * 4  # a step and a forward pass in each turn
    assert list(first) == list(measure.PHASES)
    assert all(value > 0 for value in [*first.values(), *second.values()])
    assert candidate.trainer.step == 2
    assert torch.equal(candidate.cache.layers[0][0], before)


def test_a_cache_without_an_encoding_holds_keys_and_values():
    candidate = measure.Candidate(config("nope"), 4)
    tokens, layers, width = 9, 2, 16
    assert candidate.memory()["state_bytes"] == 2 * layers * tokens * width * 4
    assert candidate.memory()["parameters"] == 0


def test_the_peak_of_a_step_grows_with_the_batch():
    small, large = (
        measure.Candidate(config("nope", sets=(*SMALL, f"train.batch={b}")), 8).memory()
        for b in (8, 32)
    )
    assert 2 < large["peak_bytes"] / small["peak_bytes"] < 4.5


class Fake:
    """Takes 2 s for a step in odd rounds and 20 s in even ones, times its label's factor."""

    def __init__(self, config, length):
        if config.encoding == "learned":
            raise PositionError(f"too far at {length}")
        self.factor = {"rope": 1.0, "alibi": 3.0}[config.encoding]
        self.turns = 0

    def turn(self):
        self.turns += 1
        slow = 2.0 if self.turns % 2 else 20.0
        return dict.fromkeys(measure.PHASES, slow * self.factor)

    def memory(self):
        return {"parameters": 5, "peak_bytes": 2**20, "state_bytes": 512}


def test_a_row_holds_milliseconds_quartiles_and_the_ratio(monkeypatch):
    monkeypatch.setattr(measure, "Candidate", Fake)
    configs = [config(name) for name in ("alibi", "rope", "learned")]
    report = measure.measure(configs, 10, rounds=4, baseline="rope")
    alibi, rope, learned = report.rows
    expected = {"step_ms": 33_000.0, "step_q1_ms": 6_000.0, "step_q3_ms": 60_000.0}
    assert alibi.items() >= expected.items()
    assert alibi["decode_ratio"] == pytest.approx(3)
    assert rope["step_ratio"] == 1
    assert (learned["status"], learned["note"]) == ("cannot represent", "too far at 10")
    table = report.render("table")
    assert "33000 (6000-60000)" in table
    assert "1.00" in table  # MiB
    assert "learned: too far at 10" in table


def test_without_the_baseline_there_are_no_ratios(monkeypatch):
    monkeypatch.setattr(measure, "Candidate", Fake)
    configs = [config(name) for name in ("alibi", "learned")]
    report = measure.measure(configs, 10, rounds=2, baseline="learned")
    assert report.rows[0]["step_ratio"] is None
    assert "cannot represent" in report.render("markdown")


@pytest.mark.slow
def test_json_is_only_json_and_covers_every_encoding(call):
    small = ("--set", "model.layers=1", "--repeats", "1")
    code, out, err = call("perf", *TINY, *small, "--format", "json")
    assert code == 0, err
    report = json.loads(out)
    assert sorted(row["encoding"] for row in report["rows"]) == names()
    assert (
        report["settings"].items()
        >= {
            "task": "copy",
            "length": 10,
            "batch": 3,
            "rounds": 1,
            "baseline": "rope",
            "device": "cpu",
            "threads": 1,
            "torch": torch.__version__,
        }.items()
    )
    for row in report["rows"]:
        missing = {"ideal": "aligned=20", "coupled": "slots"}.get(row["encoding"])
        if missing:  # the places of an unaligned copy move with the scale
            assert missing in row["note"]
            continue
        assert row["status"] == "ok", row
        for phase in measure.PHASES:
            low, mid, high = (row[f"{phase}{part}_ms"] for part in ("_q1", "", "_q3"))
            assert 0 < low <= mid <= high
            assert row[f"{phase}_ratio"] > 0
        assert row["peak_bytes"] > 0
        assert row["state_bytes"] > 0


def test_encoders_take_no_causal_encodings_and_decode_nothing(call, monkeypatch):
    monkeypatch.setattr("pezoo.registry.names", lambda: ["fire", "rope", "nope"])
    small = ["--repeats", "1", "--batch", "2", "--set", "model.layers=1", "--length", "6"]
    code, out, err = call("perf", "--protocol", "ruoss2023-mini", *small, "--format", "csv")
    assert code == 0, err
    rows = [*csv.DictReader(io.StringIO(out))]
    assert [(row["encoding"], row["status"]) for row in rows] == [("rope", "ok"), ("nope", "ok")]
    assert float(rows[0]["step_ms"]) > 0
    assert not [name for name in rows[0] if name.startswith(("decode", "state"))]
    code, out, err = call("perf", "--protocol", "ruoss2023-mini", *small)
    assert (code, "decode" in out, "state" in out) == (0, False, False)


def test_what_cannot_train_is_a_row_and_the_others_are_measured(call):
    small = ["--repeats", "1", "--batch", "2", "--set", "model.layers=1", "--length", "6"]
    args = ["--protocol", "turing2024-mini", "--pe", "lbpe_sh,rope", "--task", "turing_addition"]
    code, out, err = call("perf", *args, *small, "--format", "json")
    assert code == 0, err
    hinted, rope = json.loads(out)["rows"]
    assert (hinted["status"], rope["status"]) == ("cannot train", "ok")
    assert "packed rows hold many" in hinted["note"]


def test_protocol_options_typed_options_length_and_batch_apply(call, tmp_path):
    protocol = tmp_path / "mine.toml"
    protocol.write_text(
        'name = "mine"\ndescription = ""\nseeds = "0"\n'
        "[model]\nlayers = 1\nheads = 2\nwidth = 16\n"
        "[train]\nsteps = 10\nbatch = 4\nlengths = [1, 6]\n"
        "[eval]\nlengths = [6]\n"
        "[encodings.rope]\nbase = 77.0\n"
    )
    args = ["--protocol", protocol, "--pe", "alibi,learned", "--repeats", "1", "--format", "csv"]
    code, out, err = call("perf", *args, "--length", "9", "--batch", "5")
    assert code == 0, err
    rope, alibi, learned = csv.DictReader(io.StringIO(out))
    assert (rope["encoding"], rope["spec"]) == ("rope", "rope(base=77.0)")
    assert {row["length"] for row in (rope, alibi)} == {"9"}
    assert {row["batch"] for row in (rope, alibi)} == {"5"}
    # Built for length 6, so 14 positions; length 9 has tokens at 0..18.
    assert (learned["status"], learned["step_ms"]) == ("cannot represent", "")
    assert float(alibi["step_ms"]) > 0


@pytest.mark.parametrize("form", ["table", "markdown"])
def test_tables_have_a_line_per_candidate_of_one_width(call, form):
    code, out, err = call("perf", "--pe", "rope,nope", *TINY, "--format", form)
    assert code == 0, err
    where, _, *table = out.splitlines()
    assert torch.__version__ in where
    assert [line.strip("| ").split()[0] for line in table[2:]] == ["rope", "nope"]
    assert all(len(a) == len(b) for a, b in pairwise(table)) or form == "table"
