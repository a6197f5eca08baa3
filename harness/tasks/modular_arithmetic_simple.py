"""Calculate modulo 5, without brackets."""

import torch
from torch import Tensor

from harness.tasks.base import Vocab
from harness.tasks.strings import OneToken

PLUS, MINUS, TIMES = 5, 6, 7


class ModularArithmeticSimple(OneToken):
    """Random digits 0..4 with +, - and * between them, then the value modulo 5.

    1+2*3-4=3    1 + 6 - 4, products before sums

    Digits and operators are uniform.

    Vocabulary: 0..4, + - * and "=" (ids 0..8). Length n: digits and operators together, which is
    odd. The reference code makes an even length odd by taking one off; where lengths are uniform
    over 1..40, that is uniform over the odd ones, which `lengths` offers.
    Chance: 1/5. A product is 0 more often than not, so 0 is a little more likely than the others.

    Paper: Ruoss et al. (2023), level R (regular), after Delétang et al. (2023), where it is called
    modular arithmetic. Deviation: none.
    """

    name = "modular_arithmetic_simple"
    summary = "the value modulo 5, no brackets"
    paper = "Ruoss et al. 2023, Table 1"
    family = "arithmetic"
    example = "1+2*3-4=3"
    vocab = Vocab((*"01234+-*", "="))
    chance = 0.2

    def lengths(self, low: int, high: int) -> list[int]:
        return [n for n in super().lengths(low, high) if n % 2]

    def draw(self, generator: torch.Generator, batch: int, length: int) -> Tensor:
        shape, device = (batch, length), generator.device
        digits = torch.randint(5, shape, generator=generator, device=device)
        operators = torch.randint(PLUS, TIMES + 1, shape, generator=generator, device=device)
        odd = torch.arange(length, device=device) % 2 == 1
        return torch.where(odd, operators, digits)

    def answer(self, x: Tensor) -> Tensor:
        total, factor = torch.zeros_like(x[:, 0]), x[:, 0]
        for operator, digit in zip(x[:, 1::2].unbind(1), x[:, 2::2].unbind(1), strict=True):
            times = operator == TIMES
            total = torch.where(times, total, total + factor)
            signed = torch.where(operator == MINUS, -digit, digit)
            factor = torch.where(times, factor * digit, signed) % 5
        return ((total + factor) % 5)[:, None]

    def solve(self, prompt: list[int]) -> list[int]:
        total, factor = 0, prompt[0]
        for operator, digit in zip(prompt[1:-1:2], prompt[2:-1:2], strict=True):
            if operator == TIMES:
                factor *= digit
            else:
                total, factor = total + factor, digit if operator == PLUS else -digit
        return [(total + factor) % 5]
