"""Long instances and distributions of the tasks of the PRISM paper."""

import pytest
import torch

from harness import tasks


def sampled(name, length, batch, seed=0):
    """The task, and prompts and targets of a batch."""
    task = tasks.make(name)
    made = task.sample(torch.Generator().manual_seed(seed), batch, length)
    return task, made.prompt, made.target


def texts(name, length, batch):
    """Pairs of prompts and targets as text."""
    task, prompts, targets = sampled(name, length, batch)
    both = zip(prompts, targets, strict=True)
    return [(task.vocab.decode(prompt), task.vocab.decode(target)) for prompt, target in both]


@pytest.mark.parametrize(("name", "sign"), [("addition", "+"), ("multiplication", "x")])
def test_the_shorter_operand_is_uniform_and_on_either_side(name, sign):
    n, batch = 4, 4000
    sizes = [tuple(map(len, p.rstrip("=").split(sign))) for p, _ in texts(name, n, batch)]
    share = {pair: sizes.count(pair) / batch for pair in set(sizes)}
    expected = {pair: 1 / (2 * n) for k in range(1, n) for pair in ((k, n), (n, k))}
    assert share == pytest.approx(expected | {(n, n): 1 / n}, abs=0.03)


def test_stack_heights_and_tokens_are_uniform():
    n = 6
    prompt = sampled("stack_manipulation", n, 30_000)[1][:, :-1]
    heights = torch.bincount((prompt < 2).sum(1), minlength=n + 1)
    assert (heights[0], heights[n]) == (0, 0)  # at least one bit and one action
    assert torch.allclose(heights[1:n] / 30_000, torch.full((n - 1,), 1 / (n - 1)), atol=0.01)
    alone = sampled("stack_manipulation", 1, 100)[1]
    assert set(alone[:, 0].tolist()) == {0, 1}
    count = torch.bincount(prompt.flatten()).double()
    assert torch.allclose(count[:2] / count[:2].sum(), torch.tensor(1 / 2).double(), atol=0.01)
    assert torch.allclose(count[2:] / count[2:].sum(), torch.tensor(1 / 3).double(), atol=0.01)


def test_long_stacks_that_run_empty():
    task, prompts, targets = sampled("stack_manipulation", 400, 200, seed=1)
    for prompt, target in zip(prompts.tolist(), targets.tolist(), strict=True):
        assert task.solve(prompt) == target


def test_dyn_str_cpy_starts_anywhere_and_its_digit_is_unique():
    n = 7
    prompt = sampled("dyn_str_cpy", n, 20_000)[1]
    s, d = prompt[:, :n], prompt[:, n + 1 : n + 2]
    assert ((s == d).sum(1) == 1).all()
    starts = torch.bincount((s == d).int().argmax(1), minlength=n) / 20_000
    assert torch.allclose(starts, torch.full((n,), 1 / n), atol=0.01)
