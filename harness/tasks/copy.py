"""Repeat a string of digits."""

from __future__ import annotations

from torch import Tensor

from harness.tasks.digits import DigitStrings


class Copy(DigitStrings):
    """n random digits, then the same digits.

    8349216=8349216

    Vocabulary: the digits 0..9 (ids 0..9) and "=". Length n: the number of digits.
    Options: symbols, how many of the digits occur.
    Chance: every answer token is a uniformly random digit, so 1/10.

    Paper: PRISM, Table 3. Deviation: none. Digits may repeat, or no n above 10 would exist.
    """

    name = "copy"
    version = 1
    summary = "repeat the digits"
    paper = "PRISM, Table 3"
    family = "copying"
    example = "8349216=8349216"

    def answer(self, x: Tensor) -> Tensor:
        return x

    def solve(self, prompt: list[int]) -> list[int]:
        return prompt[:-1]
