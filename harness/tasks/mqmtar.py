"""Look up values of two tokens by keys of two tokens."""

from string import ascii_lowercase

import torch
from torch import Tensor

from harness.tasks.base import Batch, Task, Vocab

QUERIES = 4


class Mqmtar(Task):
    """Multi-query multi-token associative recall: pairs, 4 queries, then the 4 values.

    ab:cd_ba:ac__bb:dd_?ba?ab?bb?ba=?ac?cd?dd?ac

    A key and a value are two letters each, all uniform; the keys of a sequence differ. Four of five
    tokens before the queries are pairs with ":" and one "_" each, the others are "_" at random
    places. Queries are drawn with replacement.

    Vocabulary: letters, ":", "_", "?", "=". Length n: the number of pairs, at most letters squared.
    Options: letters, how many there are.
    Chance: 1/letters for the letters, which are two of three tokens of an answer; "?" is known. The
    best constant is "?", 1/3.

    Paper: Vasylenko et al. 2026, "Long-Context Generalization with Sparse Attention" (arXiv
    2506.16640). Deviation: its alphabet has 256 letters, its length counts tokens, and keys and
    values are drawn from lists that are fixed for a data set.
    """

    name = "mqmtar"
    summary = "the values of 4 keys, of two tokens each"
    paper = "Vasylenko et al. 2026"
    family = "retrieval"
    chance = 1 / 3
    example = "ab:cd_ba:ac__bb:dd_?ba?ab?bb?ba=?ac?cd?dd?ac"

    def __init__(self, *, letters: int = 16) -> None:
        if not 4 <= letters <= 26:
            raise ValueError(f"letters must be 4 to 26, was {letters}")
        self.letters, self.max_length = letters, letters**2
        self.vocab = Vocab((*ascii_lowercase[:letters], *":_?="))

    def sample(self, generator: torch.Generator, batch: int, length: int) -> Batch:
        self.check_length(length)
        device, size = generator.device, self.letters
        order = torch.rand(batch, size**2, generator=generator, device=device).argsort(1)
        key = self._word(order[:, :length])
        value = self._word(
            torch.randint(size**2, (batch, length), generator=generator, device=device)
        )
        colon, blank, ask, equals = (
            key.new_full((batch, length, 1), self.vocab.id(c)) for c in ":_?="
        )
        unit = torch.cat([key, colon, value, blank], 2)  # (B, n, 6)
        # Each of the further blanks follows a unit, which is drawn uniformly.
        spare = self._blanks(length)
        after = torch.randint(length, (batch, spare), generator=generator, device=device)
        place = torch.cat(
            [torch.arange(6 * length, device=device).expand(batch, -1), 6 * after + 5], 1
        )
        tokens = torch.cat([unit.flatten(1), blank[:, :1, 0].expand(-1, spare)], 1)
        memory = tokens.gather(1, place.argsort(dim=1, stable=True))
        pick = torch.randint(length, (batch, QUERIES), generator=generator, device=device)
        picked = pick[:, :, None].expand(-1, -1, 2)
        mark = ask[:, :1].expand(-1, QUERIES, 1)
        asked, answer = (
            torch.cat([mark, part.gather(1, picked)], 2).flatten(1) for part in (key, value)
        )
        return Batch(torch.cat([memory, asked, equals[:, 0]], 1), answer)

    def _word(self, number: Tensor) -> Tensor:
        """Return the two letters (..., 2) of a number."""
        return torch.stack([number // self.letters, number % self.letters], -1)

    def _blanks(self, length: int) -> int:
        """Return how many blanks fill up the fifth of the tokens that are not pairs."""
        return 6 * length * 5 // 4 - 6 * length

    def solve(self, prompt: list[int]) -> list[int]:
        text = self.vocab.decode(prompt[:-1])
        memory, *queries = text.split("?")
        value = dict(part.split(":") for part in memory.split("_") if part)
        return self.vocab.encode("".join(f"?{value[query]}" for query in queries)).tolist()

    def measure(self, prompt: list[int]) -> int:
        return prompt.count(self.vocab.id(":"))

    def max_tokens(self, length: int) -> tuple[int, int]:
        return 6 * length + self._blanks(length) + 3 * QUERIES + 1, 3 * QUERIES
