"""Every task keeps the contract, and its solver agrees with its samples."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from harness import tasks
from harness.tasks.base import TaskError
from harness.tasks.testing import check_task

WITH_OPTIONS = ["copy(symbols=3)", "odds_first(symbols=2)", "reverse(symbols=2)"]
WITH_OPTIONS += ["multiplication(square=true)"]
WITH_OPTIONS += ["addition(cot=false)", "addition(cot=false,aligned=20)", "copy(aligned=20)"]
WITH_OPTIONS += [f"{name}(aligned=20)" for name in ("parity", "multiplication_1n", "division_n1")]
ALL = [*tasks.names(), *WITH_OPTIONS]
OTHER_SIZES = [
    *("mqar(keys=8,values=4)", "mqmtar(letters=4)", "flip_flop(ignore=0.1)", "sort(symbols=30)"),
    *("indirect_index(reach=1)", "local_count(reps=3)", "dyck(kinds=2,depth=2)"),
    *("alternation(k=2)", "alternation(k=9)", "majority(symbols=2)", "majority(symbols=5)"),
    *("binary_majority(strings=3)", "binary_majority(strings=4)", "unique_copy(symbols=30)"),
    *("parity_check(ones=uniform)", "ngram_copy(n=2)", "ngram_copy(repeats=1)"),
    *("ngram_copy(n=2,repeats=3)", "turing_machine(machine=9)", "turing_machine(steps=4)"),
    "turing_machine(steps=3,format=plain)",
]
IMPOSSIBLE = [
    *("mqar(keys=4)", "mqmtar(letters=40)", "flip_flop(ignore=1.0)", "indirect_index(reach=0)"),
    *("sort(symbols=1)", "local_count(reps=20)", "dyck(kinds=5)", "alternation(k=1)"),
    *("majority(symbols=1)", "binary_majority(strings=0)", "ngram_copy(n=1)"),
    "ngram_copy(repeats=-1)",
]
SOLVED = [name for name in ALL if tasks.make(name).determined]


def bare(task, row):
    return [token for token in row.tolist() if token != task.vocab.pad]


DEAR = ("local_count", "multiplication", "turing_sgd", "turing_addition", "modular_arithmetic")
CASES = [pytest.param(one, marks=pytest.mark.slow) if one in DEAR else one for one in ALL]


@pytest.mark.parametrize("name", CASES)
def test_contract(name):
    check_task(tasks.make(name))


@pytest.mark.parametrize("name", OTHER_SIZES)
def test_contract_with_other_sizes(name):
    check_task(tasks.make(name), lengths=(1, 2, 3, 4, 6, 8, 12))


@pytest.mark.parametrize("name", IMPOSSIBLE)
def test_impossible_options(name):
    with pytest.raises(ValueError, match="must be"):
        tasks.make(name)


@pytest.mark.parametrize("name", SOLVED)
@settings(max_examples=30)
@given(seed=st.integers(0, 2**32 - 1), length=st.integers(1, 48))
def test_solver_agrees_with_samples(name, seed, length):
    task = tasks.make(name)
    if not task.lengths(length, length):
        with pytest.raises(TaskError, match="nearest"):
            task.sample(torch.Generator().manual_seed(seed), 1, length)
        return
    batch = 32 if sum(task.max_tokens(length)) < 500 else 2
    made = task.sample(torch.Generator().manual_seed(seed), batch, length)
    for prompt, target in zip(made.prompt, made.target, strict=True):
        assert task.solve(bare(task, prompt)) == bare(task, target)
        if not task.aligned:  # whose zeros hide it
            assert task.measure(bare(task, prompt)) == length


@pytest.mark.parametrize("name", ALL)
def test_max_tokens_is_attained(name):
    task = tasks.make(name)
    for length in task.lengths(1, 4):
        made = task.sample(torch.Generator().manual_seed(0), 2000, length)
        longest = [(x != task.vocab.pad).sum(1).max() for x in (made.prompt, made.target)]
        assert tuple(map(int, longest)) == task.max_tokens(length)
