"""Write a string twice."""

import torch
from torch import Tensor

from harness.tasks.digits import DigitStrings


class DuplicateString(DigitStrings):
    """n random bits, then the same bits twice.

    01001=0100101001

    Vocabulary: 0, 1 and "=" (ids 0..2). Length n: the number of bits.
    Options: symbols, how many of the digits occur.
    Chance: every answer token is a fair coin, so 1/2.

    Paper: Ruoss et al. (2023), level CS (context-sensitive), after Delétang et al. (2023).
    Deviation: none.
    """

    name = "duplicate_string"
    summary = "the string twice"
    paper = "Ruoss et al. 2023, Table 1"
    family = "copying"
    example = "01001=0100101001"

    def __init__(self, *, symbols: int = 2) -> None:
        super().__init__(symbols=symbols)

    def answer(self, x: Tensor) -> Tensor:
        return torch.cat([x, x], dim=1)

    def solve(self, prompt: list[int]) -> list[int]:
        return prompt[:-1] * 2

    def max_tokens(self, length: int) -> tuple[int, int]:
        return length + 1, 2 * length
