"""Count the blocks of a string of a's and b's."""

import torch
from torch import Tensor

from harness.tasks.base import Vocab
from harness.tasks.strings import OneToken, scattered


class Alternation(OneToken):
    """n letters in blocks of a's and b's, then 1 if there are k blocks, 0 if there are k - 1.

    aabbbab=1    with k=4: the blocks aa, bbb, a, b
    aabbbaa=0    the blocks aa, bbb, aa

    The first block is of a's. Both numbers of blocks are equally likely, and so are all places at
    which blocks begin.

    Vocabulary: a, b, 0, 1, "=" (ids 0..4). Length n: the number of letters, at least k.
    Options: k. Chance: both answers are equally likely, so 1/2.

    Paper: Yang et al. 2025, "Knee-Deep in C-RASP" (arXiv 2506.16055): a Transformer of depth d
    without positional encoding recognises L_k for k up to d + 2. Deviation: there a model says at
    every letter of a string in L_k whether its last block has begun.
    """

    name = "alternation"
    summary = "k blocks of letters, or one less"
    paper = "Yang et al. 2025"
    family = "state"
    vocab = Vocab(("a", "b", "0", "1", "="))
    chance = 0.5

    def __init__(self, *, k: int = 4) -> None:
        if not 2 <= k <= 100:
            raise ValueError(f"k must be 2 to 100, was {k}")
        self.k = self.min_length = k
        self.example = f"{('ab' * k)[:k]}=1"

    def draw(self, generator: torch.Generator, batch: int, length: int) -> Tensor:
        device = generator.device
        fewer = torch.randint(2, (batch, 1), generator=generator, device=device)
        begins = scattered(generator, self.k - 1 - fewer, length - 1)  # at letters 2..n
        return torch.cat([torch.zeros_like(fewer), begins.cumsum(1) % 2], 1)

    def answer(self, x: Tensor) -> Tensor:
        blocks = 1 + (x[:, 1:] != x[:, :-1]).sum(1, keepdim=True)
        return 2 + (blocks >= self.k).long()

    def solve(self, prompt: list[int]) -> list[int]:
        text = self.vocab.decode(prompt[:-1])
        blocks = text.replace("ab", "a b").replace("ba", "b a").split()
        return [self.vocab.id("1" if len(blocks) == self.k else "0")]
