"""Every second token, then the ones between."""

from __future__ import annotations

import torch

from harness.tasks.base import Batch, Task, Vocab


class OddsFirst(Task):
    """n random tokens x, then x[1::2] followed by x[0::2] (places counted from 0).

    012345=135024

    Vocabulary: the tokens 0..9 (ids 0..9) and "=". Length n: the number of tokens.
    Chance: every answer token is a uniformly random digit, so 1/10.

    Paper: PRISM, Table 3, with V = 10. Deviation: the table's text says "odd indices (1-based)",
    which would start with the first token. Its example starts with the second, as does the
    reference code of the task (Delétang et al., 2023); the example is followed.
    """

    name = "odds_first"
    version = 1
    summary = "every second token, then the others"
    paper = "PRISM, Table 3"
    example = "012345=135024"
    vocab = Vocab((*"0123456789", "="))
    chance = 0.1

    def sample(self, generator: torch.Generator, batch: int, length: int) -> Batch:
        self.check_length(length)
        device = generator.device
        x = torch.randint(10, (batch, length), generator=generator, device=device)
        equals = torch.full((batch, 1), self.vocab.symbols.index("="), device=device)
        target = torch.cat([x[:, 1::2], x[:, 0::2]], dim=1)
        return Batch(prompt=torch.cat([x, equals], dim=1), target=target)

    def solve(self, prompt: list[int]) -> list[int]:
        places = sorted(range(len(prompt) - 1), key=lambda i: (i % 2 == 0, i))
        return [prompt[i] for i in places]

    def measure(self, prompt: list[int]) -> int:
        return len(prompt) - 1

    def max_tokens(self, length: int) -> tuple[int, int]:
        return length + 1, length
