"""Repeat a string of digits."""

from __future__ import annotations

import torch

from harness.tasks.base import Batch, Task, Vocab


class Copy(Task):
    """n random digits, then the same digits.

    8349216=8349216

    Vocabulary: the digits 0..9 (ids 0..9) and "=". Length n: the number of digits.
    Chance: every answer token is a uniformly random digit, so 1/10.

    Paper: PRISM, Table 3. Deviation: none. Digits may repeat, or no n above 10 would exist.
    """

    name = "copy"
    version = 1
    summary = "repeat the digits"
    paper = "PRISM, Table 3"
    example = "8349216=8349216"
    vocab = Vocab((*"0123456789", "="))
    chance = 0.1

    def sample(self, generator: torch.Generator, batch: int, length: int) -> Batch:
        self.check_length(length)
        device = generator.device
        x = torch.randint(10, (batch, length), generator=generator, device=device)
        equals = torch.full((batch, 1), self.vocab.symbols.index("="), device=device)
        return Batch(prompt=torch.cat([x, equals], dim=1), target=x)

    def solve(self, prompt: list[int]) -> list[int]:
        return prompt[:-1]

    def measure(self, prompt: list[int]) -> int:
        return len(prompt) - 1

    def max_tokens(self, length: int) -> tuple[int, int]:
        return length + 1, length
