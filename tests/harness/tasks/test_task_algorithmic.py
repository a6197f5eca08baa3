"""The 15 tasks of Ruoss et al. (2023) against their code's data, by hand and by definition."""

import json
import math
from pathlib import Path

import pytest
import torch
from torch.nn.functional import cross_entropy

from harness import tasks
from harness.tasks import binary, brackets
from harness.tasks.strings import Strings
from harness.tasks.testing import best_constant

FIXTURES = json.loads(
    (Path(__file__).parents[2] / "data" / "algorithmic-tasks.json").read_text("utf-8")
)["tasks"]


def ids(rows):
    return torch.tensor([[int(letter, 16) for letter in row] for row in rows])


def text(task, row):
    return task.vocab.decode(row)


@pytest.mark.parametrize("name", FIXTURES)
def test_the_published_code_gives_the_same(name):
    task, classes = tasks.make(name), FIXTURES[name]["classes"]
    asks = len(task.vocab.symbols) - 1
    for case in FIXTURES[name]["cases"]:
        x, target = ids(case["prompts"]), ids(case["targets"])
        assert torch.equal(task.answer(x), target)
        assert [task.solve([*row, asks]) for row in x.tolist()] == target.tolist()
        assert max(x.max(), target.max()) < asks
        assert (x.shape[1] + 1, target.shape[1]) == task.max_tokens(x.shape[1])
        place = torch.arange(target.shape[1])
        counted = task.counted(target)
        assert torch.equal(counted, place < torch.tensor(case["counted"])[:, None])
        row, token = torch.arange(8)[:, None, None], torch.arange(classes)
        logits = ((7 * row + 5 * place[:, None] + 3 * token) % 11) / 4  # (B, Q, K)
        loss = cross_entropy(logits.double().flatten(0, 1), target.flatten())
        hits = logits.argmax(2)[counted] == target[counted]
        assert float(loss) == pytest.approx(case["loss"], abs=5e-6)  # theirs is of float32
        assert float(hits.double().mean()) == pytest.approx(case["accuracy"], abs=1e-6)


def drawn(name, seed, length, batch=32):
    task = tasks.make(name)
    assert isinstance(task, Strings)
    made = task.sample(torch.Generator().manual_seed(seed), batch, length)
    rows = zip(made.prompt[:, :-1], made.target, strict=True)
    return [(text(task, prompt), text(task, target)) for prompt, target in rows]


def number(bits):
    return int(bits[::-1], 2)


def test_long_answers_are_exact():
    ones = torch.ones(1, 2000, dtype=torch.int64)
    x = torch.cat([ones, torch.full((1, 1), binary.END), ones], dim=1)
    target = text(
        tasks.make("binary_multiplication"), tasks.make("binary_multiplication").answer(x)[0]
    )
    assert number(target.partition("2")[0]) == (2**2000 - 1) ** 2
    root = tasks.make("compute_sqrt").answer(torch.ones(1, 3001, dtype=torch.int64))[0]
    assert int("".join(map(str, root.tolist())), 2) == math.isqrt(2**3001 - 1)


@pytest.mark.parametrize("operators", [2, 3])
def test_expressions_split_and_choose_evenly(operators):
    n, batch = 12, 20_000
    x = brackets.expressions(torch.Generator().manual_seed(0), batch, n, operators)
    depth = (x == brackets.OPEN).cumsum(1) - (x == brackets.CLOSE).cumsum(1)
    infix = (depth == 1) & (x >= brackets.PLUS) & (x <= brackets.TIMES)
    infix &= (x.roll(1, 1) < brackets.PLUS) | (x.roll(1, 1) == brackets.CLOSE)
    assert (infix.sum(1) == 1).all()
    left = torch.bincount(infix.int().argmax(1) - 1) / batch  # 1 to n - 4 tokens
    assert torch.allclose(left[1:], torch.full((n - 4,), 1 / (n - 4)), atol=0.01)
    drawn = torch.bincount(x[infix] - brackets.PLUS) / batch
    assert torch.allclose(drawn, torch.full((operators,), 1 / operators), atol=0.015)
    digits = torch.bincount(x[x < brackets.PLUS]).double()
    assert torch.allclose(digits / digits.sum(), torch.tensor(0.2).double(), atol=0.01)


def test_the_hidden_digit_is_the_next_after_a_random_token():
    prompts = [prompt for prompt, _ in drawn("solve_equation", 0, 7, batch=8000)]
    either = [p for p in prompts if p[2] in "+-" and p[3] in "01234x"]  # (d+d)=v
    first = sum(p[1] == "x" for p in either) / len(either)
    assert len(either) > 7000
    assert first == pytest.approx(3 / 5, abs=0.02)  # from ")", "(" and d itself


def test_positive_numbers_are_uniform():
    draws, batch = torch.Generator().manual_seed(0), 30_000
    bits = binary.positive(draws, torch.full((batch, 1), 3), 5)
    numbers = torch.bincount((bits * 2 ** torch.arange(5)).sum(1), minlength=8) / batch
    assert numbers[0] == 0
    assert torch.allclose(numbers[1:], torch.full((7,), 1 / 7), atol=0.01)
    wide = binary.positive(draws, torch.full((batch, 1), 200), 200).double()
    assert torch.allclose(wide.mean(0), torch.tensor(0.5).double(), atol=0.02)


def test_operands_share_the_length_evenly():
    n, batch = 7, 20_000
    x = tasks.make("binary_addition").draw(torch.Generator().manual_seed(0), batch, n)
    place = torch.bincount((x == binary.END).int().argmax(1), minlength=n) / batch
    assert torch.allclose(place[1:-1], torch.full((n - 2,), 1 / (n - 2)), atol=0.015)
    assert (place[0], place[-1]) == (0, 0)
    short = tasks.make("binary_addition").draw(torch.Generator().manual_seed(0), 100, 2)
    assert {tuple(row) for row in short.tolist()} == {(0, 0), (1, 0), (0, 1)}


@pytest.mark.parametrize(
    ("name", "length", "expected"),
    [
        ("bucket_sort", 60, 0.82),
        ("stack_manipulation", 60, 0.50),
        ("binary_addition", 60, 0.50),
        ("modular_arithmetic", 60, 0.297),
        ("copy", 20, 0.10),
    ],
)
def test_the_best_constant_at_every_place(name, length, expected):
    found = best_constant(tasks.make(name), length, samples=4000)
    assert found == pytest.approx(expected, abs=0.015)
