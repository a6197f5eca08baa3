"""Select the digit in the middle of a string."""

from harness.tasks.digits import SelectedDigit


class SelectMiddle(SelectedDigit):
    """n random digits x_1 .. x_n, then x_(floor(n/2) + 1).

    8349216=9

    Vocabulary: the digits 0..9 (ids 0..9) and "=". Length n: the number of digits.
    Options: symbols, how many of the digits occur.
    Chance: the answer is a uniformly random digit, so 1/10.

    Paper: Chen et al. (2026), Section VII-B. Deviation: none.
    """

    name = "select_middle"
    summary = "the digit in the middle of a string"
    paper = "Chen et al. 2026, Section VII"
    family = "retrieval"
    example = "8349216=9"

    def selected(self, n: int) -> int:
        return n // 2

    def solve(self, prompt: list[int]) -> list[int]:
        return [prompt[(len(prompt) - 1) // 2]]
