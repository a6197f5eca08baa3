"""Sort a string of digits."""

from torch import Tensor

from harness.tasks.digits import DigitStrings


class BucketSort(DigitStrings):
    """n random digits, then the same digits from the smallest to the largest.

    10204112=00111224

    Vocabulary: the digits 0..4 (ids 0..4) and "=". Length n: the number of digits.
    Options: symbols, how many of the digits occur.
    Chance: over all tokens every digit is equally likely, so 1/5. The best constant at each place
    gets much more, 0.82 at length 60 (`testing.best_constant`).

    Paper: Ruoss et al. (2023), level CS (context-sensitive), after Delétang et al. (2023).
    Deviation: none.
    """

    name = "bucket_sort"
    summary = "the digits in order"
    paper = "Ruoss et al. 2023, Table 1"
    family = "sorting"
    best_constant = ((2, 0.355), (10, 0.6), (20, 0.7), (60, 0.82), (100, 0.86), (500, 0.94))
    example = "10204112=00111224"

    def __init__(self, *, symbols: int = 5) -> None:
        super().__init__(symbols=symbols)

    def answer(self, x: Tensor) -> Tensor:
        return x.sort(1).values

    def solve(self, prompt: list[int]) -> list[int]:
        *digits, _ = prompt
        return [digit for digit in range(self.symbols) for _ in range(digits.count(digit))]
