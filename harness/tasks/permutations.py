"""Base class of tasks that compose permutations."""

from functools import reduce
from itertools import permutations
from typing import ClassVar

import torch
from torch import Tensor

from harness.tasks.base import Vocab
from harness.tasks.strings import OneToken


class Permutations(OneToken):
    """n uniform permutations of `size` objects, then their product.

    A permutation is one token, written as the places of the objects 1, 2, ..: 231 moves the first
    object to place 2, the second to 3 and the third to 1. The product applies the first one first.
    A subclass has `size`.
    """

    size: ClassVar[int]
    family = "state"

    def __init__(self) -> None:
        every = list(permutations(range(self.size)))
        self.symbols, self.chance = len(every), 1 / len(every)
        names = ("".join(str(place + 1) for place in one) for one in every)
        self.vocab = Vocab((*names, "="), separator=" ")
        self._places = torch.tensor(every)  # (size!, size)

    def answer(self, x: Tensor) -> Tensor:
        places = self._places.to(x.device)
        state = places[0].expand(len(x), -1)
        for step in x.T:
            state = places[step].gather(1, state)  # where each object is now
        scale = self.size ** torch.arange(self.size, device=x.device).flip(0)
        codes = (places * scale).sum(1)  # ascending, as the permutations are
        return torch.searchsorted(codes, (state * scale).sum(1, keepdim=True))

    def solve(self, prompt: list[int]) -> list[int]:
        moves = [dict(enumerate(self.vocab.symbols[token], 1)) for token in prompt[:-1]]
        ends = (
            reduce(lambda place, move: int(move[place]), moves, start)
            for start in range(1, self.size + 1)
        )
        return [self.vocab.id("".join(map(str, ends)))]
