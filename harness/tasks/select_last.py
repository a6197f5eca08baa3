"""Select the last of a string of digits."""

from harness.tasks.digits import SelectedDigit


class SelectLast(SelectedDigit):
    """n random digits x_1 .. x_n, then x_n.

    8349216=6

    Vocabulary: the digits 0..9 (ids 0..9) and "=". Length n: the number of digits.
    Options: symbols, how many of the digits occur.
    Chance: the answer is a uniformly random digit, so 1/10.

    Paper: Chen et al. (2026), Section VII-B. Deviation: none.
    """

    name = "select_last"
    summary = "the last of a string of digits"
    paper = "Chen et al. 2026, Section VII"
    family = "retrieval"
    example = "8349216=6"

    def selected(self, n: int) -> int:
        return n - 1

    def solve(self, prompt: list[int]) -> list[int]:
        return prompt[-2:-1]
