"""Write a string of digits backwards."""

from __future__ import annotations

from torch import Tensor

from harness.tasks.digits import DigitStrings


class Reverse(DigitStrings):
    """n random digits, then the same digits from the last to the first.

    8349216=6129438

    Vocabulary: the digits 0..9 (ids 0..9) and "=". Length n: the number of digits.
    Options: symbols; `symbols=2` is reverse_string of Ruoss et al. (2023), level DCF
    (deterministic context-free).
    Chance: every answer token is a uniformly random digit, so 1/10.

    Paper: PRISM, Table 3. Deviation: none.
    """

    name = "reverse"
    version = 1
    summary = "the digits backwards"
    paper = "PRISM, Table 3"
    family = "reordering"
    example = "8349216=6129438"

    def answer(self, x: Tensor) -> Tensor:
        return x.flip(1)

    def solve(self, prompt: list[int]) -> list[int]:
        return list(reversed(prompt[:-1]))
