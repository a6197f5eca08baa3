"""Add two numbers, with every carry written out or without."""

import torch
from torch import Tensor

from harness.tasks.base import Batch, Task, Vocab
from harness.tasks.digits import align, least, operands, padded, sums
from harness.tasks.ragged import Ragged, column, concatenate, dense, ragged_batch
from harness.theory.representation import Computation, Step


class Addition(Task):
    """a + b, least significant digit first, then one step per digit and the sum.

    829+03=8008,2305,9009->859.    928 + 30 = 958; steps: digit of a, of b, carry out, digit
    9+9=9918->81.                  a final carry adds a digit to the sum and no step

    A step past the end of the shorter operand reads it as 0. One operand has n digits, the other
    k, k uniform over 1..n; a fair coin says which is which. All digits are uniform, so the most
    significant ones may be 0.

    cot=false: 829+031=8501        two operands of n digits, then the n + 1 digits of the sum
    aligned=5: 82900+03100=850100  the same with zeros up to 5 digits

    Vocabulary: the digits 0..9 (ids 0..9), "+", "=", ",", "->" (one symbol) and ".".
    Length n: the number of digits of the longer operand.
    Options: cot, the steps; aligned, the scale that zeros pad to, which needs cot=false.
    Chance: the best constant is 0. It is right on the free tokens (digits of a and b, carry, digit,
    digit of the sum) with 0.1 for the longer operand, 0.55 for the shorter (half of whose digits
    are padding), 0.75 for the carry (1/2 within the overlap, 1 past it), 0.1 and 0.1. Their mean,
    for long n, is 0.32.

    Without steps 0.1 for every digit but the last.

    Paper: PRISM, Table 3, which does not say how the operands' lengths are drawn. Without steps:
    Chen et al. 2026, Example 8.
    Errors: ValueError for aligned with cot.
    """

    name = "addition"
    summary = "sum of two numbers with its carries"
    paper = "PRISM, Table 3"
    family = "arithmetic"
    example = "829+03=8008,2305,9009->859."
    vocab = Vocab((*"0123456789", "+", "=", ",", "->", "."))
    chance = 0.32

    def __init__(self, *, cot: bool = True, aligned: int = 0) -> None:
        self.cot = cot
        if not cot:
            self.chance, self.example = 0.1, "829+031=8501"
        elif aligned:
            raise ValueError("aligned needs cot=false")
        align(self, aligned)

    def sample(self, generator: torch.Generator, batch: int, length: int) -> Batch:
        self.check_length(length)
        if not self.cot:
            return self._sums_alone(generator, batch, length)
        a, b, len_a, len_b = operands(generator, batch, length)
        place = torch.arange(length, device=a.device)
        plus, equals = (column(a, self.vocab.id(c)) for c in "+=")
        prompt = concatenate((a, place < len_a), plus, (b, place < len_b), equals)
        widths = self.max_tokens(length)
        return ragged_batch(prompt, self._steps_and_sum(a, b), self.vocab.pad, widths)

    def solve(self, prompt: list[int]) -> list[int]:
        plus, equals, comma, arrow, stop = range(10, 15)
        split = prompt.index(plus)
        a, b = prompt[:split], prompt[split + 1 : prompt.index(equals)]
        if not self.cot:
            number = sum(10**k * (x + y) for k, (x, y) in enumerate(zip(a, b, strict=True)))
            return [number // 10**k % 10 for k in range(len(a) + 1)]
        steps: list[int] = []
        total: list[int] = []
        carry = 0
        for i in range(max(len(a), len(b))):
            d_a = a[i] if i < len(a) else 0
            d_b = b[i] if i < len(b) else 0
            carry, digit = divmod(d_a + d_b + carry, 10)
            steps += [d_a, d_b, carry, digit, comma]
            total.append(digit)
        return steps[:-1] + [arrow] + total + [carry] * carry + [stop]

    def measure(self, prompt: list[int]) -> int:
        split = prompt.index(self.vocab.id("+"))
        if self.aligned:
            return max(least(prompt[:split]), least(prompt[split + 1 : -1]))
        return max(split, len(prompt) - split - 2)

    def max_tokens(self, length: int) -> tuple[int, int]:
        places = self.aligned or length
        return 2 * places + 2, places + 1 if not self.cot else 6 * length + 2

    def computation(self, n: int) -> Computation | None:
        if self.cot:
            return None
        m = self.aligned or n  # x, "+", y at places m + 2 .. 2m + 1, "="
        first = 2 * m + 3
        middle = (
            Step(first + k, digit, (k, m + 1 + k, first + k - 1, k + 1, m + 2 + k))
            for k in range(1, m)
        )
        end = Step(first + m, carry, (m, 2 * m + 1, first + m - 1))
        return Computation(2 * m + 2, (Step(first, lowest, (1, m + 2)), *middle, end))

    def _sums_alone(self, generator: torch.Generator, batch: int, length: int) -> Batch:
        digits = torch.randint(10, (2, batch, length), generator=generator, device=generator.device)
        a, b = (padded(x, self.aligned) for x in digits)
        total, out = sums(a, b)
        plus, equals = (torch.full_like(a[:, :1], self.vocab.id(c)) for c in "+=")
        return Batch(torch.cat([a, plus, b, equals], 1), torch.cat([total, out[:, -1:]], 1))

    def _steps_and_sum(self, a: Tensor, b: Tensor) -> Ragged:
        """Write the steps, the arrow, the sum and the stop (B, 6n + 2), from a, b (B, n)."""
        comma, arrow, stop = map(self.vocab.id, (",", "->", "."))
        digit, carry = sums(a, b)
        steps = torch.stack([a, b, carry, digit, torch.full_like(a, comma)], dim=2).flatten(1)
        steps[:, -1] = arrow
        last = carry[:, -1:]  # 1 where a final carry adds a digit
        return concatenate(dense(steps), dense(digit), (last, last == 1), column(a, stop))


def lowest(x: int, y: int) -> int:
    """The first digit of the sum."""
    return (x + y) % 10


def digit(x: int, y: int, written: int, x_next: int, y_next: int) -> int:
    """A later digit, which receives the carry of the place before."""
    return (x_next + y_next + carry(x, y, written)) % 10


def carry(x: int, y: int, written: int) -> int:
    """The carry out of a place; the carry into it follows from the digit written there."""
    entered = (written - x - y) % 10
    return (x + y + entered) // 10
