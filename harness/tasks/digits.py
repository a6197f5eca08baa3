"""What tasks over digits share: strings of them to rearrange, numbers to calculate with."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import pad

from harness.tasks.base import Task, Vocab
from harness.tasks.strings import Strings
from harness.theory.representation import Computation, Step


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


class AlignedStrings(DigitStrings):
    """Digit strings that may be padded, so that prompts of all lengths have the same places.

    `aligned=N` writes zeros behind the n digits up to N of them, and answers to all N: the length n
    cannot be read from a prompt, and is at most N. Chen et al. (2026) train and test in this form.
    """

    def __init__(self, *, symbols: int = 10, aligned: int = 0) -> None:
        super().__init__(symbols=symbols)
        align(self, aligned)

    def draw(self, generator: torch.Generator, batch: int, length: int) -> Tensor:
        return padded(super().draw(generator, batch, length), self.aligned)

    def measure(self, prompt: list[int]) -> int:
        return least(prompt[:-1]) if self.aligned else len(prompt) - 1

    def max_tokens(self, length: int) -> tuple[int, int]:
        places = self.aligned or length
        return places + 1, places

    def computation(self, n: int) -> Computation:
        places = self.aligned or n
        return Computation(places + 1, tuple(self.step(places, t) for t in range(1, places + 1)))

    def step(self, places: int, t: int) -> Step:
        """The step that writes token t, from 1, of an answer of that many."""
        raise NotImplementedError


LONGEST = 10_000  # places of an aligned prompt


def align(task: Task, places: int) -> None:
    """Make it a task whose prompts are padded to so many places; 0 leaves it as it is.

    Its example becomes an instance of that form. Errors: ValueError for places out of range.
    """
    if not 0 <= places <= LONGEST:
        raise ValueError(f"aligned must be a scale from 1 to {LONGEST}, or 0, was {places}")
    task.aligned = places
    if places:
        task.max_length = places
        made = task.sample(torch.Generator().manual_seed(0), 1, min(3, places))
        task.example = task.vocab.decode([*made.prompt[0].tolist(), *made.target[0].tolist()])


def padded(digits: Tensor, places: int, *, before: bool = False) -> Tensor:
    """Digits (B, n) with zeros behind or before them, (B, places); as they are for places = 0."""
    more = places - digits.shape[1] if places else 0
    return pad(digits, (more, 0) if before else (0, more))


def least(digits: list[int]) -> int:
    """How many digits there are, zeros at the end not counted; at least 1."""
    return max((place for place, digit in enumerate(digits, 1) if digit), default=1)


def same(u: int) -> int:
    """The unit operator of tasks that rearrange."""
    return u


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
