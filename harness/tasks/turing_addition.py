"""Add two numbers as a Turing machine does, with every state of its tape written out."""

import re

import torch
from torch import Tensor
from torch.nn.functional import pad

from harness.tasks.base import Batch, TaskError
from harness.tasks.digits import sums
from harness.tasks.formats import HEAD, SHORTEST
from harness.tasks.ragged import Ragged, dense
from harness.tasks.turing_arithmetic import TuringArithmetic


class TuringAddition(TuringArithmetic):
    """a + b, most significant digit first: the tape after each step, then the sum.

    $4324+139|432e+13j(1,3)|43c+1d(0,63)|4d+b(0,463)|e+^(0,4463)|4463.
    $99+19|9j+1j(1,8)|j+b(1,18)|^+^(0,118)|118.    a carry out of the last digits: one more step

    A step reads the last digit of each operand, written as a letter (a..j stand for 0..9), or ^
    where an operand has none left. It writes (carry, sum so far), and the next step has lost those
    digits.
    Options: format, "scratchpad", or the sum alone as `harness.tasks.formats` shows: "plain",
    "reversed", "hints", "reversed+hints".

    The operands' lengths are independent, each uniform from 2 on: of a length n, all pairs of
    which the longer one has n digits are equally likely, and `share` is their number, 2n - 3. All
    digits are uniform, so the most significant ones may be 0. Further test sets: "n+n", both of n
    digits, and "17+n" for any number, the first of 17 digits and the second of n.

    Vocabulary: the digits 0..9 (ids 0..9), a..j (ids 10..19), "^", "$", "+", "|", "(", ")", ",",
    "." and what the format adds. Length n: the number of digits of the longer operand, 2 or more,
    with hints up to 127.
    Chance: all but a vanishing share of the free tokens of long answers are digits of the operands
    and of the sum, uniformly random, so 1/10; with hints every other token is one.

    Paper: Hou et al. 2024, "Universal Length Generalization with Turing Programs", Figure 2, in the
    compact form that its experiments use. Deviation: the paper shows no carry out of the last
    digits, which is here as in its multiplication: the machine goes on until nothing is left to
    carry.
    """

    name = "turing_addition"
    version = 2
    summary = "addition as a Turing machine's tape, step by step"
    paper = "Hou et al. 2024, Figure 2"
    example = "$4324+139|432e+13j(1,3)|43c+1d(0,63)|4d+b(0,463)|e+^(0,4463)|4463."
    sign = "+"
    marks = "^$+|(),."

    def share(self, length: int) -> float:
        return 2.0 * (length - SHORTEST) + 1

    def sample(self, generator: torch.Generator, batch: int, length: int) -> Batch:
        self.check_length(length)
        shape, more = (batch, 1), length - SHORTEST
        which = torch.randint(2 * more + 1, shape, generator=generator, device=generator.device)
        first = torch.where(which <= more, length, SHORTEST + which - more - 1)
        second = torch.where(which <= more, SHORTEST + which, length)
        return self._instances(generator, first, second, length)

    def check_test_set(self, name: str) -> None:
        if not re.fullmatch(r"n\+n|\d{1,4}\+n", name) or name[0] == "0" or name == "1+n":
            raise TaskError(f"{self.name} has no test set {name!r}; expected n+n, or 2+n, 3+n, ...")

    def test_set(self, name: str, generator: torch.Generator, batch: int, length: int) -> Batch:
        self.check_test_set(name)
        first = length if name == "n+n" else int(name[:-2])
        self.check_length(length)
        self.check_length(first)
        ones = torch.ones(batch, 1, dtype=torch.int64, device=generator.device)
        return self._instances(generator, first * ones, length * ones, max(first, length))

    def calculate(self, a: int, b: int) -> int:
        return a + b

    def steps(self, a: str, b: str) -> list[str]:
        carry, total, steps = 0, "", []
        while a or b or carry:
            carry, digit = divmod(int(a[-1:] or 0) + int(b[-1:] or 0) + carry, 10)
            total = f"{digit}{total}"
            heads = ["abcdefghij"[int(x[-1])] if x else "^" for x in (a, b)]
            a, b = a[:-1], b[:-1]
            steps.append(f"{a}{heads[0]}+{b}{heads[1]}({carry},{total})")
        return [*steps, total]

    def max_tokens(self, length: int) -> tuple[int, int]:
        steps = 3 * length * (length + 1) // 2 + 7 * length + 9 if self.format.scratchpad else 0
        prompt = 2 * self.format.tokens(length) + 3
        return prompt, steps + self.format.tokens(length + 1) + 1

    def _instances(self, generator: torch.Generator, len_a: Tensor, len_b: Tensor, n: int) -> Batch:
        """Draw operands of these lengths (B, 1), of which n is the longest."""
        shape = (2, len(len_a), n)
        digits = torch.randint(10, shape, generator=generator, device=generator.device)
        place = torch.arange(n, device=generator.device)
        a, b = torch.where(place < len_a, digits[0], 0), torch.where(place < len_b, digits[1], 0)
        longest = torch.maximum(len_a, len_b)
        total, carry = sums(pad(a, (0, 1)), pad(b, (0, 1)))  # (B, n + 1)
        operands = [(a, len_a), (b, len_b)]
        steps = self._tapes(operands, total, carry) if self.format.scratchpad else None
        result = total, longest + carry[:, n - 1 : n]
        return self.written(generator, operands, result, steps, n)

    def _tapes(self, operands: list[tuple[Tensor, Tensor]], total: Tensor, carry: Tensor) -> Ragged:
        """Write the n + 1 steps. Step s has read place s of both; the last is for a carry alone."""
        batch, places = total.shape
        place = torch.arange(places - 1, -1, -1, device=total.device)
        step = torch.arange(places, device=total.device)[:, None]  # (n + 1, 1)

        def tape(digits: Tensor, length: Tensor) -> Ragged:
            digits, length = pad(digits, (0, 1)).flip(1)[:, None], length[..., None]
            head = torch.where(step < length, HEAD + digits, self.vocab.id("^"))
            kept = (place == step) | ((place > step) & (place < length))
            return torch.where(place == step, head, digits), kept

        a, b = (tape(*one) for one in operands)
        plus, opens, comma, closes, bar = (self.repeated(symbol, total) for symbol in "+(,)|")
        size = batch, places, -1
        so_far = total.flip(1)[:, None].expand(size), (place <= step).expand(size)
        longest = torch.maximum(operands[0][1], operands[1][1])
        happens = step[:, 0] < longest + carry.gather(1, longest - 1)
        parts = [a, plus, b, opens, dense(carry[..., None]), comma, so_far, closes, bar]
        return self.side_by_side(parts, happens)
