"""The formats of arithmetic tasks: a scratchpad, or the answer alone in one of four forms.

    scratchpad        every step, as the task defines it
    plain             576+361|937.
    reversed          675+163|739.                            the least significant digit first
    hints             <1>5<2>7<3>6+<1>3<2>6<3>1|<1>9<2>3<3>7.
    reversed+hints    <1>6<2>7<3>5+<1>1<2>6<3>3|<1>7<2>3<3>9.

A hint marks the place of a digit: digits of the same place have the same hint. Hints count up from
a random start, so that training shows all of them; `HINTS` bounds the length. Hou et al. 2024,
Appendices B and G, after Shen et al. 2023 (reversed) and Zhou et al. 2023 (hints).
"""

import re
from dataclasses import dataclass

import torch
from torch import Tensor

from harness.tasks.ragged import Ragged
from pezoo.spec import choice

FORMATS = ("scratchpad", "plain", "reversed", "hints", "reversed+hints")
HINTS = 128
HEAD = 10  # HEAD + d is the digit d under the head of a scratchpad
SHORTEST = 2  # digits of an operand


@dataclass(frozen=True)
class Format:
    """A format. `first_hint` is the id of the first symbol it adds. Errors: ValueError."""

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
    def symbols(self) -> tuple[str, ...]:
        """Return the symbols that the format adds to the end of a vocabulary."""
        return tuple(f"<{i}>" for i in range(HINTS)) if self.hints else ()

    def tokens(self, digits: int) -> int:
        """Return the number of tokens of so many digits."""
        return digits * (1 + self.hints)

    def starts(self, generator: torch.Generator, batch: int, places: int) -> Tensor:
        """Draw the first hints (B, 1) of numbers of at most `places` digits."""
        high = HINTS - places + 1 if self.hints else 1
        return torch.randint(high, (batch, 1), generator=generator, device=generator.device)

    def number(self, digits: Tensor, length: Tensor, start: Tensor, places: int) -> Ragged:
        """Write numbers: digits (B, n), least significant first, of which the first `length` count.

        Hints begin at `start`, for numbers of at most `places` digits.
        """
        place = torch.arange(digits.shape[1], device=digits.device).expand_as(digits)
        present = place < length
        parts = [(digits, present)]
        if self.hints:
            count = place if self.reversed else places - 1 - place
            parts.insert(0, (self.first_hint + start + count, present))
        tokens, kept = (torch.stack(part, 2) for part in zip(*parts, strict=True))  # (B, n, parts)
        if not self.reversed:
            tokens, kept = tokens.flip(1), kept.flip(1)
        return tokens.flatten(1), kept.flatten(1)

    def read(self, text: str) -> tuple[str, int]:
        """Return the digits of a written number, most significant first, and the last hint."""
        hints = [int(hint) for hint in re.findall(r"<(\d+)>", text)]
        digits = re.sub(r"<\d+>", "", text)
        last = (hints[0] if self.reversed else hints[-1]) if hints else 0
        return (digits[::-1] if self.reversed else digits), last

    def write(self, digits: str, last: int) -> str:
        """Write a number from its digits, most significant first, and the hint of the last one."""
        ordered = digits[::-1] if self.reversed else digits
        if not self.hints:
            return ordered
        first = last if self.reversed else last - len(digits) + 1
        return "".join(f"<{first + i}>{digit}" for i, digit in enumerate(ordered))
