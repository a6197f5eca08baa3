"""Repeat distinct numbers."""

from torch import Tensor

from harness.tasks.sort import Sort


class UniqueCopy(Sort):
    """n distinct numbers, then the same numbers.

    17 4 88 9 = 17 4 88 9

    Vocabulary: the numbers 0..symbols-1, one token each, and "=". Length n: the number of numbers,
    at most symbols; all sets and orders of n numbers are equally likely.
    Options: symbols, how many numbers there are.
    Chance: every number is equally likely, so 1/symbols.

    Paper: Huang et al. 2024 (arXiv 2410.02140), with symbols=150. Deviation: no token begins the
    prompt.
    """

    name = "unique_copy"
    summary = "repeat distinct numbers"
    paper = "Huang et al. 2024"
    family = "copying"
    best_constant = ()
    example = "17 4 88 9 = 17 4 88 9"

    def __init__(self, *, symbols: int = 100) -> None:
        super().__init__(symbols=symbols)
        if symbols < 100:
            self.example = "1 0 = 1 0"

    def answer(self, x: Tensor) -> Tensor:
        return x

    def solve(self, prompt: list[int]) -> list[int]:
        return prompt[:-1]
