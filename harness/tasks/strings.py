"""What tasks share whose prompt is a string of tokens and whose answer is a function of it."""

from __future__ import annotations

import torch
from torch import Tensor

from harness.tasks.base import Batch, Task


class Strings(Task):
    """n tokens, the symbol that asks (the last of the vocabulary), and the answer to the tokens.

    Length n: the number of tokens. A subclass says `draw` and `answer`.
    """

    def draw(self, generator: torch.Generator, batch: int, length: int) -> Tensor:
        """Tokens (B, n) of random instances."""
        raise NotImplementedError

    def answer(self, x: Tensor) -> Tensor:
        """The targets (B, Q) of the tokens x (B, n), computed for all rows at once."""
        raise NotImplementedError

    def sample(self, generator: torch.Generator, batch: int, length: int) -> Batch:
        self.check_length(length)
        x = self.draw(generator, batch, length)
        asks = x.new_full((batch, 1), len(self.vocab.symbols) - 1)
        return Batch(prompt=torch.cat([x, asks], dim=1), target=self.answer(x))

    def measure(self, prompt: list[int]) -> int:
        return len(prompt) - 1


class OneToken(Strings):
    """Strings with an answer of one token."""

    def max_tokens(self, length: int) -> tuple[int, int]:
        return length + 1, 1


def up_to(token: int, target: Tensor) -> Tensor:
    """(B, Q) bool: the tokens of `target` up to and including the first `token` of each row.

    >>> up_to(2, torch.tensor([[0, 2, 0, 0]]))
    tensor([[ True,  True, False, False]])
    """
    found = (target == token).long()
    return found.cumsum(1) == found
