"""The slots of a task reach the encoding in training, packed rows, padding and decoding."""

import json

import pytest

import pezoo
from harness import tasks
from harness.settings.protocol import load_protocol, resolve
from harness.tasks.base import TaskError
from harness.training.evaluate import score
from harness.training.trainer import start
from pezoo.spec import parse

TASK = tasks.make("addition_coupled")
SIZES = ("model.width=16", "model.heads=2", "train.batch=4", "train.warmup=1", "eval.samples=4")


def slots_by_hand(text):
    found = []
    for i, c in enumerate(text):
        after = bool(i) and text[i - 1].isdigit()
        found.append((found[-1] + 1 if after else 2) if c.isdigit() else int(c in "+="))
    return found


@pytest.mark.parametrize("text", ["$356+940=2070", "$9+9=81", "5+=12$345", TASK.example])
def test_slots_by_hand(text):
    ids = TASK.vocab.encode(text)[None]
    assert TASK.slots(ids)[0].tolist() == slots_by_hand(text)


def started(task="addition_coupled", protocol="quick", encoding="coupled", *overrides):
    sets = load_protocol(protocol, (*SIZES, *overrides))
    return start(resolve(sets, task, parse(encoding), 0, "cpu", "auto"))


@pytest.mark.parametrize("context", [(), ("train.context=24",)])
def test_the_slots_of_training_and_evaluation(context, monkeypatch):
    seen = []
    cls = pezoo.Coupled
    prepare = cls.prepare
    monkeypatch.setattr(cls, "prepare", lambda self, ctx: seen.append(ctx) or prepare(self, ctx))
    trainer = started("addition_coupled", "quick", "coupled", *context)
    for _ in range(3):
        trainer.advance()
    trainer.config = trainer.config.replace_eval(min_samples=4)
    score(trainer.model, trainer.task, trainer.config, 12)
    assert len(seen) >= 4
    symbols = [*TASK.vocab.symbols, "_", "E"]
    for ctx in seen:
        for ids, slots in zip(ctx.ids.tolist(), ctx.slots.tolist(), strict=True):
            assert slots == slots_by_hand("".join(symbols[i] for i in ids))


@pytest.mark.parametrize(
    ("task", "protocol"), [("copy", "quick"), ("addition_coupled", "ruoss2023-mini")]
)
def test_a_task_without_slots(task, protocol):
    with pytest.raises(TaskError, match=f"coupled needs slots, which {task}"):
        started(task, protocol)


@pytest.mark.slow
def test_a_record_says_which_lengths_the_table_cannot_hold(call, tmp_path):
    sets = (*SIZES[:4], "train.steps=2", "eval.samples=4", "eval.min_samples=4", "eval.every=2")
    sets += ("eval.validation_samples=2", "eval.lengths=[10, 20]")
    args = ("--pe", "coupled(max_pos=20)", "--task", "addition_coupled", "--seeds", 0)
    args += tuple(part for one in sets for part in ("--set", one))
    code, _, err = call("bench", *args, "--runs", tmp_path)
    assert code == 0, err
    (path,) = tmp_path.glob("*/result.json")
    scores = json.loads(path.read_text())["scores"]["last"]
    assert [score["status"] for score in scores] == ["ok", "cannot represent"]
    assert call("leaderboard", "check", path)[0] == 0
