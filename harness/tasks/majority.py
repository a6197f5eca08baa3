"""Find the most frequent letter."""

from string import ascii_lowercase

import torch
from torch import Tensor

from harness.tasks.base import Vocab
from harness.tasks.strings import OneToken


class Majority(OneToken):
    """n random letters, then the most frequent one.

    bacbdb=b

    Letters are uniform and independent, except that strings whose most frequent letter is not the
    only one are drawn anew.

    Vocabulary: the letters a, b, .. and "=". Length n: the number of letters.
    Options: symbols, how many letters there are.
    Chance: every letter is equally likely, so 1/symbols.

    Paper: Huang et al. 2024 (arXiv 2410.02140). Deviation: no token begins the prompt.
    """

    name = "majority"
    summary = "the most frequent letter"
    paper = "Huang et al. 2024"
    family = "counting"
    example = "bacbdb=b"

    def __init__(self, *, symbols: int = 26) -> None:
        if not 2 <= symbols <= 26:
            raise ValueError(f"symbols must be 2 to 26, was {symbols}")
        self.symbols, self.chance = symbols, 1 / symbols
        self.vocab = Vocab((*ascii_lowercase[:symbols], "="))
        if symbols < 4:
            self.example = "babab=b"

    def draw(self, generator: torch.Generator, batch: int, length: int) -> Tensor:
        x = super().draw(generator, batch, length)
        while (tied := self._tied(x)).any():
            x[tied] = super().draw(generator, int(tied.sum()), length)
        return x

    def answer(self, x: Tensor) -> Tensor:
        return self._counts(x).argmax(1, keepdim=True)

    def solve(self, prompt: list[int]) -> list[int]:
        return [max(prompt[:-1], key=prompt.count)]

    def _counts(self, x: Tensor) -> Tensor:
        return x.new_zeros(len(x), self.symbols).scatter_add(1, x, torch.ones_like(x))

    def _tied(self, x: Tensor) -> Tensor:
        first, second = self._counts(x).topk(2).values.T
        return first == second
