"""How an arithmetic task is written: with a scratchpad, or as a bare answer in one of five ways.

    scratchpad        every step, as the task says
    plain             576+361|937.
    reversed          675+163|739.                            the least significant digit first
    hints             <1>5<2>7<3>6+<1>3<2>6<3>1|<1>9<2>3<3>7.
    reversed+hints    <1>6<2>7<3>5+<1>1<2>6<3>3|<1>7<2>3<3>9.
    spaces            5 76+3 6 1|937.                         in the operands; also reversed+spaces

A hint says the place of its digit: digits of one place have one hint. They count on from a random
first one, so that training sees all of them; `HINTS` bounds the length. A space stands between
two digits of an operand with probability 1/2. Hou et al. 2024, Appendices B and G, after Shen et
al. 2023 (reversed, spaces) and Zhou et al. 2023 (hints), who leave both probabilities open there.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

import torch
from torch import Tensor

from harness.tasks.ragged import Ragged
from pezoo.spec import choice

FORMATS = ("scratchpad", "plain", "reversed", "hints", "spaces", "reversed+hints")
FORMATS += ("reversed+spaces",)
HINTS = 128
HEAD = 10  # of a scratchpad: HEAD + d is the digit d under the head
SHORTEST = 2  # digits of an operand that a scratchpad reads


@dataclass(frozen=True)
class Format:
    """A format; `first_hint` is the id of <0>, and a space's comes next. Errors: ValueError."""

    name: str
    first_hint: int

    def __post_init__(self) -> None:
        choice("format", self.name, FORMATS)

    @property
    def scratchpad(self) -> bool:
        return self.name == "scratchpad"

    @property
    def reversed(self) -> bool:
        return "reversed" in self.name

    @property
    def hints(self) -> bool:
        return "hints" in self.name

    @property
    def spaces(self) -> bool:
        return "spaces" in self.name

    @property
    def symbols(self) -> tuple[str, ...]:
        """What the format adds to a vocabulary, at its end."""
        if self.hints:
            return tuple(f"<{i}>" for i in range(HINTS))
        return (" ",) if self.spaces else ()

    def tokens(self, digits: int, gaps: int = 0) -> int:
        """The most tokens that so many digits take, of them `gaps` places where a space may be."""
        return digits * (1 + self.hints) + gaps * self.spaces

    def starts(self, generator: torch.Generator, batch: int, places: int) -> Tensor:
        """(B, 1) the first hint, for numbers of at most so many places."""
        high = HINTS - places + 1 if self.hints else 1
        return torch.randint(high, (batch, 1), generator=generator, device=generator.device)

    def number(
        self,
        digits: Tensor,
        length: Tensor,
        start: Tensor,
        places: int,
        generator: torch.Generator | None = None,
    ) -> Ragged:
        """A number as columns: digits (B, n), least significant first, of which length (B, 1) are.

        With hints from `start` on, for numbers of at most `places`; with spaces where there is a
        generator to draw them from.
        """
        place = torch.arange(digits.shape[1], device=digits.device).expand_as(digits)
        there = place < length
        first = place == (0 if self.reversed else length - 1)
        parts = [(digits, there)]
        if self.hints:
            count = place if self.reversed else places - 1 - place
            parts.insert(0, (self.first_hint + start + count, there))
        if self.spaces and generator is not None:
            coin = torch.rand(digits.shape, generator=generator, device=digits.device) < 0.5
            parts.insert(0, (torch.full_like(digits, self.first_hint), coin & there & ~first))
        tokens, kept = (torch.stack(part, 2) for part in zip(*parts, strict=True))  # (B, n, parts)
        if not self.reversed:
            tokens, kept = tokens.flip(1), kept.flip(1)
        return tokens.flatten(1), kept.flatten(1)

    def read(self, text: str) -> tuple[str, int]:
        """The digits of a written number, most significant first, and the last one's hint."""
        hints = [int(hint) for hint in re.findall(r"<(\d+)>", text)]
        digits = re.sub(r"<\d+>| ", "", text)
        last = (hints[0] if self.reversed else hints[-1]) if hints else 0
        return (digits[::-1] if self.reversed else digits), last

    def write(self, digits: str, last: int) -> str:
        """A number as text, from its digits, most significant first, and the hint of the last."""
        ordered = digits[::-1] if self.reversed else digits
        if not self.hints:
            return ordered
        first = last if self.reversed else last - len(digits) + 1
        return "".join(f"<{first + i}>{digit}" for i, digit in enumerate(ordered))
