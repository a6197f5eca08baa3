"""Sort distinct numbers."""

import torch
from torch import Tensor

from harness.tasks.base import Vocab
from harness.tasks.strings import Strings


class Sort(Strings):
    """n distinct numbers, then the same numbers in ascending order.

    17 4 88 9 = 4 9 17 88

    Vocabulary: the numbers 0..symbols-1, one token each, and "=". Length n: the number of numbers,
    at most symbols; all sets and orders of n numbers are equally likely.
    Options: symbols, how many numbers there are.
    Chance: over all places every number is equally likely, so 1/symbols.

    Paper: Huang et al. 2024, "A Formal Framework for Understanding Length Generalization in
    Transformers" (arXiv 2410.02140), with 150 numbers and more.
    """

    name = "sort"
    summary = "distinct numbers in order"
    paper = "Huang et al. 2024"
    family = "sorting"
    best_constant = ((10, 0.05), (50, 0.12), (77, 0.22), (95, 0.45), (100, 1.0))
    example = "17 4 88 9 = 4 9 17 88"

    def __init__(self, *, symbols: int = 100) -> None:
        if not 2 <= symbols <= 10_000:
            raise ValueError(f"symbols must be 2 to 10000, was {symbols}")
        self.symbols, self.max_length, self.chance = symbols, symbols, 1 / symbols
        self.vocab = Vocab((*map(str, range(symbols)), "="), separator=" ")
        if symbols < 100:
            self.example = "1 0 = 0 1"

    def draw(self, generator: torch.Generator, batch: int, length: int) -> Tensor:
        shape = (batch, self.symbols)
        order = torch.rand(shape, generator=generator, device=generator.device).argsort(1)
        return order[:, :length]

    def answer(self, x: Tensor) -> Tensor:
        return x.sort(1).values

    def solve(self, prompt: list[int]) -> list[int]:
        found = set(prompt[:-1])
        return [number for number in range(self.symbols) if number in found]
