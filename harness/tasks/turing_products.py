"""Base class of the tasks that multiply as a Turing machine does."""

from typing import ClassVar

import torch
from torch import Tensor
from torch.nn.functional import pad

from harness.tasks.base import Batch
from harness.tasks.formats import HEAD
from harness.tasks.ragged import Ragged, dense
from harness.tasks.turing_arithmetic import TuringArithmetic


class TuringProducts(TuringArithmetic):
    """a * b with b of `digits` digits, a step per digit of a and per digit of the last carry.

    Length n: the number of digits of a, 2 or more.
    """

    digits: ClassVar[int]
    summary = "multiplication as a Turing machine's tape, step by step"
    paper = "Hou et al. 2024, Figure 4"
    sign = "*"
    marks = "^$*|(~),."

    def sample(self, generator: torch.Generator, batch: int, length: int) -> Batch:
        self.check_length(length)
        shape = (batch, length + self.digits)
        drawn = torch.randint(10, shape, generator=generator, device=generator.device)
        a, b = drawn[:, :length], drawn[:, length:]  # least significant first
        total, carry = _products(a, b)
        happens = torch.ones_like(total, dtype=torch.bool)
        happens[:, length:] = carry[:, length - 1 : -1] > 0
        steps = self._tapes(a, b, total, carry, happens) if self.format.scratchpad else None
        operands = [(x, torch.full_like(x[:, :1], x.shape[1])) for x in (a, b)]
        result = total, happens.sum(1, keepdim=True)
        return self.written(generator, operands, result, steps, length)

    def calculate(self, a: int, b: int) -> int:
        return a * b

    def places(self, a: str, b: str) -> int:
        return len(a)

    def steps(self, a: str, b: str) -> list[str]:
        carry, total, steps, k = 0, "", [], len(b)
        while a or carry:
            product = int(a[-1:] or 0) * int(b)
            carry, digit = divmod(product + carry, 10)
            total = f"{digit}{total}"
            head, a = ("abcdefghij"[int(a[-1])] if a else "^"), a[:-1]
            steps.append(f"{a}{head}*{b}({product:0{k + 1}}~{carry:0{k}},{total})")
        return [*steps, total]

    def max_tokens(self, length: int) -> tuple[int, int]:
        n, k, form = length, self.digits, self.format
        prompt = form.tokens(n + k) + 3
        steps, each = n + k, 3 * k + 7  # of a step without a and the result
        scratch = steps * each + n * (n + 1) // 2 + k + steps * (steps + 1) // 2
        return prompt, form.scratchpad * scratch + form.tokens(n + k) + 1

    def _tapes(self, a: Tensor, b: Tensor, total: Tensor, carry: Tensor, happens: Tensor) -> Ragged:
        """Write the n + k steps. Step s has read place s of a."""
        (batch, n), k = a.shape, self.digits
        size = batch, n + k, -1
        place = torch.arange(n + k - 1, -1, -1, device=a.device)
        step = torch.arange(n + k, device=a.device)[:, None]  # (n + k, 1)
        rest = a.flip(1)[:, None].expand(size), (place[k:] > step).expand(size)
        head = torch.cat([HEAD + a, torch.full_like(b, self.vocab.id("^"))], 1)[..., None]
        factor = b.flip(1)[:, None].expand(size)
        product = _written(pad(a, (0, k)) * _value(b), k + 1)
        so_far = total.flip(1)[:, None].expand(size), (place <= step).expand(size)
        star, opens, tilde, comma, closes, bar = (self.repeated(c, total) for c in "*(~,)|")
        parts = [rest, dense(head), star, dense(factor), opens, dense(product), tilde]
        parts += [dense(_written(carry, k)), comma, so_far, closes, bar]
        return self.side_by_side(parts, happens)


def _value(digits: Tensor) -> Tensor:
    """Return the number (B, 1) of digits (B, k), least significant first."""
    return (digits * 10 ** torch.arange(digits.shape[1], device=digits.device)).sum(1, keepdim=True)


def _written(x: Tensor, width: int) -> Tensor:
    """Return the decimal digits (..., width) of x, most significant first."""
    return x[..., None] // 10 ** torch.arange(width - 1, -1, -1, device=x.device) % 10


def _products(a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
    """Return the digits of a * b and the carry after each, (B, n + k), least significant first."""
    value = _value(b)
    carry, digits, carries = torch.zeros_like(value), [], []
    for digit in pad(a, (0, b.shape[1])).split(1, 1):
        now = digit * value + carry
        carry = now // 10
        digits.append(now % 10)
        carries.append(carry)
    return torch.cat(digits, 1), torch.cat(carries, 1)
