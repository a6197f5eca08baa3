"""Runs that stop anywhere and go on exactly; files that are whole or not used."""

import hashlib
import json

import pytest
import torch
from soak import same, weights

import leaderboard
from harness.runs.events import Stopped
from harness.runs.files import write_json
from harness.runs.folder import RunFolder, finished
from harness.runs.run import Rate, execute
from harness.settings.protocol import load_protocol, resolve
from harness.training.evaluate import score_all
from harness.training.trainer import Trainer, start
from leaderboard.record.refusals import refusals
from pezoo.spec import parse

SMALL = (
    *("model.width=16", "model.heads=2", "train.batch=8", "train.lengths=[1, 5]"),
    *("train.steps=12", "train.checkpoint_every=4", "train.warmup=3", "eval.every=4"),
    *("eval.samples=8", "eval.min_samples=4", "eval.validation_samples=2", "eval.lengths=[5, 10]"),
)
CURSORS = "cursors=1,d_pe=8,hidden=8"
NOISE = "gate_noise=0.5,state_noise=0.3"
ENCODINGS = [
    "rope",
    "randomized:learned",
    f"prism_2025({CURSORS},{NOISE},copy_every=2)",
    f"prism_spectral({CURSORS},{NOISE})",
]


def small(pe="rope", seed=0, extra=()):
    return resolve(load_protocol("quick", SMALL + extra), "copy", parse(pe), seed, "cpu", "auto")


def run(config, root, **options):
    return execute(config, root, "test", lambda event: None, **options)


LEARNED = (
    *("train.schedule=constant", "train.learned={exact=0.01, decay=3}", "train.steps=60"),
    *("train.lr=0.02", "train.lengths=[1, 1]", "eval.validation_samples=64"),
)


def test_a_run_ends_when_it_has_learned(tmp_path, train_to):
    config = small(extra=LEARNED)
    whole = run(config, tmp_path / "whole")
    steps, least = zip(*((point.step, point.least) for point in whole.learning), strict=True)
    good = next(at for at in range(1, len(least)) if min(least[at - 1 : at + 1]) >= 0.01)
    assert steps[-1] == whole.last_step == steps[good] + 3 < 60
    assert [*steps[:-1]] == [*range(4, steps[-1], 4)]
    assert not [one for one in refusals(whole) if "learning" in one or "best" in one]
    for at in (steps[good] - 1, steps[good] + 2):  # before the end was known, and after
        train_to(config, tmp_path / f"{at}", at)
        assert same(whole, run(config, tmp_path / f"{at}"))
        assert weights(tmp_path / "whole", config) == weights(tmp_path / f"{at}", config)
    data = whole.data()
    data["learning"][good]["least"] = 0.0
    assert any("learning needs" in one for one in refusals(type(whole).of(data)))


@pytest.mark.parametrize("pe", ENCODINGS)
def test_an_interrupted_run_ends_bit_identical(tmp_path, train_to, pe):
    config = small(pe, extra=("model.dropout=0.1",))
    whole = run(config, tmp_path / "whole")
    train_to(config, tmp_path / "cut", 7)
    steps = []
    again = execute(config, tmp_path / "cut", "test", lambda event: steps.append(event["step"]))
    assert min(steps) > 4  # it went on from the checkpoint at 4
    assert again.cost.sessions == 2
    assert same(whole, again)
    assert weights(tmp_path / "whole", config) == weights(tmp_path / "cut", config)
    optimisers = [start(config) for _ in range(2)]
    for trainer, root in zip(optimisers, ("whole", "cut"), strict=True):
        RunFolder(tmp_path / root, config).restore(trainer)
    one, two = (list(t.optimiser.state.values()) for t in optimisers)
    assert all(torch.equal(a[key], b[key]) for a, b in zip(one, two, strict=True) for key in a)


@pytest.mark.parametrize("step", [1, 5, 12])
def test_a_run_that_is_asked_to_stop_saves_where_it_is(tmp_path, monkeypatch, step):
    config, taken = small(), []
    advance = Trainer.advance

    def counted(self):
        loss = advance(self)
        taken.append(self.step)
        return loss

    monkeypatch.setattr(Trainer, "advance", counted)
    with pytest.raises(Stopped, match=f"step {step} of 12"):
        run(config, tmp_path / "cut", stop=lambda: step in taken)
    trainer = start(config)
    RunFolder(tmp_path / "cut", config).restore(trainer)
    assert trainer.step == step
    assert same(run(config, tmp_path / "whole"), run(config, tmp_path / "cut"))


