"""Base class of arithmetic tasks that write the tape of a Turing machine step by step."""

from collections.abc import Sequence
from typing import ClassVar

import torch
from torch import Tensor

from harness.tasks.base import Batch, Task, Vocab
from harness.tasks.formats import HINTS, SHORTEST, Format
from harness.tasks.ragged import Ragged, column, concatenate, dense, ragged_batch


class TuringArithmetic(Task):
    """Two operands with a sign between them, the steps of the machine, and the result.

    A subclass defines `calculate`, `steps`, `places`, and `sample` by way of `written`.
    """

    sign: ClassVar[str]
    marks: ClassVar[str]  # symbols of prompts and steps, beside digits and letters
    bare_chance: ClassVar[float] = 0.1  # `chance` without a scratchpad
    more: ClassVar[int] = 1  # digits that a result may have beyond length n
    family = "arithmetic"
    chance = 0.1
    min_length = SHORTEST

    def __init__(self, *, format: str = "scratchpad") -> None:
        symbols = (*"0123456789", *"abcdefghij", *self.marks)
        self.format = Format(format, len(symbols))
        self.vocab = Vocab(symbols + self.format.symbols)
        if self.format.hints:
            self.max_length = HINTS - self.more
        if not self.format.scratchpad:
            self.chance = self.bare_chance / (1 + self.format.hints)
            a, b = self.example[1 : self.example.index("|")].split(self.sign)
            operands = self.sign.join(self.format.write(x, 9) for x in (a, b))
            result = str(self.calculate(int(a), int(b)))
            self.example = f"${operands}|{self.format.write(result, 9)}."

    def calculate(self, a: int, b: int) -> int:
        """Return the result."""
        raise NotImplementedError

    def steps(self, a: str, b: str) -> list[str]:
        """Return the text of every step, and the result."""
        raise NotImplementedError

    def places(self, a: str, b: str) -> int:
        """Return the length n of two operands: the least digits of their result."""
        return max(len(a), len(b))

    def solve(self, prompt: list[int]) -> list[int]:
        a, b, hint = self._operands(prompt)
        if self.format.scratchpad:
            answer = "|".join(self.steps(a, b))
        else:
            result = str(self.calculate(int(a), int(b))).zfill(self.places(a, b))
            answer = self.format.write(result, hint)
        return self.vocab.encode(f"{answer}.").tolist()

    def measure(self, prompt: list[int]) -> int:
        a, b, _ = self._operands(prompt)
        return self.places(a, b)

    def _operands(self, prompt: list[int]) -> tuple[str, str, int]:
        """Return both operands, most significant digit first, and the hint of their last digits."""
        texts = self.vocab.decode(prompt).strip("$|").split(self.sign)
        (a, hint), (b, _) = map(self.format.read, texts)
        return a, b, hint

    def written(
        self,
        generator: torch.Generator,
        operands: Sequence[tuple[Tensor, Tensor]],
        result: tuple[Tensor, Tensor],
        steps: Ragged | None,
        length: int,
    ) -> Batch:
        """Write numbers, each as digits (B, n), least significant first, and their count (B, 1)."""
        form, places = self.format, length + self.more
        total, size = result
        start = form.starts(generator, len(total), places)
        a, b = (form.number(x, n, start, places) for x, n in operands)
        begin, sign, bar, stop = (column(total, self.vocab.id(s)) for s in ("$", self.sign, *"|."))
        answer = form.number(total, size, start, places), stop
        return ragged_batch(
            concatenate(begin, a, sign, b, bar),
            concatenate(steps, *answer) if steps else concatenate(*answer),
            self.vocab.pad,
            self.max_tokens(length),
        )

    def side_by_side(self, parts: Sequence[Ragged], happens: Tensor) -> Ragged:
        """Join the parts (B, S, ...) of S steps, of which those count that happen (B, S)."""
        tokens, kept = concatenate(*parts, dim=2)
        return tokens.flatten(1), (kept & happens[..., None]).flatten(1)

    def repeated(self, symbol: str, like: Tensor) -> Ragged:
        """Return a symbol for each step (B, S, 1) of `like` (B, S)."""
        return dense(torch.full_like(like, self.vocab.id(symbol))[..., None])
