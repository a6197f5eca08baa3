"""Samples of the tasks of recall and state, and the given tokens of their answers."""

from collections import Counter
from itertools import groupby

import pytest
import torch

from harness import tasks
from harness.data.sequences import to_sequences
from harness.settings.protocol import load_protocol, resolve
from harness.tasks.base import TaskError
from harness.training.predict import decode, teacher_forced
from harness.training.trainer import start
from pezoo.spec import parse

SIZES = ("model.width=16", "model.heads=2", "model.vocab=128", "train.batch=4", "train.warmup=1")


def drawn(name, length, batch=400, seed=0):
    """The prompts and targets, as text."""
    task = tasks.make(name)
    made = task.sample(torch.Generator().manual_seed(seed), batch, length)
    return [tuple(map(task.vocab.decode, pair)) for pair in zip(*vars(made).values(), strict=True)]


@pytest.mark.parametrize("protocol", ["quick", "ruoss2023-mini"])
def test_keys_of_answers_are_given(protocol):
    """A model reads them, and is trained and scored on values and EOS alone."""
    task = tasks.make("mqar")
    config = resolve(load_protocol(protocol, SIZES), "mqar", parse("nope"), 0, "cpu", "auto")
    model = start(config).model.eval()
    made = task.sample(torch.Generator().manual_seed(0), 6, 5)
    batch = to_sequences(made, task, config.track)
    keys, values = made.target[:, ::2], made.target[:, 1::2]
    own = batch.labels[batch.answer].view(6, -1)
    assert torch.equal(own[:, :5], values)
    assert torch.equal(batch.counted, batch.answer)
    for row, asked in zip(batch.inputs.tolist(), keys.tolist(), strict=True):
        read = [token for token in row[11 - (config.track == "encoder") :] if token < 40]
        assert read == asked
    if config.track == "decoder":
        assert (own[:, 5] == task.vocab.eos).all()
        out = decode(model, batch, 5, torch.Generator())
        assert torch.equal(out[:, 10:-1:2], keys)
        forced = teacher_forced(model, batch, 5, torch.Generator())
        first = batch.answer & (batch.answer.cumsum(1) == 1)  # later ones read what was written
        assert torch.equal(out[first], forced[first])


def test_queries_are_unrelated_to_the_order_of_pairs():
    places = Counter()
    for prompt, target in drawn("mqar", 6, 2000):
        places[prompt.split()[:-1:2].index(target.split()[0])] += 1
    assert len(places) == 6
    assert max(places.values()) < 1.3 * min(places.values())


@pytest.mark.parametrize("length", [1, 2, 7, 40])
def test_pairs_are_four_fifths_of_mqmtar(length):
    for prompt, _ in drawn("mqmtar", length, 20):
        memory, *queries = prompt[:-1].split("?")
        assert len(memory) == 15 * length // 2
        assert len({word.split(":")[0] for word in memory.split("_") if word}) == length
        assert len(queries) == 4


def test_instructions_of_flip_flop():
    task = tasks.make("flip_flop")
    for name, share in (("", 0.8), ("dense", 0.1), ("sparse", 0.98)):
        draws = torch.Generator().manual_seed(0)
        made = task.test_set(name, draws, 400, 60) if name else task.sample(draws, 400, 60)
        counts = Counter(made.prompt[:, 2:-1:2].flatten().tolist())  # but for the first and last
        total = sum(counts.values())
        assert counts[task.vocab.id("i")] / total == pytest.approx(share, abs=0.01)
        assert counts[task.vocab.id("w")] / total == pytest.approx((1 - share) / 2, abs=0.01)
        for prompt, target in zip(made.prompt.tolist(), made.target.tolist(), strict=True):
            assert task.solve(prompt) == target
            reads = [i for i in range(2, 120, 2) if prompt[i] == task.vocab.id("r")]
            assert all(prompt[i + 1 : i + 2] == task.solve(prompt[: i + 1]) for i in reads)
    with pytest.raises(TaskError, match="dense"):
        task.check_test_set("other")


def test_the_letter_of_indirect_index_occurs_once():
    offsets = Counter()
    for prompt, _ in drawn("indirect_index", 12, 4000):
        word, _, query = prompt[:-1].partition(",")
        assert word.count(query[0]) == 1
        offsets[query[1:]] += 1
    assert set(offsets) == {"-3", "-2", "-1", "+1", "+2", "+3"}
    assert offsets["+1"] > offsets["+3"]  # which has fewer pairs of places


def test_runs_of_local_count():
    sizes, first = Counter(), Counter()
    for prompt, target in drawn("local_count", 60):
        first[prompt[0]] += 1
        runs = [len(list(run)) for _, run in groupby(prompt[:-1])]
        assert target == "".join(str(i) for run in runs for i in range(run))
        sizes.update(runs[:5])
    assert set(sizes) == {2, 3, 4, 5, 6}
    assert max(sizes.values()) < 1.3 * min(sizes.values())
    assert len(first) == 26


def test_brackets_open_at_a_time():
    most = 0
    for prompt, target in drawn("dyck(kinds=2,depth=3)", 40):
        height = 0
        for bracket in prompt[:-1] + target:
            height += 1 if bracket in "([" else -1
            assert 0 <= height <= 3
            most = max(most, height)
        assert height == 0
    assert most == 3


def test_blocks_of_an_alternation():
    answers, begins = Counter(), Counter()
    for prompt, target in drawn("alternation(k=3)", 8, 4000):
        blocks = [len(list(block)) for _, block in groupby(prompt[:-1])]
        assert prompt[0] == "a"
        assert len(blocks) == 2 + int(target)
        answers[target] += 1
        begins[blocks[0]] += len(blocks) == 2
    assert answers["1"] == pytest.approx(2000, abs=150)
    assert len(begins) == 7
    assert max(begins.values()) < 1.4 * min(begins[i] for i in range(1, 8))
