"""Add two binary numbers as people write them."""

import torch
from torch.nn.functional import pad

from harness.tasks.base import Batch, Task, Vocab
from harness.tasks.binary import digits
from harness.tasks.digits import sums


class BinarySum(Task):
    """Two binary numbers and their sum, all with the most significant bit first.

    110+11=1001    6 + 3 = 9

    The first number has k bits, k uniform over 1..n-3, the second n - 2 - k. The first bit of a
    number is 1 if there are others; all other bits are fair coins.

    Vocabulary: 0, 1, "+" and "=" (ids 0..3). Length n: the tokens of the prompt, at least 4.
    Chance: nearly all free tokens are bits, nearly fair coins: 1/2.

    Paper: Huang et al. 2024 (arXiv 2410.02140), where n counts "+" and "=" too. Deviation: no token
    begins the prompt. `binary_addition` has the least significant bit first.
    """

    name = "binary_sum"
    summary = "the sum of two binary numbers, highest bit first"
    paper = "Huang et al. 2024"
    family = "arithmetic"
    example = "110+11=1001"
    vocab = Vocab(("0", "1", "+", "="))
    chance = 0.5
    min_length = 4

    def sample(self, generator: torch.Generator, batch: int, length: int) -> Batch:
        self.check_length(length)
        device, place = generator.device, torch.arange(length, device=generator.device)
        plus = torch.randint(1, length - 2, (batch, 1), generator=generator, device=device)
        x = torch.randint(2, (batch, length), generator=generator, device=device)
        x = x.where((place > 0) | (plus == 1), 1)
        x = x.where((place != plus + 1) | (plus == length - 3), 1)
        a, b = (
            x.gather(1, (end - 1 - place).clamp(min=0).expand_as(x)).where(place < size, 0)
            for end, size in ((plus, plus), (length - 1, length - 2 - plus))
        )
        total, _ = sums(a, b, base=2)  # least significant bit first
        back = digits(total) - 1 - place[: length - 2]
        target = total.gather(1, back.clamp(min=0)).where(back >= 0, self.vocab.pad)
        x = x.where(place != plus, self.vocab.id("+"))
        return Batch(prompt=pad(x[:, :-1], (0, 1), value=self.vocab.id("=")), target=target)

    def solve(self, prompt: list[int]) -> list[int]:
        numbers = self.vocab.decode(prompt[:-1]).split("+")
        return self.vocab.encode(f"{sum(int(bits, 2) for bits in numbers):b}").tolist()

    def measure(self, prompt: list[int]) -> int:
        return len(prompt)

    def max_tokens(self, length: int) -> tuple[int, int]:
        return length, length - 2
