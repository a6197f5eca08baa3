"""SelectLast: the last of a string of digits."""

from __future__ import annotations

from torch import Tensor

from harness.tasks.base import kinds
from harness.tasks.digits import DigitStrings, same
from harness.tasks.strings import OneToken
from harness.theory.representation import Computation, Step


class SelectLast(OneToken, DigitStrings):
    """n random digits x_1 .. x_n, then x_n.

    8349216=6

    Vocabulary: the digits 0..9 (ids 0..9) and "=". Length n: the number of digits.
    Options: symbols, how many of the digits occur.
    Chance: the answer is a uniformly random digit, so 1/10.

    Paper: Chen et al. (2026), Section VII-B. Deviation: none.
    """

    name = "select_last"
    version = 1
    summary = "the last of a string of digits"
    paper = "Chen et al. 2026, Section VII"
    family = "retrieval"
    example = "8349216=6"

    def answer(self, x: Tensor) -> Tensor:
        return x[:, -1:]

    def solve(self, prompt: list[int]) -> list[int]:
        return prompt[-2:-1]

    def computation(self, n: int) -> Computation:
        return Computation(n + 1, (Step(n + 2, same, (n,)),))

    def relation(self, i: Tensor, j: Tensor, n: Tensor | None) -> Tensor:
        return kinds(j == i - 1)  # the query that writes the answer is at n
