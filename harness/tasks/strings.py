"""Base classes of tasks that map a string of tokens to an answer."""

import torch
from torch import Tensor

from harness.tasks.base import Batch, Task


class Strings(Task):
    """n tokens, the last symbol of the vocabulary, and the answer to the tokens.

    Length n: the number of tokens. A subclass defines `answer`, and `symbols` or `draw`.
    """

    symbols: int  # how many of the vocabulary's symbols occur in strings, the first ones

    def draw(self, generator: torch.Generator, batch: int, length: int) -> Tensor:
        """Draw strings (B, n) of uniform, independent tokens."""
        shape = (batch, length)
        return torch.randint(self.symbols, shape, generator=generator, device=generator.device)

    def answer(self, x: Tensor) -> Tensor:
        """Return the targets (B, Q) of strings (B, n)."""
        raise NotImplementedError

    def sample(self, generator: torch.Generator, batch: int, length: int) -> Batch:
        self.check_length(length)
        x = self.draw(generator, batch, length)
        last = x.new_full((batch, 1), len(self.vocab.symbols) - 1)
        return Batch(prompt=torch.cat([x, last], dim=1), target=self.answer(x))

    def measure(self, prompt: list[int]) -> int:
        return len(prompt) - 1

    def max_tokens(self, length: int) -> tuple[int, int]:
        return length + 1, length


class OneToken(Strings):
    """A string and an answer of one token."""

    def max_tokens(self, length: int) -> tuple[int, int]:
        return length + 1, 1


def scattered(generator: torch.Generator, ones: Tensor, length: int) -> Tensor:
    """Draw strings of bits (B, length) with these numbers of ones (B, 1), at uniform places."""
    shape = (len(ones), length)
    order = torch.rand(shape, generator=generator, device=generator.device)
    return (order.argsort(1).argsort(1) < ones).long()


def up_to(token: int, target: Tensor) -> Tensor:
    """(B, Q) bool: the tokens of `target` up to and including the first `token` of each row.

    >>> up_to(2, torch.tensor([[0, 2, 0, 0]]))
    tensor([[ True,  True, False, False]])
    """
    found = (target == token).long()
    return found.cumsum(1) == found
