"""What tasks over digits share: strings of them to rearrange, numbers to calculate with."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import pad

from harness.tasks.base import Vocab
from harness.tasks.strings import Strings


class DigitStrings(Strings):
    """n random digits, "=", and an answer of such digits, n of them if a subclass says no other.

    Length n: the number of digits. Chance: 1/10, or 1/symbols.
    """

    vocab = Vocab((*"0123456789", "="))
    chance = 0.1

    def __init__(self, *, symbols: int = 10) -> None:
        """`symbols` of the ten digits are used: at 2 the strings are binary."""
        if not 2 <= symbols <= 10:
            raise ValueError(f"symbols must be within 2..10, was {symbols}")
        self.symbols = symbols
        if symbols < 10:
            self.vocab = Vocab((*"0123456789"[:symbols], "="))
            self.chance = 1 / symbols
            prompt = [int(digit) % symbols for digit in self.example.partition("=")[0]]
            prompt.append(symbols)
            self.example = self.vocab.decode([*prompt, *self.solve(prompt)])

    def draw(self, generator: torch.Generator, batch: int, length: int) -> Tensor:
        shape = (batch, length)
        return torch.randint(self.symbols, shape, generator=generator, device=generator.device)

    def max_tokens(self, length: int) -> tuple[int, int]:
        return length + 1, length


def operands(
    generator: torch.Generator, batch: int, length: int, *, square: bool = False
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Two random numbers: their digits a, b (B, n), 0 past the end, and how many there are, (B, 1).

    One has n digits, the other k, k uniform over 1..n; a fair coin says which is which. Digits are
    uniform. `square`: both have n digits.
    """
    device = generator.device
    digits = torch.randint(10, (2, batch, length), generator=generator, device=device)
    shorter = torch.randint(
        length if square else 1, length + 1, (batch, 1), generator=generator, device=device
    )
    coin = torch.rand((batch, 1), generator=generator, device=device) < 0.5
    len_a, len_b = torch.where(coin, length, shorter), torch.where(coin, shorter, length)
    place = torch.arange(length, device=device)
    a, b = torch.where(place < len_a, digits[0], 0), torch.where(place < len_b, digits[1], 0)
    return a, b, len_a, len_b


def sums(a: Tensor, b: Tensor, base: int = 10) -> tuple[Tensor, Tensor]:
    """Digits of a + b and the carry out of each place, (B, n), least significant first, as a, b."""
    carry = _carries(a + b, base)
    return (a + b + pad(carry, (1, -1))) % base, carry


def _carries(total: Tensor, base: int) -> Tensor:
    """(B, n) carry out of each place, from the sums of its two digits (B, n), all places at once.

    A place whose digits sum to base - 1 hands on the carry that it gets. So the carry out of a
    place is made by the last place up to it that does not.
    """
    place = torch.arange(total.shape[1], device=total.device)
    maker = torch.where(total == base - 1, 0, place).cummax(1).values  # place 0 has none to hand on
    return (total.gather(1, maker) >= base).long()
