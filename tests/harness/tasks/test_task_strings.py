"""copy, reverse, odds_first, stack_manipulation and dyn_str_cpy by hand."""

import pytest
import torch

from harness import tasks


def answer(name, prompt):
    task = tasks.make(name)
    return task.vocab.decode(task.solve(task.vocab.encode(prompt).tolist()))


@pytest.mark.parametrize(
    ("name", "prompt", "expected"),
    [
        ("copy", "8349216=", "8349216"),
        ("copy", "7=", "7"),
        ("copy", "00100=", "00100"),
        ("reverse", "8349216=", "6129438"),
        ("reverse", "001=", "100"),
        ("odds_first", "012345=", "135024"),
        ("odds_first", "01234=", "13024"),
        ("odds_first", "5=", "5"),
        ("odds_first", "56=", "65"),
        ("dyn_str_cpy", "5839472,3=", "39472"),
        ("dyn_str_cpy", "5839472,5=", "5839472"),
        ("dyn_str_cpy", "5839472,2=", "2"),
        ("dyn_str_cpy", "5588,8=", "88"),  # not an instance, but read from the first 8 on
        ("stack_manipulation", "0110422=", "11020000"),
        ("stack_manipulation", "1=", "12"),
        ("stack_manipulation", "0110=", "01102"),
        ("stack_manipulation", "12=", "200"),
        ("stack_manipulation", "1222=", "20000"),  # POP on an empty stack
        ("stack_manipulation", "12243=", "012000"),  # then PUSH 1, PUSH 0 start anew
        ("stack_manipulation", "0334=", "10002"),
    ],
)
def test_by_hand(name, prompt, expected):
    assert answer(name, prompt) == expected


def test_stack_heights_and_tokens_are_uniform():
    task, n = tasks.make("stack_manipulation"), 6
    prompt = task.sample(torch.Generator().manual_seed(0), 30_000, n).prompt[:, :-1]
    heights = torch.bincount((prompt < 2).sum(1), minlength=n + 1)
    assert (heights[0], heights[n]) == (0, 0)  # at least one bit and one action
    assert torch.allclose(heights[1:n] / 30_000, torch.full((n - 1,), 1 / (n - 1)), atol=0.01)
    alone = task.sample(torch.Generator().manual_seed(0), 100, 1).prompt
    assert set(alone[:, 0].tolist()) == {0, 1}
    count = torch.bincount(prompt.flatten()).double()
    assert torch.allclose(count[:2] / count[:2].sum(), torch.tensor(1 / 2).double(), atol=0.01)
    assert torch.allclose(count[2:] / count[2:].sum(), torch.tensor(1 / 3).double(), atol=0.01)


def test_long_stacks_that_run_empty():
    task = tasks.make("stack_manipulation")
    made = task.sample(torch.Generator().manual_seed(1), 200, 400)
    for prompt, target in zip(made.prompt.tolist(), made.target.tolist(), strict=True):
        assert task.solve(prompt) == target


def test_dyn_str_cpy_starts_anywhere_and_its_digit_is_unique():
    task, n = tasks.make("dyn_str_cpy"), 7
    made = task.sample(torch.Generator().manual_seed(0), 20_000, n)
    s, d = made.prompt[:, :n], made.prompt[:, n + 1 : n + 2]
    assert ((s == d).sum(1) == 1).all()
    starts = torch.bincount((s == d).int().argmax(1), minlength=n) / 20_000
    assert torch.allclose(starts, torch.full((n,), 1 / n), atol=0.01)
