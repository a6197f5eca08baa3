"""A task of one's own: `sample` draws batches, `solve` answers one prompt in plain Python."""

import torch

from harness.tasks.base import Batch, Task, Vocab


class Rotate(Task):
    """n random digits, then the same digits with the first one moved to the end.

    83492=34928

    Vocabulary: the digits 0..9 (ids 0..9) and "=". Length n: the number of digits.
    Chance: every answer token is a uniformly random digit, so 1/10.

    Paper: none.
    """

    name = "rotate"
    version = 1  # higher when the data changes: results on other data are not compared
    summary = "move the first digit to the end"
    paper = "none"
    family = "reordering"
    example = "83492=34928"
    vocab = Vocab((*"0123456789", "="))
    chance = 0.1

    def sample(self, generator: torch.Generator, batch: int, length: int) -> Batch:
        self.check_length(length)
        device = generator.device
        x = torch.randint(10, (batch, length), generator=generator, device=device)
        equals = torch.full((batch, 1), self.vocab.id("="), device=device)
        return Batch(prompt=torch.cat([x, equals], dim=1), target=x.roll(-1, dims=1))

    def solve(self, prompt: list[int]) -> list[int]:
        first, *rest = prompt[:-1]
        return [*rest, first]

    def measure(self, prompt: list[int]) -> int:
        return len(prompt) - 1

    def max_tokens(self, length: int) -> tuple[int, int]:
        return length + 1, length
