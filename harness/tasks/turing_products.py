"""What turing_multiplication_1 and turing_multiplication_3 share."""

from __future__ import annotations

from typing import ClassVar

import torch
from torch import Tensor

from harness.tasks.base import Batch, Task, Vocab, pack
from harness.tasks.formats import (
    HEAD,
    HINTS,
    SHORTEST,
    Columns,
    Format,
    beside,
    encoded,
    mark,
    whole,
)


class TuringProducts(Task):
    """a * b with b of `digits` digits, a step per digit of a and per digit of the last carry.

    Length n: the number of digits of a, 2 or more.
    """

    digits: ClassVar[int]
    bare_chance: ClassVar[float]  # `chance` without a scratchpad
    summary = "multiplication as a Turing machine's tape, step by step"
    paper = "Hou et al. 2024, Figure 4"
    family = "arithmetic"
    chance = 0.1

    def __init__(self, *, format: str = "scratchpad") -> None:
        symbols = (*"0123456789", *"abcdefghij", *"^$*|(~),.")
        self.format = Format(format, len(symbols))
        self.vocab = Vocab(symbols + self.format.symbols)
        if not self.format.scratchpad:
            self.chance = self.bare_chance / (1 + self.format.hints)
            a, b = self.example[1 : self.example.index("|")].split("*")
            written = [self.format.write(x, 9) for x in (a, b, str(int(a) * int(b)))]
            self.example = f"${written[0]}*{written[1]}|{written[2]}."

    def lengths(self, low: int, high: int) -> list[int]:
        top = min(high, HINTS - self.digits) if self.format.hints else high
        return super().lengths(max(low, SHORTEST), top)

    def sample(self, generator: torch.Generator, batch: int, length: int) -> Batch:
        self.check_length(length)
        shape, form, places = (batch, length + self.digits), self.format, length + self.digits
        drawn = torch.randint(10, shape, generator=generator, device=generator.device)
        a, b = drawn[:, :length], drawn[:, length:]  # least significant first
        total, carry = _products(a, b)
        start = form.starts(generator, batch, places)
        asked = [
            form.number(x, torch.full_like(x[:, :1], x.shape[1]), start, places, generator)
            for x in (a, b)
        ]
        marks = [mark(a, self.vocab.id(symbol)) for symbol in "$*|."]
        prompt, kept = beside(marks[0], asked[0], marks[1], asked[1], marks[2])
        happens = torch.cat(
            [torch.ones_like(a, dtype=torch.bool), carry[:, length - 1 : -1] > 0], 1
        )
        steps = [self._steps(a, b, total, carry, happens)] if form.scratchpad else []
        size = happens.sum(1, keepdim=True)
        target, in_target = beside(*steps, form.number(total, size, start, places), marks[3])
        widths = self.max_tokens(length)
        return Batch(
            prompt=pack(prompt, kept, widths[0], self.vocab.pad, right=True),
            target=pack(target, in_target, widths[1], self.vocab.pad),
        )

    def solve(self, prompt: list[int]) -> list[int]:
        texts = self.vocab.decode(prompt).strip("$|").split("*")
        (a, hint), (b, _) = map(self.format.read, texts)
        if not self.format.scratchpad:
            total = str(int(a) * int(b)).zfill(len(a))
            return encoded(f"{self.format.write(total, hint)}.", self.vocab)
        carry, total, steps, k = 0, "", [], len(b)
        while a or carry:
            product = int(a[-1:] or 0) * int(b)
            carry, digit = divmod(product + carry, 10)
            total = f"{digit}{total}"
            head, a = ("abcdefghij"[int(a[-1])] if a else "^"), a[:-1]
            steps.append(f"{a}{head}*{b}({product:0{k + 1}}~{carry:0{k}},{total})")
        return encoded("|".join([*steps, f"{total}."]), self.vocab)

    def measure(self, prompt: list[int]) -> int:
        text = self.vocab.decode(prompt).strip("$|")
        return len(self.format.read(text[: text.index("*")])[0])

    def max_tokens(self, length: int) -> tuple[int, int]:
        n, k, form = length, self.digits, self.format
        prompt = form.tokens(n, n - 1) + form.tokens(k, k - 1) + 3
        steps, each = n + k, 3 * k + 7  # of a step without a and the result
        scratch = steps * each + n * (n + 1) // 2 + k + steps * (steps + 1) // 2
        return prompt, form.scratchpad * scratch + form.tokens(n + k) + 1

    def _steps(
        self, a: Tensor, b: Tensor, total: Tensor, carry: Tensor, happens: Tensor
    ) -> Columns:
        """The n + k steps side by side; step s has read place s of a."""
        (batch, n), k = a.shape, self.digits
        size = batch, n + k, -1
        place = torch.arange(n + k - 1, -1, -1, device=a.device)
        step = torch.arange(n + k, device=a.device)[:, None]  # (n + k, 1)
        product = torch.nn.functional.pad(a, (0, k)) * _value(b)

        def sign(symbol: str) -> Tensor:
            return torch.full_like(total, self.vocab.id(symbol))[..., None]

        upper = a.flip(1)[:, None].expand(size)
        head = torch.cat([HEAD + a, torch.full_like(b, self.vocab.id("^"))], 1)[..., None]
        parts = [
            (upper, (place[k:] > step).expand(size)),
            *map(whole, (
                head, sign("*"), b.flip(1)[:, None].expand(size), sign("("),
                _written(product, k + 1), sign("~"), _written(carry, k), sign(","),
            )),
            (total.flip(1)[:, None].expand(size), (place <= step).expand(size)),
            *map(whole, (sign(")"), sign("|"))),
        ]  # fmt: skip
        tokens = torch.cat([part for part, _ in parts], 2)
        kept = torch.cat([kept for _, kept in parts], 2) & happens[..., None]
        return tokens.flatten(1), kept.flatten(1)


def _value(digits: Tensor) -> Tensor:
    """(B, 1) the number of digits (B, k), least significant first."""
    return (digits * 10 ** torch.arange(digits.shape[1], device=digits.device)).sum(1, keepdim=True)


def _written(x: Tensor, width: int) -> Tensor:
    """(..., width) the decimal digits of x, most significant first."""
    return x[..., None] // 10 ** torch.arange(width - 1, -1, -1, device=x.device) % 10


def _products(a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
    """Digits of a * b and the carry after each, (B, n + k), least significant first as a and b."""
    value = _value(b)
    carry, digits, carries = torch.zeros_like(value), [], []
    for digit in torch.nn.functional.pad(a, (0, b.shape[1])).split(1, 1):
        now = digit * value + carry
        carry = now // 10
        digits.append(now % 10)
        carries.append(carry)
    return torch.cat(digits, 1), torch.cat(carries, 1)
