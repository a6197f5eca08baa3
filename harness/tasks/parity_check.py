"""Find the parity of the number of ones."""

import torch
from torch import Tensor

from harness.tasks.base import Vocab
from harness.tasks.strings import OneToken, scattered
from pezoo.spec import choice


class ParityCheck(OneToken):
    """n random bits, then the number of ones modulo 2.

    1010100=1    three ones

    Vocabulary: 0, 1 and "=" (ids 0..2). Length n: the number of bits.
    Options: ones, how many there are: "fair", every bit is a fair coin, or "uniform" over 0..n.
    Chance: either answer is equally likely, so 1/2.

    Paper: Ruoss et al. (2023), level R (regular), after Delétang et al. (2023). Deviation: none.
    Uniform: Huang et al. 2024 (arXiv 2410.02140), where a token begins the prompt and the answer is
    e or o.
    """

    name = "parity_check"
    summary = "even or odd number of ones"
    paper = "Ruoss et al. 2023, Table 1"
    family = "counting"
    example = "1010100=1"
    vocab = Vocab(("0", "1", "="))
    chance = 0.5
    symbols = 2

    def __init__(self, *, ones: str = "fair") -> None:
        choice("ones", ones, ("fair", "uniform"))
        self.ones = ones

    def draw(self, generator: torch.Generator, batch: int, length: int) -> Tensor:
        if self.ones == "fair":
            return super().draw(generator, batch, length)
        shape = (batch, 1)
        ones = torch.randint(length + 1, shape, generator=generator, device=generator.device)
        return scattered(generator, ones, length)

    def answer(self, x: Tensor) -> Tensor:
        return x.sum(1, keepdim=True) % 2

    def solve(self, prompt: list[int]) -> list[int]:
        odd = 0
        for bit in prompt[:-1]:
            odd = 1 - odd if bit else odd
        return [odd]
