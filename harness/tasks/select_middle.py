"""SelectMiddle: the digit in the middle of a string."""

from __future__ import annotations

from torch import Tensor

from harness.tasks.base import kinds
from harness.tasks.digits import DigitStrings, same
from harness.tasks.strings import OneToken
from harness.theory.representation import Computation, Step


class SelectMiddle(OneToken, DigitStrings):
    """n random digits x_1 .. x_n, then x_(floor(n/2) + 1).

    8349216=9

    Vocabulary: the digits 0..9 (ids 0..9) and "=". Length n: the number of digits.
    Options: symbols, how many of the digits occur.
    Chance: the answer is a uniformly random digit, so 1/10.

    Paper: Chen et al. (2026), Section VII-B. Deviation: none.
    """

    name = "select_middle"
    version = 1
    summary = "the digit in the middle of a string"
    paper = "Chen et al. 2026, Section VII"
    family = "retrieval"
    example = "8349216=9"

    def answer(self, x: Tensor) -> Tensor:
        return x[:, x.shape[1] // 2][:, None]

    def solve(self, prompt: list[int]) -> list[int]:
        return [prompt[(len(prompt) - 1) // 2]]

    def computation(self, n: int) -> Computation:
        return Computation(n + 1, (Step(n + 2, same, (n // 2 + 1,)),))

    def relation(self, i: Tensor, j: Tensor, n: Tensor | None) -> Tensor:
        return kinds(j == i // 2)  # the query that writes the answer is at n
