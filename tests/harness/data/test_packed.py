"""Packed rows: one stream of whole samples, its positions and what is supervised."""

from functools import partial
from itertools import pairwise

import pytest
import torch

from harness import tasks
from harness.data.batches import LengthChoice, length_choice, training_batch
from harness.data.packed import packed
from harness.data.seeds import generator
from harness.settings.protocol import load_protocol, resolve
from harness.training.trainer import start
from pezoo.spec import parse

MINI = ("model.width=16", "model.heads=2", "train.batch=6", "train.context=40")


def rows_of(task, lengths=(2, 3, 4), weights=None, columns=40, seed=0, rows=6):
    choice = LengthChoice([*lengths], weights)
    draws = generator("here", seed)
    return packed(task, partial(choice.draw, draws), rows, columns, draws)


def test_rows_are_one_stream_of_whole_samples():
    task = tasks.make("turing_addition")
    batch = rows_of(task)
    stream = torch.cat([batch.inputs.flatten(), batch.labels[-1, -1:]]).tolist()
    assert batch.labels.flatten().tolist() == stream[1:]
    assert task.vocab.pad not in stream
    ends = [-1, *(i for i, token in enumerate(stream) if token == task.vocab.eos)]
    assert len(ends) > 3
    for before, end in pairwise(ends):
        sample = stream[before + 1 : end]
        prompt = sample[: sample.index(task.vocab.symbols.index("|")) + 1]
        assert sample == prompt + task.solve(prompt)


def test_what_is_supervised_are_answers_and_their_end():
    task = tasks.make("copy")
    batch = rows_of(task, columns=8)
    labels, answer = batch.labels.flatten().tolist(), batch.answer.flatten().tolist()
    inside, equals = False, task.vocab.symbols.index("=")
    before = batch.inputs.flatten().tolist()
    for read, label, supervised in zip(before, labels, answer, strict=True):
        inside = (inside or read == equals) and read != task.vocab.eos
        assert supervised == inside, (read, label)
    assert torch.equal(batch.pos, torch.arange(8)[None])


def test_samples_lengths_are_independent_and_follow_the_shares():
    task = tasks.make("copy")
    batch = rows_of(task, (1, 3), torch.tensor([1.0, 3.0]).double(), columns=3000)
    stream = batch.inputs.flatten().tolist()
    ends = [i for i, token in enumerate(stream) if token == task.vocab.eos]
    sizes = [b - a for a, b in pairwise(ends)]
    assert set(sizes) == {4, 8}  # tokens of 1 and 3 digits with = and EOS
    assert abs(sizes.count(8) / len(sizes) - 0.75) < 0.03
    pairs = list(pairwise(sizes))
    assert abs(pairs.count((8, 8)) / len(pairs) - 0.75**2) < 0.03


def config_of(*overrides, task="turing_addition", encoding="rope"):
    protocol = load_protocol("turing2024-mini", (*MINI, *overrides))
    return resolve(protocol, task, parse(encoding), 0, "cpu", "auto")


def test_the_batch_of_a_step_depends_on_seed_and_step_alone():
    config = config_of()
    task = tasks.make(config.task)
    one, other = (training_batch(task, config, step)[0].inputs for step in (3, 4))
    assert torch.equal(one, training_batch(task, config, 3)[0].inputs)
    assert not torch.equal(one, other)
    assert length_choice(task, config.train, 0).weights.tolist() == [1, 3, 5, 7, 9]


def test_tokens_look_across_the_borders_of_samples():
    """A token of the sample before changes what is predicted."""
    trainer = start(config_of())
    batch, _ = trainer.make_batch()
    eos = trainer.task.vocab.eos
    row = next(i for i in range(6) if eos in batch.inputs[i, 2:-1].tolist())
    end = batch.inputs[row].tolist().index(eos, 2)
    ids = batch.inputs[row : row + 1]
    changed = ids.clone()
    changed[0, 1] = (changed[0, 1] + 1) % 10
    with torch.no_grad():
        one, other = (trainer.model(x, batch.pos)[0, end + 1 :] for x in (ids, changed))
    assert not torch.equal(one, other)


def test_an_encoding_that_reads_the_scale_is_refused():
    with pytest.raises(ValueError, match="packed"):
        start(config_of(encoding="lbpe_sh"))


def test_a_batch_of_few_tokens_is_cut_or_refused_before_training():
    assert rows_of(tasks.make("copy"), columns=2, rows=1).inputs.shape == (1, 2)
    with pytest.raises(ValueError, match="prompt"):
        start(config_of("train.batch=1", "train.context=8"))
    trainer = start(config_of("train.batch=2", "train.context=8"))
    for step in range(20):
        assert training_batch(trainer.task, trainer.config, step)[0].answer.any()
