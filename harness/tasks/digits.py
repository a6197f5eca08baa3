"""Base classes and arithmetic of tasks over digits."""

import torch
from torch import Tensor
from torch.nn.functional import pad

from harness.tasks.base import Task, Vocab
from harness.tasks.strings import OneToken, Strings
from harness.theory.representation import Computation, Step

LONGEST = 10_000  # digits of an aligned prompt


class DigitStrings(Strings):
    """n random digits, "=", and an answer of digits.

    Length n: the number of digits. Chance: 1/10, or 1/symbols.
    """

    vocab = Vocab((*"0123456789", "="))
    chance = 0.1

    def __init__(self, *, symbols: int = 10) -> None:
        """Use the first `symbols` of the ten digits. Errors: ValueError unless 2 to 10."""
        if not 2 <= symbols <= 10:
            raise ValueError(f"symbols must be within 2..10, was {symbols}")
        self.symbols = symbols
        if symbols < 10:
            self.vocab = Vocab((*"0123456789"[:symbols], "="))
            self.chance = 1 / symbols
            prompt = [int(digit) % symbols for digit in self.example.partition("=")[0]]
            prompt.append(symbols)
            self.example = self.vocab.decode([*prompt, *self.solve(prompt)])


class SelectedDigit(OneToken, DigitStrings):
    """n random digits, "=", and one of the digits. A subclass defines `selected`."""

    def selected(self, n: int) -> int:
        """Return the place, from 0, of the digit among n."""
        raise NotImplementedError

    def answer(self, x: Tensor) -> Tensor:
        return x[:, self.selected(x.shape[1])][:, None]

    def computation(self, n: int) -> Computation:
        return Computation(n + 1, (Step(n + 2, same, (self.selected(n) + 1,)),))


class AlignedStrings(DigitStrings):
    """Digit strings that may be padded with zeros, so that prompts of all lengths are equally long.

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
        return super().max_tokens(self.aligned or length)

    def computation(self, n: int) -> Computation:
        places = self.aligned or n
        return Computation(places + 1, tuple(self.step(places, t) for t in range(1, places + 1)))

    def step(self, places: int, t: int) -> Step:
        """Return the step that writes token t, from 1, of an answer of `places` tokens."""
        raise NotImplementedError


def align(task: Task, places: int) -> None:
    """Pad a task's prompts to `places` digits, and its example too; 0 leaves it unchanged.

    Errors: ValueError for a number out of range.
    """
    if not 0 <= places <= LONGEST:
        raise ValueError(f"aligned must be a scale from 1 to {LONGEST}, or 0, was {places}")
    task.aligned = places
    if places:
        task.max_length = places
        made = task.sample(torch.Generator().manual_seed(0), 1, min(3, places))
        task.example = task.vocab.decode([*made.prompt[0].tolist(), *made.target[0].tolist()])


def padded(digits: Tensor, places: int, *, before: bool = False) -> Tensor:
    """Pad digits (B, n) with zeros behind or before them to (B, places); 0 places: unchanged."""
    more = places - digits.shape[1] if places else 0
    return pad(digits, (more, 0) if before else (0, more))


def least(digits: list[int]) -> int:
    """Count the digits without zeros at the end; at least 1."""
    return max((place for place, digit in enumerate(digits, 1) if digit), default=1)


def same(u: int) -> int:
    """The identity, the unit operator of tasks that rearrange."""
    return u


def operands(
    generator: torch.Generator, batch: int, length: int, *, square: bool = False
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Draw two numbers: digits a, b (B, n) with zeros past the end, and their lengths (B, 1).

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
    """Add numbers (B, n), least significant digit first: digits of the sum and all carries (B, n).

    A place whose digits sum to base - 1 passes on the carry it receives. So the carry out of a
    place is decided by the last place up to it that does not.
    """
    total = a + b
    place = torch.arange(total.shape[1], device=total.device)
    decides = torch.where(total == base - 1, 0, place).cummax(1).values  # place 0 receives none
    carry = (total.gather(1, decides) >= base).long()
    return (total + pad(carry, (1, -1))) % base, carry
