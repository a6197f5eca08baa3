"""Repeat a string of digits."""

from torch import Tensor

from harness.tasks.digits import AlignedStrings, same
from harness.theory.representation import Step


class Copy(AlignedStrings):
    """n random digits, then the same digits.

    8349216=8349216
    aligned=8: 83400000=83400000

    Vocabulary: the digits 0..9 (ids 0..9) and "=". Length n: the number of digits.
    Options: symbols, how many of the digits occur; aligned, the scale that zeros pad to.
    Chance: every answer token is a uniformly random digit, so 1/10.

    Paper: PRISM, Table 3; aligned, Chen et al. 2026. Deviation: none. Digits may repeat, or no n
    above 10 would exist.
    """

    name = "copy"
    summary = "repeat the digits"
    paper = "PRISM, Table 3"
    family = "copying"
    example = "8349216=8349216"

    def answer(self, x: Tensor) -> Tensor:
        return x

    def solve(self, prompt: list[int]) -> list[int]:
        return prompt[:-1]

    def step(self, places: int, t: int) -> Step:
        return Step(places + 1 + t, same, (t,))
