"""Compute the square root of a binary number."""

from math import isqrt

import torch
from torch import Tensor

from harness.tasks.base import Vocab
from harness.tasks.binary import positive
from harness.tasks.strings import Strings


class ComputeSqrt(Strings):
    """A binary number, then the floor of its square root; both with the highest bit first.

    100101=110    37, whose root is 6.08...

    Numbers are uniform over 1..2^n - 1. The root has ceil(n / 2) bits, with zeros in front.

    Vocabulary: 0, 1 and "=" (ids 0..2). Length n: the bits of the number.
    Chance: most bits of the root are nearly fair coins: 1/2. Where n is even, three in four roots
    begin with a 1.

    Paper: Ruoss et al. (2023), level CS (context-sensitive), after Delétang et al. (2023).
    Deviation: none.
    """

    name = "compute_sqrt"
    summary = "the square root of a binary number"
    paper = "Ruoss et al. 2023, Table 1"
    family = "arithmetic"
    example = "100101=110"
    vocab = Vocab(("0", "1", "="))
    chance = 0.5

    def draw(self, generator: torch.Generator, batch: int, length: int) -> Tensor:
        size = torch.full((batch, 1), length, device=generator.device)
        return positive(generator, size, length).flip(1)

    def answer(self, x: Tensor) -> Tensor:
        n, bits = x.shape[1], (x.shape[1] + 1) // 2
        text = (x + ord("0")).to("cpu", torch.uint8).numpy().tobytes()
        numbers = (int(text[i : i + n], 2) for i in range(0, len(text), n))
        roots = "".join(f"{isqrt(number):0{bits}b}" for number in numbers)
        ids = torch.frombuffer(bytearray(roots, "ascii"), dtype=torch.uint8)
        return ids.to(x.device, torch.int64).view(-1, bits) - ord("0")

    def solve(self, prompt: list[int]) -> list[int]:
        number = 0
        for bit in prompt[:-1]:
            number = 2 * number + bit
        root, bits = 0, []
        for place in reversed(range(len(prompt) // 2)):
            bits.append(int((root + 2**place) ** 2 <= number))
            root += bits[-1] * 2**place
        return bits

    def max_tokens(self, length: int) -> tuple[int, int]:
        return length + 1, (length + 1) // 2
