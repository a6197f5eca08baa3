"""Write a string of digits backwards."""

from torch import Tensor

from harness.tasks.digits import AlignedStrings, same
from harness.theory.representation import Step


class Reverse(AlignedStrings):
    """n random digits, then the same digits from the last to the first.

    8349216=6129438
    aligned=8: 83400000=00000438

    Vocabulary: the digits 0..9 (ids 0..9) and "=". Length n: the number of digits.
    Options: symbols, how many of the digits occur; `symbols=2` is reverse_string of Ruoss et al.
    (2023), level DCF (deterministic context-free); aligned, the scale that zeros pad to.
    Chance: every answer token is a uniformly random digit, so 1/10.

    Paper: PRISM, Table 3. Deviation: none.
    """

    name = "reverse"
    summary = "the digits backwards"
    paper = "PRISM, Table 3"
    family = "reordering"
    example = "8349216=6129438"

    def answer(self, x: Tensor) -> Tensor:
        return x.flip(1)

    def solve(self, prompt: list[int]) -> list[int]:
        return list(reversed(prompt[:-1]))

    def step(self, places: int, t: int) -> Step:
        return Step(places + 1 + t, same, (places + 1 - t,))
