"""Multiply a number by one digit."""

import torch
from torch import Tensor

from harness.tasks.base import Batch, Task, Vocab
from harness.tasks.digits import align, least, padded
from harness.theory.representation import Computation, Step


class Multiplication1N(Task):
    """A digit d times a number x_1 .. x_n, least significant digit first: n + 1 digits.

    7*829=6946              7 * 928 = 6496
    aligned=5: 7*82900=694600

    All digits are uniform, so d and the most significant ones may be 0.

    Vocabulary: the digits 0..9 (ids 0..9), "*" and "=". Length n: the digits of the number.
    Options: aligned, the scale that zeros pad to.
    Chance: the best constant is 0: d is 0 in a tenth of all instances, and more products end in it.
    Measured: 0.19.

    Paper: Chen et al. (2026), Example 2, whose n counts d too. Deviation: signs.
    """

    name = "multiplication_1n"
    summary = "a number times one digit"
    paper = "Chen et al. 2026, Example 2"
    family = "arithmetic"
    example = "7*829=6946"
    vocab = Vocab((*"0123456789", "*", "="))
    chance = 0.19

    def __init__(self, *, aligned: int = 0) -> None:
        align(self, aligned)

    def sample(self, generator: torch.Generator, batch: int, length: int) -> Batch:
        self.check_length(length)
        size = (batch, 1 + length)
        drawn = torch.randint(10, size, generator=generator, device=generator.device)
        d, x = drawn[:, :1], padded(drawn[:, 1:], self.aligned)
        times, equals = torch.full_like(d, 10), torch.full_like(d, 11)
        return Batch(torch.cat([d, times, x, equals], 1), products(d, x))

    def solve(self, prompt: list[int]) -> list[int]:
        x = prompt[2:-1]
        product = prompt[0] * sum(digit * 10**place for place, digit in enumerate(x))
        return [product // 10**place % 10 for place in range(len(x) + 1)]

    def measure(self, prompt: list[int]) -> int:
        return least(prompt[2:-1]) if self.aligned else len(prompt) - 3

    def max_tokens(self, length: int) -> tuple[int, int]:
        places = self.aligned or length
        return places + 3, places + 1

    def computation(self, n: int) -> Computation:
        m = self.aligned or n  # d, "*", x at places 3 .. m + 2, "="
        first = m + 4
        middle = (Step(first + k, digit, (1, 2 + k, 3 + k, first + k - 1)) for k in range(1, m))
        end = Step(first + m, carry, (1, m + 2, first + m - 1))
        return Computation(m + 3, (Step(first, lowest, (1, 3)), *middle, end))


def products(d: Tensor, x: Tensor) -> Tensor:
    """Return the digits (B, n + 1) of d (B, 1) times x (B, n), least significant first."""
    digits, over = [], torch.zeros_like(d[:, 0])
    for place in x.unbind(1):
        total = d[:, 0] * place + over
        digits.append(total % 10)
        over = total // 10
    return torch.stack([*digits, over], 1)


def lowest(d: int, x: int) -> int:
    """g_1 of Example 2."""
    return d * x % 10


def digit(d: int, before: int, x: int, written: int) -> int:
    """g_2: the carry out of the place before follows from the digit written there."""
    return (d * x + carry(d, before, written)) % 10


def carry(d: int, before: int, written: int) -> int:
    """g_3: the carry out of a place, one more if the digit written is below that of d x."""
    return d * before // 10 + (written < d * before % 10)
