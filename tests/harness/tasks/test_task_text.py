"""Text: what is drawn, what is scored, and that tests are apart from what is trained on."""

import math

import pytest
import torch

from experiment.config import ConfigError
from harness import tasks
from harness.data.sequences import to_sequences
from harness.settings.protocol import load_protocol, resolve
from harness.tasks.base import TaskError
from harness.tasks.corpus import places, read_corpus
from harness.training.evaluate import check_decoding, score
from harness.training.trainer import start
from pezoo.spec import parse

SIZES = ("model.width=16", "model.heads=2", "model.layers=2", "train.batch=4", "train.steps=3")
SIZES += ("eval.samples=3", "eval.min_samples=3", "eval.lengths=[128,160,300]")


@pytest.fixture(scope="module")
def task():
    return tasks.make("text")


def trained(*sets, pe="alibi"):
    config = resolve(load_protocol("text", (*SIZES, *sets)), "text", parse(pe), 0, "cpu", "auto")
    trainer = start(config)
    for _ in range(3):
        trainer.advance()
    return trainer


@pytest.mark.parametrize(("source", "checksum"), [("python", 923961548), ("kjv", 1068799351)])
def test_the_text_does_not_change(source, checksum):
    assert read_corpus(source).checksum == checksum


@pytest.mark.slow
@pytest.mark.parametrize("source", ["python", "kjv"])
def test_no_64_bytes_of_an_answer_occur_in_training(source):
    seen, task = read_corpus(source).train, tasks.make(f"text(source={source})")
    sets = [task.test_set(name, None, 10_000, 128).target for name in ("test", "validation")]
    assert min(map(len, sets)) > 100
    targets = {bytes(row.tolist()) for rows in sets for row in rows}
    assert not [i for i in range(len(seen) - 63) if seen[i : i + 64] in targets]


@pytest.mark.parametrize("source", ["python", "kjv"])
def test_texts_are_split_by_file(source):
    train, validation, test, _ = read_corpus(source)
    held_out = validation + test
    assert len(set(held_out)) == len(held_out) > 16
    assert not [text for text in held_out if text in train]


def test_places_whose_answer_occurs_in_training_are_left_out(tmp_path):
    text = bytes(range(256)) * 40 + b"".join(bytes([i, 255 - i]) * 100 for i in range(120))
    ends = range(8192, len(text) + 1, 512)
    (tmp_path / "a").write_bytes(text)
    (tmp_path / "b").write_bytes(b"xyz " * 3000 + text[ends[0] - 64 : ends[0]])
    targets = tasks.make(f"text(path={tmp_path})").test_set("test", None, 99, 128).target
    left = {bytes(row.tolist()) for row in targets}
    assert left == {text[end - 64 : end] for end in ends if end > 10240}
    (tmp_path / "b").write_bytes(b"xyz " * 3000 + text[8000:])
    read_corpus.cache_clear(), places.cache_clear()
    with pytest.raises(TaskError, match="no text for test: it takes 1 or more files"):
        tasks.make(f"text(path={tmp_path})").test_set("test", None, 99, 128)


def test_an_instance_is_a_piece_of_the_text(task):
    corpus = read_corpus("python")
    made = task.sample(torch.Generator().manual_seed(0), 8, 130)
    for prompt, target in zip(made.prompt, made.target, strict=True):
        assert bytes([*prompt, *target]) in corpus.train
        assert task.measure(prompt.tolist()) == 130
    assert task.solve(made.prompt[0].tolist()) == made.target[0].tolist()
    with pytest.raises(TaskError):
        task.solve([0] * 70)


def test_targets_are_the_same_at_every_length_and_lie_in_one_file(task):
    files = read_corpus("python").test
    far, near = (task.test_set("test", None, 40, n) for n in (8192, 128))
    assert torch.equal(far.target, near.target)
    assert torch.equal(far.prompt[:, -64:], near.prompt)
    for row in torch.cat([far.prompt, far.target], 1):
        assert any(bytes(row.tolist()) in text for text in files)
    assert not any(text in read_corpus("python").train for text in files)


def test_every_byte_is_supervised_and_the_targets_count(task):
    made = task.sample(torch.Generator().manual_seed(0), 2, 128)
    batch = to_sequences(made, task, "text")
    assert torch.equal(batch.ids, torch.cat([made.prompt, made.target], 1))  # no EOS
    assert bool(batch.answer.all())
    assert batch.counted.sum(1).tolist() == [64, 64]
    assert torch.equal(batch.labels[batch.counted].view(2, 64), made.target)


