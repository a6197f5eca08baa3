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
SOLVED = [name for name in ALL if tasks.make(name).determined]


def bare(task, row):
    return [token for token in row.tolist() if token != task.vocab.pad]


@pytest.mark.parametrize("name", ALL)
def test_contract(name):
    check_task(tasks.make(name))


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
