"""Divide a number by one digit."""

import torch
from torch import Tensor

from harness.tasks.base import Batch, Task, Vocab
from harness.tasks.digits import align, least, padded
from harness.theory.representation import Computation, Step


class DivisionN1(Task):
    """A number x_1 .. x_n, most significant digit first, by a digit d: the n digits of the result.

    829/7=118
    aligned=5: 00829/7=00118

    All digits are uniform, d over 1..9, so the most significant ones may be 0. The remainder is not
    asked for.

    Vocabulary: the digits 0..9 (ids 0..9), "/" and "=". Length n: the digits of the number.
    Options: aligned, the scale that zeros before the number pad to.
    Chance: the best constant is 0, for the first digit of the quotient above all. Measured: 0.15.

    Paper: Chen et al. (2026), Section VI, without the format: signs, the order of digits, and zeros
    before a number, which leave its value as it is, are ours.
    """

    name = "division_n1"
    summary = "a number divided by one digit"
    paper = "Chen et al. 2026, Section VI"
    family = "arithmetic"
    example = "829/7=118"
    vocab = Vocab((*"0123456789", "/", "="))
    chance = 0.15

    def __init__(self, *, aligned: int = 0) -> None:
        align(self, aligned)

    def sample(self, generator: torch.Generator, batch: int, length: int) -> Batch:
        self.check_length(length)
        device = generator.device
        x = torch.randint(10, (batch, length), generator=generator, device=device)
        d = torch.randint(1, 10, (batch, 1), generator=generator, device=device)
        x = padded(x, self.aligned, before=True)
        over, equals = torch.full_like(d, 10), torch.full_like(d, 11)
        return Batch(torch.cat([x, over, d, equals], 1), quotients(x, d))

    def solve(self, prompt: list[int]) -> list[int]:
        *x, _, d, _ = prompt
        quotient = int("".join(map(str, x))) // d
        return [int(digit) for digit in str(quotient).zfill(len(x))]

    def measure(self, prompt: list[int]) -> int:
        x = prompt[:-3]
        return least(x[::-1]) if self.aligned else len(x)

    def max_tokens(self, length: int) -> tuple[int, int]:
        places = self.aligned or length
        return places + 3, places

    def computation(self, n: int) -> Computation:
        m = self.aligned or n  # x, "/", d at place m + 2, "="
        first = m + 4
        later = (Step(first + k, digit, (k, first + k - 1, k + 1, m + 2)) for k in range(1, m))
        return Computation(m + 3, (Step(first, leading, (1, m + 2)), *later))


def quotients(x: Tensor, d: Tensor) -> Tensor:
    """Return the digits (B, n) of x (B, n) divided by d (B, 1), most significant first."""
    digits, rest = [], torch.zeros_like(d[:, 0])
    for place in x.unbind(1):
        total = 10 * rest + place
        digits.append(total // d[:, 0])
        rest = total % d[:, 0]
    return torch.stack(digits, 1)


def leading(x: int, d: int) -> int:
    """The first digit of the quotient."""
    return x // max(d, 1)


def digit(before: int, written: int, x: int, d: int) -> int:
    """A later digit: the place before leaves the remainder (before - written d) modulo 10."""
    rest = (before - written * d) % 10
    return (10 * rest + x) // max(d, 1) % 10
