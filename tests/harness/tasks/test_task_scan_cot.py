"""SCAN: the commands against the published files, and the written-out form by hand."""

import hashlib
from collections import Counter

import pytest
import torch

from harness import tasks
from harness.data.batches import length_choice
from harness.settings.protocol import load_protocol, resolve, sample_count
from harness.tasks.base import TaskError
from harness.tasks.scan_cot import ScanCot, commands
from pezoo.spec import parse

LONGEST_TRAINED = 22  # actions, in the official length split


def length_split():
    """The commands to train on, and those to test on."""
    train = [c for c in commands() if len(c.actions.split()) <= LONGEST_TRAINED]
    return train, [c for c in commands() if len(c.actions.split()) > LONGEST_TRAINED]


def sha256(some):
    lines = sorted(f"IN: {c.words} OUT: {c.actions}\n" for c in some)
    return hashlib.sha256("".join(lines).encode()).hexdigest()


def test_all_commands_are_those_of_scan():
    assert len(commands()) == len({c.words for c in commands()}) == 20_910
    assert sha256(commands()) == "6be4b39bc8bf3a20be810b6991250d0493e608560609db6765dd679e1ed1c98e"


def test_length_split_is_the_official_one():
    train, test = length_split()
    assert (len(train), len(test)) == (16_990, 3_920)
    assert sha256(train) == "7ffb97f45029871c94bede7e723f7a4aa179eb99fe2b977a18283310422c719d"
    assert sha256(test) == "3297fd0b676c391f7bc3a7385aa66a7fdf64f6f8e81ad584810c1d4ebd0eaa2c"


def test_solver_agrees_with_every_command():
    task = ScanCot()
    index = {s: i for i, s in enumerate(task.vocab.symbols)}
    for c in commands():
        solved = task.solve([index[w] for w in f"{c.words} =".split()])
        assert solved == [index[w] for w in c.thought.split()]
        in_order = [w for w in c.thought.split() if w.startswith("I_")]
        assert " ".join(in_order) == c.actions


def test_lengths_are_those_that_exist():
    existing = {len(c.actions.split()) for c in commands()}
    task = ScanCot()
    assert task.lengths(1, 1000) == sorted(existing)
    missing = {23, 29, 31, 34, 35, 37, 38, 39, *range(41, 48)}
    assert set(range(1, 49)) - existing == missing
    with pytest.raises(TaskError, match="no instance of length 49; nearest: 48"):
        task.sample(torch.Generator(), 1, 49)


def test_sample_is_uniform_over_the_commands_of_a_length():
    task = ScanCot()
    made = task.sample(torch.Generator().manual_seed(0), 6000, 1)
    drawn = Counter(task.vocab.decode(p).removesuffix(" =") for p in made.prompt)
    assert set(drawn) == {"walk", "look", "run", "jump", "turn left", "turn right"}
    assert all(abs(count - 1000) < 150 for count in drawn.values())


def test_the_test_side_of_the_official_split_is_tested_whole():
    config = resolve(load_protocol("prism2025"), "scan_cot", parse("nope"), 0, "cpu", "auto")
    task, (_, test) = tasks.make("scan_cot"), length_split()
    above = [n for n in config.eval.lengths if n > LONGEST_TRAINED]
    shown = [tuple(row) for n in above for row in _texts(task, task.instances(n))]
    assert len(shown) == len(test) == len(set(shown))
    assert {prompt for prompt, _ in shown} == {f"{command.words} =" for command in test}
    assert all(sample_count(task, config.eval, n) >= len(task.instances(n).prompt) for n in above)


def test_training_draws_every_command_of_the_split_alike():
    config = resolve(load_protocol("prism2025"), "scan_cot", parse("nope"), 0, "cpu", "auto")
    task, draws, late = tasks.make("scan_cot"), torch.Generator().manual_seed(0), 100_000
    drawn = length_choice(task, config.train, late).draw(draws, 3000)
    counts = torch.tensor([len(task.instances(n).prompt) for n in range(1, 23)])
    share = torch.bincount(torch.tensor(drawn), minlength=23)[1:] / len(drawn)
    assert torch.allclose(share, counts / counts.sum(), atol=0.02)
    early = length_choice(task, config.train, 7_000).draw(draws, 300)
    assert max(early) == 10  # at most 10 for the second 5,000 steps


def _texts(task, batch):
    for prompt, target in zip(batch.prompt, batch.target, strict=True):
        yield task.vocab.decode(prompt), task.vocab.decode(target)
