"""The file of all predictions: whole, in agreement with the record, and no part of it."""

import gzip
import json
from collections import Counter

import pytest

from harness import tasks
from harness.cli import show, try_run
from harness.cli.train import recorded_command
from harness.runs.folder import finished

SMALL = {
    "copy": (("train.steps=150", "train.lr=1e-2", "train.warmup=5", "eval.lengths=[1,3]"), "quick"),
    "mqar": (("train.steps=2", "eval.lengths=[2]"), "quick"),
    "duplicate_string": (("train.steps=2", "eval.lengths=[3,21]"), "ruoss2023-mini"),
}


@pytest.mark.parametrize("task", SMALL)
def test_every_answer_of_the_record_is_in_the_file(call, tmp_path, task):
    overrides, protocol = SMALL[task]
    sets = [*overrides, "model.width=16", "eval.samples=40", "train.lengths=[1,3]"]
    words = ["bench", "--pe", "nope", "--task", task, "--seeds", "0", "--threads", "1"]
    words += ["--protocol", protocol, "--runs", tmp_path, "--format", "csv", "--device", "cpu"]
    words += [word for one in (*sets, "train.curriculum=[]") for word in ("--set", one)]
    assert call(*words)[0] == 0
    (before,) = tmp_path.glob("*/result.json")
    content = before.read_bytes()
    code, _, err = call(*words, "--keep-predictions")
    assert (code, before.read_bytes()) == (0, content)
    (path,) = tmp_path.glob("*/predictions.jsonl.gz")
    assert str(path) in err
    lines = [json.loads(line) for line in gzip.decompress(path.read_bytes()).splitlines()]
    record, made = finished(path.parent), tasks.make(task)
    right = Counter(line["length"] for line in lines if line["right"])
    every = Counter(line["length"] for line in lines)
    for score in record.scores.last:
        assert (right[score.length], every[score.length]) == (score.correct, score.count)
    assert len(every) == len(record.scores.last)
    for line in lines[:20]:
        ids = made.vocab.encode(line["prompt"]).tolist()
        solved = made.solve(ids)[1::2] if task == "mqar" else made.solve(ids)  # keys are given
        assert line["target"].removesuffix("⟨end⟩").strip() == made.vocab.decode(solved)
        assert line["right"] == (line["output"] == line["target"])
    if task == "copy":
        assert sum(right.values())
        trainer = show.started(record.config)
        show.restore(trainer, record.config, str(tmp_path))
        for line in lines[:6] + lines[-6:]:
            answer = try_run.answer(trainer, line["prompt"])
            assert answer.startswith(line["prompt"] + line["output"].removesuffix("⟨end⟩"))
            assert ("(right)" in answer) == line["right"]
    assert "predictions" not in call(*words, "--keep-predictions")[2]  # there already


def test_records_do_not_name_the_option():
    assert (
        recorded_command(["bench", "--pe", "rope", "--keep-predictions"]) == "pezoo bench --pe rope"
    )


def test_text_is_left_out(call, tmp_path):
    words = ["bench", "--pe", "nope", "--task", "text", "--seeds", "0", "--protocol", "text"]
    words += ["--runs", tmp_path, "--threads", "1", "--format", "csv", "--device", "cpu"]
    small = ("train.steps=1", "train.batch=2", "model.width=16", "model.layers=1", "eval.samples=2")
    sizes = ("eval.lengths=[128]", "eval.min_samples=2")
    words += [word for one in (*small, *sizes) for word in ("--set", one)]
    code, _, err = call(*words, "--keep-predictions")
    assert code == 0, err
    assert "text has no answers" in err
