"""Add two numbers digit by digit, with every carry written out."""

from __future__ import annotations

import torch
from torch import Tensor

from harness.tasks.base import Batch, Task, Vocab
from harness.tasks.digits import operands, sums


class Addition(Task):
    """a + b, least significant digit first, then one step per digit and the sum.

    829+03=8008,2305,9009->859.    928 + 30 = 958; steps: digit of a, of b, carry out, digit
    9+9=9918->81.                  a final carry adds a digit to the sum and no step

    A step past the end of the shorter operand reads it as 0. One operand has n digits, the other
    k, k uniform over 1..n; a fair coin says which is which. All digits are uniform, so the most
    significant ones may be 0.

    Vocabulary: the digits 0..9 (ids 0..9), "+", "=", ",", "->" (one symbol) and ".".
    Length n: the number of digits of the longer operand.
    Chance: the best constant is 0. It is right on the free tokens (digits of a and b, carry, digit,
    digit of the sum) with 0.1 for the longer operand, 0.55 for the shorter (half of whose digits
    are padding), 0.75 for the carry (1/2 within the overlap, 1 past it), 0.1 and 0.1. Their mean,
    for long n, is 0.32.

    Paper: PRISM, Table 3. Deviation: the paper does not say how the operands' lengths are drawn.
    """

    name = "addition"
    version = 1
    summary = "sum of two numbers with its carries"
    paper = "PRISM, Table 3"
    family = "arithmetic"
    example = "829+03=8008,2305,9009->859."
    vocab = Vocab((*"0123456789", "+", "=", ",", "->", "."))
    chance = 0.32

    def sample(self, generator: torch.Generator, batch: int, length: int) -> Batch:
        self.check_length(length)
        a, b, len_a, len_b = operands(generator, batch, length)
        return Batch(prompt=self._prompts(a, b, len_a, len_b), target=self._targets(a, b))

    def solve(self, prompt: list[int]) -> list[int]:
        plus, equals, comma, arrow, stop = range(10, 15)
        split = prompt.index(plus)
        a, b = prompt[:split], prompt[split + 1 : prompt.index(equals)]
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
        split = prompt.index(self.vocab.symbols.index("+"))
        return max(split, len(prompt) - split - 2)

    def max_tokens(self, length: int) -> tuple[int, int]:
        return 2 * length + 2, 6 * length + 2

    def _prompts(self, a: Tensor, b: Tensor, len_a: Tensor, len_b: Tensor) -> Tensor:
        """(B, 2n + 2): a + b =, from a, b (B, n) and their lengths (B, 1)."""
        n = a.shape[1]
        plus, equals = map(self.vocab.symbols.index, "+=")
        place = torch.arange(2 * n + 2, device=a.device) - (2 * n - len_a - len_b)
        prompt = torch.where(place == len_a, plus, equals)
        prompt = torch.where(place < len_a, a.gather(1, place.clamp(0, n - 1)), prompt)
        in_b = place - len_a - 1
        from_b = b.gather(1, in_b.clamp(0, n - 1))
        prompt = torch.where((in_b >= 0) & (in_b < len_b), from_b, prompt)
        return torch.where(place < 0, self.vocab.pad, prompt)

    def _targets(self, a: Tensor, b: Tensor) -> Tensor:
        """(B, 6n + 2): the steps, the arrow, the sum and the stop, from a, b (B, n)."""
        comma, arrow, stop = map(self.vocab.symbols.index, (",", "->", "."))
        digit, carry = sums(a, b)
        steps = torch.stack([a, b, carry, digit, torch.full_like(a, comma)], dim=2).flatten(1)
        steps[:, -1] = arrow
        last = carry[:, -1:]  # (B, 1): is there a final carry?
        end = torch.cat(
            [torch.where(last == 1, 1, stop), torch.where(last == 1, stop, self.vocab.pad)], dim=1
        )
        return torch.cat([steps, digit, end], dim=1)