@pytest.mark.slow
@pytest.mark.parametrize("sets", [(), ("eval.window=128", "eval.stride=16")])
def test_bits_by_hand(sets):
    trainer = trained(*sets)
    model, config = trainer.model.eval(), trainer.config
    ids = torch.cat([*vars(trainer.task.test_set("test", None, 3, 160)).values()], 1)

    def bits(place, start):
        logits = model(ids[:, start:place], torch.arange(place - start)[None])[:, -1]
        return -logits.log_softmax(-1).gather(1, ids[:, place, None])[:, 0] / math.log(2)

    def begin(place):  # of a window of 128 that moves on by 16
        return next(s for s in range(0, 160, 16) if place - s <= 128) if sets else 0

    with torch.no_grad():
        far = torch.stack([bits(p, begin(p)) for p in range(96, 160)], 1)
        near = torch.stack([bits(p, 32) for p in range(96, 160)], 1)
        every = torch.stack([bits(p, 0) for p in range(1, 160)], 1)
    found = score(model, trainer.task, config, 160)
    gain = near.mean(1) - far.mean(1)
    assert found.bits == pytest.approx(float(far.mean()), abs=1e-4)
    assert found.gain == pytest.approx(float(gain.mean()), abs=1e-4)
    assert found.gain_error == pytest.approx(float(gain.std()) / math.sqrt(3), abs=1e-4)
    places = [every[:, 2**k - 1 : 2 ** (k + 1) - 1].mean() for k in range(8)]
    assert found.by_place == (() if sets else pytest.approx([float(p) for p in places], abs=1e-4))


def test_within_the_training_length_nothing_is_gained():
    trainer = trained()
    found = score(trainer.model, trainer.task, trainer.config, 128)
    assert (found.gain, found.seen, found.method) == (0.0, True, "teacher-forced")


def test_what_a_table_cannot_hold_is_said():
    trainer = trained(pe="learned(max_len=200)")
    assert score(trainer.model, trainer.task, trainer.config, 300).status == "cannot represent"


def test_a_text_of_ones_own(tmp_path):
    for name, text in (("a", b"ab" * 6000), ("b", b"xyz " * 3000), ("c", b"none")):
        (tmp_path / name).write_bytes(text)
    task = tasks.make(f"text(path={tmp_path})")
    made = task.test_set("test", None, 4, 96)
    assert set(made.target.flatten().tolist()) == {97, 98}  # the first large file is the test
    assert tasks.make("text").version == 2 < task.version
    with pytest.raises(ValueError, match="folder"):
        tasks.make(f"text(path={tmp_path}/a)")
    (tmp_path / "b").unlink()
    with pytest.raises(ValueError, match="as many bytes in others to train on"):
        read_corpus("python", f"{tmp_path}/.")


def test_links_hidden_files_and_copies_are_no_text(tmp_path):
    for name, text in (("a", b"ab" * 6000), ("b", b"xyz " * 3000), (".c/d", b"hidden " * 3000)):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(text)
    own = read_corpus("python", str(tmp_path))
    assert own[:3] == (b"xyz " * 3000, (), (b"ab" * 6000,))
    (tmp_path / "e").write_bytes(b"ab" * 6000)
    (tmp_path / "f").symlink_to(tmp_path / "b")
    (tmp_path / "g\udcff").write_bytes(b"")  # a name that is not UTF-8
    read_corpus.cache_clear()
    assert read_corpus("python", str(tmp_path))[:3] == own[:3]


@pytest.mark.parametrize(
    ("task", "sets", "words"),
    [
        ("text", ("tasks.text.train_lengths=[64,64]",), "must end above 64, got 64"),
        ("text", ("train.context=256",), "train.context"),
        ("sort", (), "sort has right answers"),
    ],
)
def test_only_a_text_is_scored_as_text(task, sets, words):
    with pytest.raises(ConfigError, match=words):
        resolve(load_protocol("text", (*SIZES, *sets)), task, parse("alibi"), 0, "cpu", "auto")


@pytest.mark.parametrize("length", [128, 129, 1000, 8192])
def test_in_repeat_the_second_half_is_the_first(length):
    task = tasks.make("text")
    again, plain = (task.test_set(name, None, 9, length) for name in ("repeat", "test"))
    ids = torch.cat([again.prompt, again.target], 1)
    half = (length + 1) // 2
    assert torch.equal(again.target, plain.target)
    assert torch.equal(ids[:, -half:], torch.cat([plain.prompt, plain.target], 1)[:, -half:])
    assert torch.equal(ids[:, : length - half], ids[:, half:])


@pytest.mark.parametrize("scaling", ["dynamic(factor=2)", "ntk(factor=auto)"])
def test_text_is_read_with_scalings_of_its_own_length(scaling):
    """Token by token as at once: its whole length is known."""
    sizes = (*SIZES, "eval.lengths=[128,300,600]")
    typed = parse(f"window(size=200):rope(rope_parameters={scaling})")
    config = resolve(load_protocol("text", sizes), "text", typed, 0, "cpu", "auto")
    trainer = start(config)
    assert not trainer.model.encoding.prefix_stable
    check_decoding(trainer.model, trainer.task, config)
    assert score(trainer.model, trainer.task, config, 300).status == "ok"
