"""The problems of C-RASP: how they are drawn, and what the paper's protocols offer."""

from collections import Counter
from itertools import product

import pytest
import torch

from harness import tasks
from harness.settings.protocol import load_protocol, resolve
from leaderboard.papers.paper import lines_of, read
from pezoo.registry import make
from pezoo.spec import parse


def drawn(name, length, batch=4000, seed=0):
    """The prompts, without their last symbol, and the targets, as text."""
    task = tasks.make(name)
    made = task.sample(torch.Generator().manual_seed(seed), batch, length)
    both = zip(made.prompt, made.target, strict=True)
    return [(task.vocab.decode(p)[:-1], task.vocab.decode(t)) for p, t in both]


def test_strings_of_letters_without_a_tie_are_equally_likely():
    found = Counter(prompt for prompt, _ in drawn("majority(symbols=3)", 4))
    untied = set()
    for letters in product("abc", repeat=4):
        counts = sorted(map(letters.count, "abc"))
        if counts[-1] > counts[-2]:
            untied.add("".join(letters))
    assert {*found} == untied
    expected = 4000 / len(untied)
    assert all(abs(n - expected) < 6 * expected**0.5 for n in found.values())


@pytest.mark.parametrize(
    ("name", "length", "numbers"),
    [
        ("binary_majority", 5, {0, 1, 2, 3, 4, 5}),
        ("binary_majority", 6, {0, 1, 2, 4, 5, 6}),
        ("parity_check(ones=uniform)", 6, {0, 1, 2, 3, 4, 5, 6}),
    ],
)
def test_the_number_of_ones_is_uniform_and_their_places_are(name, length, numbers):
    found = [prompt for prompt, _ in drawn(name, length)]
    counts = Counter(prompt.count("1") for prompt in found)
    assert {*counts} == numbers
    expected = 4000 / len(numbers)
    assert all(abs(n - expected) < 5 * expected**0.5 for n in counts.values())
    first = Counter(prompt.index("1") for prompt in found if prompt.count("1") == 1)
    assert {*first} == {*range(length)}
    assert max(first.values()) < 1.5 * min(first.values())


def test_interleaved_strings_are_independent_and_each_is_answered():
    task = tasks.make("binary_majority(strings=3)")
    assert task.lengths(1, 10) == [3, 6, 9]
    assert task.solve(task.vocab.encode("100101100=").tolist()) == [1, 0, 0]
    answers = Counter(target for _, target in drawn("binary_majority(strings=3)", 15))
    assert len(answers) == 8
    assert max(answers.values()) < 1.4 * min(answers.values())


def test_operands_have_no_leading_zeros_and_uniform_lengths():
    sizes = Counter()
    for prompt, target in drawn("binary_sum", 9):
        a, b = prompt.split("+")
        assert len(a) + len(b) == 7
        assert all(len(own) == 1 or own[0] == "1" for own in (a, b, target))
        sizes[len(a)] += 1
    assert {*sizes} == {1, 2, 3, 4, 5, 6}
    assert max(sizes.values()) < 1.3 * min(sizes.values())
    single = Counter(prompt for prompt, _ in drawn("binary_sum", 4))
    assert {*single} == {"0+0", "0+1", "1+0", "1+1"}


@pytest.mark.parametrize("name", ["crasp", "crasp-mini"])
def test_offsets_reach_the_longest_test_and_no_further(name):
    """Every position of a test is one that training has."""
    for line in lines_of(read("crasp"), read("crasp").tables["1"]):
        protocol = load_protocol(name)
        config = resolve(protocol, line.task, parse("shifted:learned"), 0, "cpu", "auto")
        task = tasks.make(line.task)
        longest = task.lengths(1, max(config.eval.lengths))[-1]
        assert longest > 2.9 * config.train.lengths[1]
        sizes = [2 * n + 4, n + 4] if (n := max(config.eval.lengths)) else []
        span = make(config.spec, d_model=8, n_heads=2, d_head=4, n_layers=1, train_len=9).span
        assert sum(task.max_tokens(longest)) <= span
        assert span in sizes
        assert len(task.vocab) <= config.model.vocab
