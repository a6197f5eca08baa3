"""Add two numbers that are written so that digits of equal significance can share a position."""

import torch
from torch import Tensor

from harness.tasks.base import Batch, Task, Vocab
from harness.tasks.digits import operands, sums
from pezoo.functional import run_index


class AdditionCoupled(Task):
    """a + b in n digits each and the sum in n + 1, least significant digit first.

    $829+030=8590      928 + 30 = 958
    $99+10=001         99 + 1 = 100

    Vocabulary: the digits 0..9 (ids 0..9), "$", "+" and "=".
    Length n: the number of digits of the longer operand. The other has k, uniform over 1..n, and
    zeros up to n; a fair coin says which is which. All digits are uniform, so the most significant
    ones may be 0.
    Slots: for `coupled`, 2 + the digit's place from 0, 1 for "+" and "=", 0 for "$" and others:
    tokens     $ 8 2 9 + 0 3 0 = 8 5 9 0
    slots      0 2 3 4 1 2 3 4 1 2 3 4 5
    Chance: 0.1 for every digit but the last, which is a carry (`testing.best_constant`).

    Paper: Cho et al. 2024, Section 4, in the form with reversed operands, whose slots an answer can
    be written with. There both operands draw their lengths alike, and the first digit is not 0.
    """

    name = "addition_coupled"
    summary = "sum of two numbers in digits of equal significance"
    paper = "Cho et al. 2024"
    family = "arithmetic"
    example = "$829+030=8590"
    vocab = Vocab((*"0123456789", "$", "+", "="))
    chance = 0.1
    best_constant = ((1, 0.326), (2, 0.314), (5, 0.236), (10, 0.181), (20, 0.146), (40, 0.126))

    def slots(self, ids: Tensor) -> Tensor:
        digit = ids < 10
        sign = (ids == self.vocab.id("+")) | (ids == self.vocab.id("="))
        return torch.where(digit, run_index(digit, ~digit) + 1, sign.long())

    def sample(self, generator: torch.Generator, batch: int, length: int) -> Batch:
        self.check_length(length)
        a, b, _, _ = operands(generator, batch, length)
        total, carry = sums(a, b)
        begin, plus, equals = (torch.full_like(a[:, :1], self.vocab.id(c)) for c in "$+=")
        return Batch(
            prompt=torch.cat([begin, a, plus, b, equals], 1),
            target=torch.cat([total, carry[:, -1:]], 1),
        )

    def solve(self, prompt: list[int]) -> list[int]:
        n = self.measure(prompt)
        total = sum(10**k * (prompt[1 + k] + prompt[2 + n + k]) for k in range(n))
        return [total // 10**k % 10 for k in range(n + 1)]

    def measure(self, prompt: list[int]) -> int:
        return (len(prompt) - 3) // 2

    def max_tokens(self, length: int) -> tuple[int, int]:
        return 2 * length + 3, length + 1
