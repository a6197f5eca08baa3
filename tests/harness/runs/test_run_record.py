"""The provenance and costs in a record."""

import hashlib
import subprocess
import sys
from importlib.metadata import version

import pytest
import torch
from soak import SETTINGS

from harness import tasks
from harness.data.sequences import to_sequences
from harness.runs import cost
from harness.runs.record import HASHED_BATCHES, commit_of, data_hash
from harness.runs.run import execute
from harness.settings.protocol import load_protocol, resolve
from harness.training.trainer import start
from pezoo.kernels.backends import fastest
from pezoo.spec import parse

PRISM = "prism_2025(cursors=1,d_pe=8,hidden=8)"


def config_of(pe="rope", task="copy", seed=0, extra=(), attention="auto"):
    protocol = load_protocol("quick", (*SETTINGS, "train.steps=10", *extra))
    return resolve(protocol, task, parse(pe), seed, "cpu", attention)


@pytest.fixture
def fed(monkeypatch):
    """The token ids of every training batch, as the trainer makes them."""
    batches = []

    def record(*args):
        sequences = to_sequences(*args)
        batches.append(sequences.ids)
        return sequences

    monkeypatch.setattr("harness.data.batches.to_sequences", record)
    return batches


@pytest.mark.parametrize("task", ["copy", "addition", "scan_cot"])
def test_the_data_hash_is_of_what_every_encoding_is_trained_on(task, fed):
    hashes = set()
    for pe in ("rope", "randomized:learned", PRISM):
        config = config_of(pe, task)
        trainer = start(config)
        fed.clear()
        for _ in range(HASHED_BATCHES):
            trainer.advance()
        digest = hashlib.sha256()
        for ids in fed:
            digest.update(str(tuple(ids.shape)).encode())
            digest.update(b"".join(i.to_bytes(8, sys.byteorder) for i in ids.flatten().tolist()))
        hashes.add(data_hash(config))
        assert hashes == {digest.hexdigest()[:16]}


def test_the_data_hash_changes_with_the_data_alone():
    one = data_hash(config_of())
    same = [config_of("alibi"), config_of(extra=("model.width=32", "train.lr=0.1"))]
    other = [
        config_of(seed=1),
        config_of(task="reverse"),
        config_of(extra=("train.batch=9",)),
        config_of(extra=("train.lengths=[1, 6]",)),
    ]
    assert {data_hash(config) for config in same} == {one}
    assert len({one, *map(data_hash, other)}) == 5
    assert data_hash(config_of(extra=("train.steps=3",)))  # fewer steps than are hashed


@pytest.mark.parametrize("task", ["copy", "addition"])
def test_tokens_are_those_trained_on(task, fed, tmp_path, monkeypatch):
    monkeypatch.setattr("harness.runs.run.data_hash", lambda config: None)  # it makes batches too
    config = config_of(task=task)
    record = execute(config, tmp_path, "test", lambda event: None)
    pad = tasks.make(task).vocab.pad
    assert len(fed) == 10
    assert record.cost.tokens == sum(int((ids[:, :-1] != pad).sum()) for ids in fed)


def test_a_record_says_how_it_was_made(tmp_path):
    config = config_of(PRISM)
    record = execute(config, tmp_path, "pezoo bench --pe prism", lambda event: None)
    trainer = start(config)
    env, spent = record.env, record.cost
    assert record.config == config
    assert record.backbone_hash == trainer.model.backbone_hash()
    assert record.data_hash == data_hash(config)
    assert env.kernels == trainer.model.kernels() == {"histogram_scan": fastest("histogram", "cpu")}
    assert env.attention == trainer.model.attention == "sdpa"
    assert env.threads == torch.get_num_threads()
    for package in ("torch", "numpy", "numba"):
        assert getattr(env, package) == version(package)
    for name in ("pezoo", "python", "commit", "dirty", "device", "cpu", "cores"):
        assert getattr(env, name) is not None
    assert spent.parameters == sum(p.numel() for p in trainer.model.parameters())
    for part in ("train_seconds", "cpu_seconds", "eval_seconds", "eval_cpu_seconds"):
        assert 0 <= getattr(spent, part) < 600
    assert spent.train_seconds > 0
    assert 0 < spent.data_share < 1
    assert spent.peak_memory_mb > 50
    assert spent.sessions == 1


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere the peak is that of the process")
def test_a_run_is_not_charged_for_the_memory_of_those_before():
    cost.forget_peak_memory("cpu")
    before = cost.peak_memory_mb("cpu")
    large = b"\1" * (200 << 20)
    spent, trainer = cost.new(), start(config_of())
    cost.note(spent, trainer)
    assert spent["peak_memory_mb"] > before + 190
    del large
    cost.forget_peak_memory("cpu")
    assert cost.peak_memory_mb("cpu") < before + 100
    cost.note(spent, trainer)  # of several sessions the highest counts
    assert spent["peak_memory_mb"] > before + 190


