"""Find the parity of the number of ones."""

from torch import Tensor

from harness.tasks.base import Vocab
from harness.tasks.strings import OneToken


class ParityCheck(OneToken):
    """n random bits, then the number of ones modulo 2.

    1010100=1    three ones

    Vocabulary: 0, 1 and "=" (ids 0..2). Length n: the number of bits.
    Chance: either answer is equally likely, so 1/2.

    Paper: Ruoss et al. (2023), level R (regular), after Delétang et al. (2023). Deviation: none.
    """

    name = "parity_check"
    summary = "even or odd number of ones"
    paper = "Ruoss et al. 2023, Table 1"
    family = "counting"
    example = "1010100=1"
    vocab = Vocab(("0", "1", "="))
    chance = 0.5
    symbols = 2

    def answer(self, x: Tensor) -> Tensor:
        return x.sum(1, keepdim=True) % 2

    def solve(self, prompt: list[int]) -> list[int]:
        odd = 0
        for bit in prompt[:-1]:
            odd = 1 - odd if bit else odd
        return [odd]
