"""Find the missing element of a doubled string."""

import torch
from torch import Tensor

from harness.tasks.base import Vocab
from harness.tasks.strings import OneToken

MISSING, PADDING = 2, 3


class MissingDuplicate(OneToken):
    """A string of k random bits, doubled, with one of the 2k bits replaced by 2; then that bit.

    01100210=1    0110 twice

    The replaced bit is uniform. If n is odd, a 3 follows. A prompt of one token is 1, and so is its
    answer.

    Vocabulary: 0 and 1 (bits), 2 (the missing one), 3 (makes the length odd) and "=" (ids 0..4).
    Length n: all tokens before "=".
    Chance: the missing bit is a fair coin, so 1/2.

    Paper: Ruoss et al. (2023), level CS (context-sensitive), after Delétang et al. (2023), whose
    code calls it missing duplicate string. Deviation: none.
    """

    name = "missing_duplicate"
    summary = "the missing element of a doubled string"
    paper = "Ruoss et al. 2023, Table 1"
    family = "retrieval"
    example = "01100210=1"
    vocab = Vocab((*"0123", "="))
    chance = 0.5

    def draw(self, generator: torch.Generator, batch: int, length: int) -> Tensor:
        device, half = generator.device, length // 2
        if not half:
            return torch.ones(batch, 1, dtype=torch.int64, device=device)
        bits = torch.randint(2, (batch, half), generator=generator, device=device)
        missing = torch.randint(2 * half, (batch, 1), generator=generator, device=device)
        padding = torch.full((batch, length % 2), PADDING, device=device)
        return torch.cat([bits, bits, padding], dim=1).scatter(1, missing, MISSING)

    def answer(self, x: Tensor) -> Tensor:
        half = x.shape[1] // 2
        if not half:
            return x
        twice = x[:, : 2 * half].roll(half, 1)  # each element's twin in its place
        return torch.where(x[:, : 2 * half] == MISSING, twice, 0).sum(1, keepdim=True)

    def solve(self, prompt: list[int]) -> list[int]:
        half = (len(prompt) - 1) // 2
        first, second = prompt[:half], prompt[half : 2 * half]
        pairs = zip(first, second, strict=True)
        return next(([min(pair)] for pair in pairs if MISSING in pair), [1])
