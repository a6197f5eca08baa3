"""Runs that stop anywhere and go on exactly; files that are whole or not used."""

import json

import pytest
import torch

from harness.config import load_protocol, resolve
from harness.execute import execute
from harness.files import write_json
from harness.runs import RunFolder, finished
from harness.train import Trainer, start
from pezoo.spec import parse

SMALL = (
    "train.steps=12",
    "train.checkpoint_every=4",
    "eval.every=4",
    "eval.samples=8",
    "eval.min_samples=4",
    "eval.validation_samples=2",
    "eval.lengths=[10, 20]",
)


def small(pe="rope", seed=0, extra=()):
    return resolve(load_protocol("quick", SMALL + extra), "copy", parse(pe), seed, "cpu", "auto")


class Killed(Exception):
    """Stands for a process that dies."""


def die_at(monkeypatch, step):
    advance = Trainer.advance

    def dying(self):
        if self.step == step:
            raise Killed
        return advance(self)

    monkeypatch.setattr(Trainer, "advance", dying)


def weights(root, config):
    trainer = start(config)
    assert RunFolder(root, config).restore(trainer) is not None
    return trainer.model.state_dict()


@pytest.mark.parametrize("pe", ["rope", "prism(cursors=1,d_pe=8,hidden=8)", "randomized"])
def test_an_interrupted_run_ends_bit_identical(tmp_path, monkeypatch, pe):
    config = small(pe)
    whole = execute(config, tmp_path / "whole", "test", lambda event: None)
    with monkeypatch.context() as patch:
        die_at(patch, 7)
        with pytest.raises(Killed):
            execute(config, tmp_path / "cut", "test", lambda event: None)
    steps = []
    again = execute(config, tmp_path / "cut", "test", lambda event: steps.append(event["step"]))
    assert min(steps) > 4  # it went on from the checkpoint at 4
    assert again["scores"] == whole["scores"]
    assert again["learning"] == whole["learning"]
    one, two = weights(tmp_path / "whole", config), weights(tmp_path / "cut", config)
    assert all(torch.equal(one[name], two[name]) for name in one)


def test_a_damaged_checkpoint_gives_way_to_the_one_before(tmp_path, monkeypatch):
    config = small()
    with monkeypatch.context() as patch:
        die_at(patch, 10)
        with pytest.raises(Killed):
            execute(config, tmp_path, "test", lambda event: None)
    newest = tmp_path / config.hash / "ckpt-00000008.safetensors"
    content = bytearray(newest.read_bytes())
    content[len(content) // 2] ^= 1
    newest.write_bytes(bytes(content))
    trainer = start(config)
    with pytest.warns(UserWarning, match="damaged"):
        assert RunFolder(tmp_path, config).restore(trainer) is not None
    assert trainer.step == 4


def test_a_finished_run_is_shown_and_not_trained_again(tmp_path, monkeypatch):
    config = small()
    first = execute(config, tmp_path, "test", lambda event: None)
    die_at(monkeypatch, 0)
    assert execute(config, tmp_path, "test", lambda event: None) == first


def test_a_damaged_result_does_not_count(tmp_path):
    config = small()
    execute(config, tmp_path, "test", lambda event: None)
    path = tmp_path / config.hash
    result = json.loads((path / "result.json").read_text())
    result["scores"]["last"][0]["exact"] = 1.0
    write_json(path / "result.json", result)
    assert finished(path) is None


def test_divergence_is_a_record_with_its_reason(tmp_path):
    record = execute(small(extra=("train.lr=1e30",)), tmp_path, "test", lambda event: None)
    assert record["status"] == "failed"
    assert "Diverged" in record["reason"]


def test_a_record_passes_the_leaderboard(tmp_path):
    from leaderboard.records import load

    execute(small("learned"), tmp_path, "test", lambda event: None)
    records, problems = load([tmp_path])
    assert (len(records), problems) == (1, [])
    assert [s.status for s in records[0].scores.last] == ["ok", "cannot represent"]


def test_top_evaluations_are_averaged(tmp_path):
    record = execute(small(extra=("eval.top=3",)), tmp_path, "test", lambda event: None)
    assert [row["count"] for row in record["scores"]["top3"]] == [24, 24]


def test_a_run_held_by_another_process_is_left_to_it(tmp_path):
    import filelock

    config = small()
    folder = RunFolder(tmp_path, config)
    with folder.lock(), pytest.raises(filelock.Timeout):
        execute(config, tmp_path, "test", lambda event: None)
    assert execute(config, tmp_path, "test", lambda event: None)["status"] == "done"
