"""Multiply two binary numbers."""

import torch
from torch import Tensor
from torch.nn.functional import pad

from harness.tasks.binary import END, Operands, digits, ended, operands, read, written
from harness.tasks.digits import sums


class BinaryMultiplication(Operands):
    """Two binary numbers separated by 2, then their product; the least significant bit first.

    001201101=000110120    4 x 22 = 88

    The answer has the product without zeros past its highest 1, the terminator 2 and zeros up to n
    tokens. An encoder's accuracy counts up to the terminator, and with it. The first number has k
    bits, k uniform over 1..n-2, the second n - 1 - k; numbers are uniform over 1..2^k - 1. A prompt
    of one or two tokens is a number, uniform over 0..2^n - 2, and its answer always 2 or 02.

    Vocabulary: 0, 1, 2 (in the prompt "times", in the answer the terminator) and "=" (ids 0..3).
    Length n: both numbers and the 2 between.
    Chance: nearly all free tokens are bits, nearly fair coins: 1/2.

    Paper: Ruoss et al. (2023), level CS (context-sensitive), after Delétang et al. (2023).
    Deviation: none.
    """

    name = "binary_multiplication"
    summary = "the product of two binary numbers"
    paper = "Ruoss et al. 2023, Table 1"
    family = "arithmetic"
    example = "001201101=000110120"
    chance = 0.5

    def answer(self, x: Tensor) -> Tensor:
        n = x.shape[1]
        if n < 3:
            return ended(torch.zeros_like(x), torch.full_like(x[:, :1], n - 1))
        bits = _product(*operands(x))
        return ended(bits, digits(bits))

    def solve(self, prompt: list[int]) -> list[int]:
        n = len(prompt) - 1
        if n < 3:
            return [0] * (n - 1) + [END]
        a, b = read(prompt[:-1])
        answer = [*written(a * b), END]
        return answer + [0] * (n - len(answer))


def _product(a: Tensor, b: Tensor) -> Tensor:
    """(B, n) bits of the product of two numbers (B, n) that have fewer than n bits together.

    The sums of the columns, as one writes them by hand, are a convolution. Carries halve them until
    none is above 2, which is a sum of two bits.
    """
    n = a.shape[1]
    spectrum = torch.fft.rfft(a.float()) * torch.fft.rfft(b.float())
    column = torch.fft.irfft(spectrum, n).round().long()  # up to n / 2: far from rounding errors
    for _ in range(n.bit_length()):
        column = column % 2 + pad(column // 2, (1, -1))
    return sums(column // 2, (column + 1) // 2, base=2)[0]
