"""Parity with a chain of thought: the parity of every prefix."""

from itertools import accumulate
from operator import xor

from torch import Tensor

from harness.tasks.digits import AlignedStrings, same
from harness.theory.representation import Step


class Parity(AlignedStrings):
    """n random bits, then the parity of each prefix: y_1 = x_1, y_t = x_t xor y_(t-1).

    1010110=1100100
    aligned=8: 10100000=11000000

    Vocabulary: 0, 1 and "=" (ids 0..2). Length n: the number of bits.
    Options: aligned, the scale that zeros pad to.
    Chance: every answer token is a uniformly random bit, so 1/2.

    Paper: Chen et al. (2026), Example 1. Deviation: "=" ends the prompt. `parity_check` has an
    answer of one token.
    """

    name = "parity"
    summary = "the parity of every prefix"
    paper = "Chen et al. 2026, Example 1"
    family = "counting"
    example = "1010110=1100100"

    def __init__(self, *, aligned: int = 0) -> None:
        super().__init__(symbols=2, aligned=aligned)

    def answer(self, x: Tensor) -> Tensor:
        return x.cumsum(1) % 2

    def solve(self, prompt: list[int]) -> list[int]:
        return list(accumulate(prompt[:-1], xor))

    def step(self, places: int, t: int) -> Step:
        at = places + 1 + t
        return Step(at, exclusive_or, (t, at - 1)) if t > 1 else Step(at, same, (1,))


def exclusive_or(u: int, v: int) -> int:
    """The unit operator of every step but the first."""
    return u ^ v
