"""Find the more frequent bit, of one string or of several interleaved ones."""

import torch
from torch import Tensor

from harness.tasks.base import Vocab
from harness.tasks.strings import Strings, scattered


class BinaryMajority(Strings):
    """n bits, then the more frequent one.

    0110100=0
    strings=3: 011001010=011    the bits of 000, 101 and 110 in turn, then the answer to each

    The number of ones in a string is uniform over 0..its length without a tie.

    Vocabulary: 0, 1 and "=" (ids 0..2). Length n: the number of bits, a multiple of `strings`.
    Options: strings, how many are interleaved.
    Chance: both bits are equally likely, so 1/2.

    Paper: Huang et al. 2024 (arXiv 2410.02140), with strings of 1 and 3. Deviation: no token begins
    the prompt.
    """

    name = "binary_majority"
    summary = "the more frequent bit"
    paper = "Huang et al. 2024"
    family = "counting"
    vocab = Vocab(("0", "1", "="))
    chance = 0.5

    def __init__(self, *, strings: int = 1) -> None:
        if not 1 <= strings <= 100:
            raise ValueError(f"strings must be 1 to 100, was {strings}")
        self.strings = strings
        self.example = "0110100=0"
        if strings > 1:
            prompt = self.vocab.encode(f"{'01100' * strings}=").tolist()
            self.example = self.vocab.decode([*prompt, *self.solve(prompt)])

    def lengths(self, low: int, high: int) -> list[int]:
        return [n for n in super().lengths(low, high) if n % self.strings == 0]

    def draw(self, generator: torch.Generator, batch: int, length: int) -> Tensor:
        each, device = length // self.strings, generator.device
        even = 1 - each % 2
        shape = (batch * self.strings, 1)
        ones = torch.randint(each + 1 - even, shape, generator=generator, device=device)
        ones += even * (ones >= each // 2)  # skips the tie
        bits = scattered(generator, ones, each)
        return bits.view(batch, self.strings, each).mT.reshape(batch, length)

    def answer(self, x: Tensor) -> Tensor:
        strings = x.view(len(x), -1, self.strings)
        return (2 * strings.sum(1) > strings.shape[1]).long()

    def solve(self, prompt: list[int]) -> list[int]:
        strings = [prompt[start : -1 : self.strings] for start in range(self.strings)]
        return [int(own.count(1) > own.count(0)) for own in strings]

    def max_tokens(self, length: int) -> tuple[int, int]:
        return length + 1, self.strings