def test_threads_stay_those_of_the_first_session(tmp_path, train_to):
    config, threads = small(), torch.get_num_threads()
    train_to(config, tmp_path, 5)
    try:
        torch.set_num_threads(threads + 1)
        assert run(config, tmp_path).env.threads == threads
        assert torch.get_num_threads() == threads + 1
    finally:
        torch.set_num_threads(threads)


def test_a_finished_run_is_shown_and_not_trained_again(tmp_path, die_at):
    config = small()
    first = run(config, tmp_path)
    die_at(0)
    assert run(config, tmp_path) == first


def test_a_damaged_result_does_not_count(tmp_path):
    config = small()
    first = run(config, tmp_path)
    path = tmp_path / config.hash
    result = json.loads((path / "result.json").read_text())
    result["scores"]["last"][0]["exact"] = 1.0
    write_json(path / "result.json", result)
    words = "result.json is damaged or without DONE, not used"
    with pytest.warns(UserWarning, match=words):
        assert finished(path) is None
    with pytest.warns(UserWarning, match=words):
        assert same(run(config, tmp_path), first)
    whole = (path / "result.json").read_bytes()
    for name, content in (("DONE", b"\xff\xfe"), ("DONE", None), ("result.json", b"[]")):
        (path / "DONE").write_bytes(hashlib.sha256(whole).hexdigest().encode())
        (path / "result.json").write_bytes(whole)
        assert same(finished(path), first)
        (path / name).write_bytes(content) if content else (path / name).unlink()
        with pytest.warns(UserWarning, match=words):
            assert finished(path) is None


def test_a_record_passes_the_leaderboard(tmp_path):
    from leaderboard.record.read import load

    run(small("learned"), tmp_path)
    records, problems = load([tmp_path])
    assert (len(records), problems) == (1, [])
    assert [s.status for s in records[0].scores.last] == ["ok", "cannot represent"]


def test_top_evaluations_are_averaged(tmp_path, monkeypatch):
    """Of three evaluations that differ: over all lengths, and the best three of each."""
    rights = iter([(8, 0), (6, 4), (0, 6), (8, 8), (8, 8)])

    def evaluation(model, task, config, *args):
        rows, right = score_all(model, task, config, *args), next(rights)
        return [
            row | {"correct": n, "exact": n / row["count"], "wrong": []}
            for row, n in zip(rows, right, strict=True)
        ]

    monkeypatch.setattr("harness.runs.run.score_all", evaluation)
    record = run(small(extra=("eval.top=1",)), tmp_path)
    assert [row.exact for row in record.scores.top1] == [0.75, 0.5]
    raw = json.loads(next(tmp_path.glob("*/result.json")).read_text())
    assert [row["exact"] for row in raw["scores"]["top1_each"]] == [1.0, 0.75]


def test_top_evaluations_are_what_the_leaderboard_reads(tmp_path):
    record = run(small(extra=("eval.top=3",)), tmp_path)
    assert [row.count for row in record.scores.top3] == [24, 24]
    each = [row.correct for row in record.scores.top3_each]
    assert all(a >= b.correct for a, b in zip(each, record.scores.top3, strict=True))
    for checkpoint in ("top3", "top3_each"):
        want = [row.exact for row in getattr(record.scores, checkpoint)]
        assert leaderboard.frame(tmp_path, checkpoint=checkpoint).exact.tolist() == want


def test_evaluations_count_from_the_first_small_loss_on(tmp_path):
    record = run(small(extra=("eval.top=3", "eval.top_below=1e-9")), tmp_path)
    assert record.scores.top3 == []


def test_what_is_kept(tmp_path, train_to):
    config = small(extra=("train.checkpoint_every=2",))
    path = train_to(config, tmp_path, 7)
    assert sorted(p.name for p in path.glob("ckpt-*.json")) == [
        "ckpt-00000004.json",
        "ckpt-00000006.json",
    ]
    (path / ".result.json.999999").write_text("half a fi")  # of a process killed while writing
    (path / "ckpt-00000099.safetensors").write_bytes(b"half a checkpoint")
    run(config, tmp_path)
    names = {p.name.split(".")[0] for p in path.glob("ckpt-*")}
    assert names == {"ckpt-00000010", "ckpt-00000012"}
    assert [p.name for p in path.glob(".*")] == [".lock"]


def test_the_first_step_is_not_counted_and_a_second_passes_between_two_rates(monkeypatch):
    clock = iter([100.0, 100.5, 101.25, 102.0])
    monkeypatch.setattr("harness.runs.run.time.perf_counter", lambda: next(clock))
    own = Rate()
    rates = [own.due(step) for step in (7, 9, 11, 17)]
    assert rates == [None, pytest.approx(4), None, pytest.approx(5)]