@pytest.mark.parametrize(
    ("pe", "attention", "lengths", "train"),
    [
        ("relative", "sdpa", "[4, 6]", ["sdpa math"]),  # its bias needs a gradient
        ("rope", "sdpa", "[4, 6]", ["sdpa flash"]),
        ("rope", "eager", "[4, 6]", ["eager"]),
    ],
)
def test_the_attention_that_ran_is_in_the_record(pe, attention, lengths, train, tmp_path):
    config = config_of(pe, extra=(f"train.lengths={lengths}",), attention=attention)
    env = execute(config, tmp_path, "test", lambda event: None).env
    assert env.attention == attention
    assert env.attention_ran["train"] == train
    assert set(env.attention_ran["eval"]) <= {"sdpa flash", "sdpa math", attention}
    assert env.attention_ran["eval"]


def test_the_attention_of_all_sessions_is_kept():
    trainer, spent = start(config_of(attention="eager")), cost.new()
    spent["attention"] = {"train": ["numba"], "eval": []}  # as an earlier session left it
    trainer.advance()
    cost.note(spent, trainer)
    assert spent["attention"] == {"train": ["eager", "numba"], "eval": []}


def test_test_lengths_can_be_scored_along_training(tmp_path):
    extra = ("eval.every=5", "eval.lengths=[3,6,9]", "eval.curve_lengths=[6,9]")
    record = execute(config_of(extra=extra), tmp_path, "test", lambda event: None)
    first, last = record.learning
    assert (first.step, last.step) == (5, 10)
    assert 0 < first.seconds < last.seconds
    scores = record.scores.last[1:]
    assert last.test_token == pytest.approx(sum(score.token for score in scores) / 2)
    assert last.test_exact == pytest.approx(sum(score.exact for score in scores) / 2)


def test_along_training_a_length_without_a_number_leaves_no_mean(tmp_path):
    extra = ("eval.lengths=[3,9]", "eval.curve_lengths=[3,9]")
    record = execute(config_of("learned", extra=extra), tmp_path, "test", lambda event: None)
    assert {point.test_token for point in record.learning} == {None}


@pytest.fixture
def checkout(tmp_path):
    """A repository with the folders of this one, everything committed."""
    for name in ("pezoo/base.py", "harness/cli/main.py", "experiment/config.py", "docs/a.md"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("1")
    who = ("-c", "user.name=a", "-c", "user.email=a@b")
    for words in (("init", "-q"), ("add", "."), (*who, "commit", "-qm", "all")):
        subprocess.run(["git", *words], cwd=tmp_path, check=True)
    commit_of.cache_clear()
    return tmp_path


@pytest.mark.parametrize(
    ("name", "dirty"),
    [
        ("pezoo/base.py", True),
        ("pezoo/new.py", True),
        ("harness/cli/main.py", True),
        ("experiment/config.py", True),
        ("leaderboard/records/new.json", False),
        ("docs/a.md", False),
    ],
)
def test_code_that_differs_from_its_commit_is_dirty(checkout, name, dirty):
    (checkout / name).parent.mkdir(parents=True, exist_ok=True)
    (checkout / name).write_text("2")
    commit, found = commit_of(checkout)
    assert len(commit) == 12
    assert found is dirty


def test_code_below_the_repository_of_another_has_no_commit(checkout):
    assert commit_of(checkout)[1] is False
    inside = checkout / "venv"
    inside.mkdir()
    assert commit_of(inside) == ("unknown", None)
