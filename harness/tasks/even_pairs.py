"""Find the parity of the number of unequal neighbours."""

from itertools import pairwise

from torch import Tensor

from harness.tasks.base import Vocab
from harness.tasks.strings import OneToken


class EvenPairs(OneToken):
    """n random bits, then whether the number of unequal neighbours is even (0) or odd (1).

    0101001=1    01, 10, 01, 10, 01: five

    The number is even where the last bit equals the first.

    Vocabulary: 0, 1 and "=" (ids 0..2). Length n: the number of bits.
    Chance: either answer is equally likely, so 1/2; a single bit has no neighbour, its answer is 0.

    Paper: Ruoss et al. (2023), level R (regular), after Delétang et al. (2023). Deviation: none.
    """

    name = "even_pairs"
    summary = "even or odd number of unequal neighbours"
    paper = "Ruoss et al. 2023, Table 1"
    family = "counting"
    example = "0101001=1"
    vocab = Vocab(("0", "1", "="))
    chance = 0.5
    symbols = 2

    def answer(self, x: Tensor) -> Tensor:
        return x[:, :1] ^ x[:, -1:]

    def solve(self, prompt: list[int]) -> list[int]:
        *bits, _ = prompt
        return [sum(a != b for a, b in pairwise(bits)) % 2]
