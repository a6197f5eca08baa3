"""Look up the values of many keys."""

import torch
from torch import Tensor

from harness.tasks.base import Batch, Task, Vocab


class Mqar(Task):
    """Multi-query associative recall: n pairs of a key and a value, then each key with its value.

    k7 v2 k3 v0 k5 v2 = k3 v0 k5 v2 k7 v2

    Keys differ, values may repeat, all drawn uniformly. The keys are asked for in ascending order,
    which is unrelated to the order of the pairs. They are given: a decoder reads them and writes
    the values.

    Vocabulary: the keys k0.. and the values v0.., then "=". Length n: the number of pairs, at most
    the number of keys.
    Options: keys and values, how many there are.
    Chance: every value is equally likely, so 1/values.

    Paper: Arora et al. 2023, "Zoology" (arXiv 2312.04927). Deviation: there the queries follow a
    power law of gaps, with other tokens between them, and values do not repeat.
    """

    name = "mqar"
    summary = "the values of many keys"
    paper = "Arora et al. 2023"
    family = "retrieval"
    best_constant = ((10, 0.08), (20, 0.12), (30, 0.18), (36, 0.27), (40, 0.53))
    example = "k7 v2 k3 v0 k5 v2 = k3 v0 k5 v2 k7 v2"

    def __init__(self, *, keys: int = 40, values: int = 20) -> None:
        if not (8 <= keys <= 10_000 and 4 <= values <= 10_000):
            raise ValueError(f"keys must be 8 to 10000, values 4 to 10000, were {keys}, {values}")
        self.keys, self.chance, self.max_length = keys, 1 / values, keys
        pairs = (*(f"k{i}" for i in range(keys)), *(f"v{i}" for i in range(values)))
        self.values, self.vocab = values, Vocab((*pairs, "="), separator=" ")

    def given(self, target: Tensor) -> Tensor:
        return target < self.keys

    def sample(self, generator: torch.Generator, batch: int, length: int) -> Batch:
        self.check_length(length)
        device, shape = generator.device, (batch, length)
        order = torch.rand(batch, self.keys, generator=generator, device=device).argsort(1)
        key, sorting = order[:, :length], order[:, :length].argsort(1)
        value = torch.randint(self.values, shape, generator=generator, device=device) + self.keys
        pairs = torch.stack([key, value], 2)
        asked = pairs.gather(1, sorting[:, :, None].expand_as(pairs))
        equals = key.new_full((batch, 1), self.vocab.id("="))
        return Batch(torch.cat([pairs.flatten(1), equals], 1), asked.flatten(1))

    def solve(self, prompt: list[int]) -> list[int]:
        value = dict(zip(prompt[:-1:2], prompt[1:-1:2], strict=True))
        return [token for key in sorted(value) for token in (key, value[key])]

    def measure(self, prompt: list[int]) -> int:
        return len(prompt) // 2

    def max_tokens(self, length: int) -> tuple[int, int]:
        return 2 * length + 1, 2 * length
