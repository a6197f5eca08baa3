"""Copy letters whose n-grams are unique, or some of which are repeated."""

from string import ascii_lowercase

import torch
from torch import Tensor

from harness.tasks.base import Vocab
from harness.tasks.strings import Strings

MOST = 0.1  # of all n-grams in one string; drawing unique ones becomes slow beyond


class NgramCopy(Strings):
    """n random letters, then the same letters.

    kitefable=kitefable

    A model that looks up the last n - 1 letters to find the next one needs unique n-grams.
    Options: n, the size of the n-grams, which are unique: a letter that completes a repeated one is
    drawn again. repeats: so many n-grams are then copied to another place, without overlap.

    Vocabulary: a..z (ids 0..25) and "=". Length n: the number of letters, at most a tenth of the
    number of n-grams; with repeats at least two n-grams. Chance: 1/26.

    Paper: Jelassi et al. 2024, "Repeat After Me: Transformers are Better than State Space Models at
    Copying", the paper of Hard-ALiBi, which trains on up to 50 tokens and tests on up to 1,000 by
    exact match. Deviation: the paper draws letters independently.
    """

    name = "ngram_copy"
    summary = "copy letters whose n-grams are unique, or some repeated"
    paper = "Jelassi et al. 2024"
    family = "copying"
    example = "kitefable=kitefable"
    vocab = Vocab((*ascii_lowercase, "="))
    chance = 1 / 26
    symbols = 26

    def __init__(self, *, n: int = 3, repeats: int = 0) -> None:
        if not 2 <= n <= 8:
            raise ValueError(f"n must be 2 to 8, was {n}")
        if not 0 <= repeats <= 100:
            raise ValueError(f"repeats must be 0 to 100, was {repeats}")
        self.n, self.repeats = n, repeats

    def lengths(self, low: int, high: int) -> list[int]:
        least = 2 * self.n if self.repeats else 1
        return super().lengths(max(low, least), min(high, int(MOST * 26**self.n)))

    def draw(self, generator: torch.Generator, batch: int, length: int) -> Tensor:
        x = super().draw(generator, batch, length)
        while bool((again := self.repeated(x)).any()):
            x = torch.where(again, super().draw(generator, batch, length), x)
        spare = length - 2 * self.n  # letters outside of both n-grams
        for _ in range(self.repeats):
            left, gap, coin = torch.rand(3, batch, 1, generator=generator, device=x.device)
            first = (left * (spare + 1)).long()
            second = first + self.n + (gap * (spare - first + 1)).long()
            source, to = (
                torch.where(coin < 0.5, first, second),
                torch.where(coin < 0.5, second, first),
            )
            span = torch.arange(self.n, device=x.device)
            x = x.scatter(1, to + span, x.gather(1, source + span))
        return x

    def answer(self, x: Tensor) -> Tensor:
        return x

    def repeated(self, x: Tensor) -> Tensor:
        """Return the letters of x (B, L) that complete a repeated n-gram, (B, L) bool."""
        if x.shape[1] <= self.n:
            return torch.zeros_like(x, dtype=torch.bool)
        scale = 26 ** torch.arange(self.n, device=x.device)
        codes = (x.unfold(1, self.n, 1) * scale).sum(2)  # (B, L - n + 1)
        values, order = codes.sort(dim=1, stable=True)
        same = torch.zeros_like(values, dtype=torch.bool)
        same[:, 1:] = values[:, 1:] == values[:, :-1]
        found = torch.zeros_like(same).scatter(1, order, same)
        return torch.cat([torch.zeros_like(x[:, : self.n - 1], dtype=torch.bool), found], 1)

    def solve(self, prompt: list[int]) -> list[int]:
        return prompt[:-1]
