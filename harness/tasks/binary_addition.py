"""Add two binary numbers."""

from torch import Tensor
from torch.nn.functional import pad

from harness.tasks.binary import END, Operands, digits, ended, operands, read, written
from harness.tasks.digits import sums


class BinaryAddition(Operands):
    """Two binary numbers separated by 2, then their sum; all with the least significant bit first.

    001201101=0101120000    4 + 22 = 26

    The answer has the sum without zeros past its highest 1, the terminator 2 and zeros up to n + 1
    tokens. An encoder's accuracy counts up to the terminator, and with it. The first number has k
    bits, k uniform over 1..n-2, the second n - 1 - k; numbers are uniform over 1..2^k - 1. A prompt
    of one or two tokens is a number, uniform over 0..2^n - 2, and the answer is that number.

    Vocabulary: 0, 1, 2 (in the prompt "+", in the answer the terminator) and "=" (ids 0..3).
    Length n: both numbers and the 2 between.
    Chance: nearly all free tokens are bits, nearly fair coins: 1/2.

    Paper: Ruoss et al. (2023), level CS (context-sensitive), after Delétang et al. (2023).
    Deviation: none.
    """

    name = "binary_addition"
    summary = "the sum of two binary numbers"
    paper = "Ruoss et al. 2023, Table 1"
    family = "arithmetic"
    example = "001201101=0101120000"
    chance = 0.5

    def answer(self, x: Tensor) -> Tensor:
        a, b = operands(x)
        total, _ = sums(pad(a, (0, 1)), pad(b, (0, 1)), base=2)
        return ended(total, digits(total))

    def solve(self, prompt: list[int]) -> list[int]:
        answer = [*written(sum(read(prompt[:-1]))), END]
        return answer + [0] * (len(prompt) - len(answer))

    def max_tokens(self, length: int) -> tuple[int, int]:
        return length + 1, length + 1
