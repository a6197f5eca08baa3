"""n-grams that are there once, and those that are there twice."""

from collections import Counter

import pytest
import torch

from harness import tasks


def ngrams(row, n):
    return Counter(tuple(row[i : i + n]) for i in range(len(row) - n + 1))


def rows(text, length, batch=16, seed=0):
    made = tasks.make(text).sample(torch.Generator().manual_seed(seed), batch, length)
    assert torch.equal(made.prompt[:, :-1], made.target)
    return made.target.tolist()


@pytest.mark.parametrize(
    ("n", "repeats", "length"),
    [(2, 0, 60), (3, 0, 50), (3, 0, 1000), (4, 0, 1000), (3, 1, 30), (3, 4, 1000), (2, 2, 20)],
)
def test_ngrams_are_unique_but_for_those_that_repeat(n, repeats, length):
    for row in rows(f"ngram_copy(n={n},repeats={repeats})", length):
        twice = sum(count > 1 for count in ngrams(row, n).values())
        assert min(repeats, 1) <= twice <= repeats * 2 * n  # few come up by chance


@pytest.mark.parametrize("length", [6, 7, 12])
def test_a_planted_ngram_does_not_overlap_its_original(length):
    """Else aaaa would count as aaa twice."""
    last = length - 2
    for row in rows("ngram_copy(repeats=1)", length, batch=200):
        pairs = [(i, j) for i in range(last) for j in range(i + 3, last)]
        assert any(row[i : i + 3] == row[j : j + 3] for i, j in pairs)


def test_which_lengths_there_are():
    assert tasks.make("ngram_copy").lengths(1, 3000)[-1] == 1757
    assert tasks.make("ngram_copy(n=2)").lengths(1, 100) == [*range(1, 68)]
    assert tasks.make("ngram_copy(n=2,repeats=1)").lengths(1, 6) == [4, 5, 6]
