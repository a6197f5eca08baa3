"""What a task is: Vocab, Batch, Task."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from inspect import signature
from typing import ClassVar

import torch
from torch import Tensor

from harness.theory.representation import Computation


class TaskError(ValueError):
    """A length that a task cannot make, or a text that it cannot read."""


@dataclass(frozen=True)
class Vocab:
    """The symbols of a task; a token's id is its place in the list.

    Two ids follow the symbols: `pad` (no token) and `eos` (the answer ends). Both decode to "".
    `separator` stands between symbols in the text form ("" or " ").

    >>> vocab = Vocab(("0", "1", "="))
    >>> vocab.encode("01=").tolist(), vocab.decode([0, 1, 2, vocab.eos])
    ([0, 1, 2], '01=')
    """

    symbols: tuple[str, ...]
    separator: str = ""

    @property
    def pad(self) -> int:
        return len(self.symbols)

    @property
    def eos(self) -> int:
        return len(self.symbols) + 1

    def __len__(self) -> int:
        return len(self.symbols) + 2

    def id(self, symbol: str) -> int:
        """The token of a symbol."""
        return self.symbols.index(symbol)

    def encode(self, text: str) -> Tensor:
        """(S,) int64 ids of a text. Errors: TaskError names the first unknown symbol."""
        ids, rest = [], text
        longest_first = sorted(self.symbols, key=len, reverse=True)
        while rest := rest.strip() if self.separator == " " else rest:
            symbol = next((s for s in longest_first if self._starts(rest, s)), None)
            if symbol is None:
                raise TaskError(f"unknown symbol at {rest[:12]!r}; known: {' '.join(self.symbols)}")
            ids.append(self.symbols.index(symbol))
            rest = rest[len(symbol) :]
        return torch.tensor(ids, dtype=torch.int64)

    def decode(self, ids: Sequence[int] | Tensor) -> str:
        """The text of a sequence of ids."""
        return self.separator.join(self.symbols[i] for i in map(int, ids) if i < len(self.symbols))

    def _starts(self, text: str, symbol: str) -> bool:
        if self.separator == " ":
            return text.split(maxsplit=1)[0] == symbol
        return text.startswith(symbol)


@dataclass(frozen=True)
class Batch:
    """prompt (B, P) int64, padded on the left; target (B, Q) int64, padded on the right."""

    prompt: Tensor
    target: Tensor


class Task:
    """One task. A subclass fills in everything below; see any file in this folder.

    Options are keyword arguments of `__init__` with defaults and types, as those of encodings are:
    `odds_first(symbols=2)`.

    The prompt ends with the symbol after which the model answers. The target holds the answer
    alone; the decoder track appends EOS itself.
    """

    name: ClassVar[str]
    version: ClassVar[int] = 1  # raised when the data changes
    versioned_by: ClassVar[tuple[str, ...]] = ()  # options that make the version, as a file does
    summary: ClassVar[str]
    paper: ClassVar[str]
    family: ClassVar[str] = ""  # what it takes, as in "copying": groups tasks on the leaderboard
    example: str  # the text of one prompt and its target; options may change it, as the next two
    vocab: Vocab
    chance: float  # token accuracy of a guess that ignores the prompt and the token's place
    # (length, what the best token at every place gets), where that is far above chance
    best_constant: tuple[tuple[int, float], ...] = ()
    max_length: int | None = None  # None: there is no longest instance
    exact: ClassVar[bool] = True  # False: `right` counts other answers than the true one
    aligned: int = 0  # the scale that every instance is padded to, with a symbol of the alphabet

    def computation(self, n: int) -> Computation | None:
        """How the answer is computed at scale n, token by token, signs included (Definition 2).

        Place 1 is the prompt's first token. None where the task says none.
        """
        return None

    def relation(self, i: Tensor, j: Tensor, n: Tensor | None) -> Tensor:
        """The kind of each pair of query position i and key position j (from 0), int64.

        0 is a key that the query does not need; any other number tells what is done with it, the
        same at all scales. n is the scale; None where an encoding knows none.
        Errors: TaskError where the task has no such relation, or none without the scale.
        """
        raise TaskError(f"{self.name} declares no relation of positions")

    def spread(self, n: Tensor | None) -> Tensor | int:
        """The scale that instances are written at. Errors: TaskError where only n could tell."""
        if self.aligned:
            return self.aligned
        if n is None:
            form = (
                f", or {self.name}(aligned=20)"
                if "aligned" in signature(type(self)).parameters
                else ""
            )
            raise TaskError(
                f"{self.name} has no relation of positions alone: its places move with the scale. "
                f"Take an encoding with a scale hint{form}"
            )
        return n

    def lengths(self, low: int, high: int) -> list[int]:
        """The lengths in low..high (inclusive) that have at least one instance."""
        top = high if self.max_length is None else min(high, self.max_length)
        return list(range(max(low, 1), top + 1))

    def sample(self, generator: torch.Generator, batch: int, length: int) -> Batch:
        """`batch` instances of exactly that length, drawn on the generator's device.

        Errors: TaskError when there is no instance of that length.
        """
        raise NotImplementedError

    def share(self, length: int) -> float:
        """How often that length comes up, in proportion, where `sample`'s parts are drawn freely.

        For two operands of independent lengths, of which the longer one counts, 2n - 1.
        """
        return 1.0

    def check_test_set(self, name: str) -> None:
        """Errors: TaskError when the task has no further test set of that name."""
        raise TaskError(f"{self.name} has no test set {name!r}; it has none but its samples")

    def test_set(self, name: str, generator: torch.Generator, batch: int, length: int) -> Batch:
        """`batch` instances of one of the task's further test sets, as `sample` makes them.

        Errors: TaskError for a name or a length that it does not have.
        """
        raise NotImplementedError

    def right(self, answer: Tensor, target: Tensor) -> Tensor:
        """(B,) bool: which answers (B, Q) count as right where `exact` is False.

        Both hold an answer and its EOS somewhere in a row, with padding elsewhere; what stands
        right of the answer's EOS is not looked at.
        """
        raise NotImplementedError

    def instances(self, length: int) -> Batch | None:
        """Every instance of that length, once; None where there are too many to list."""
        return None

    def solve(self, prompt: list[int]) -> list[int]:
        """The target of one unpadded prompt, in plain Python, written independently of sample."""
        raise NotImplementedError

    def measure(self, prompt: list[int]) -> int:
        """The length n of one unpadded prompt; of an aligned one, the least that it can have."""
        raise NotImplementedError

    def longest(self, prompts: Tensor) -> int:
        """The longest length n in a batch's prompts, padded as they are."""
        return max(
            self.measure([token for token in row if token != self.vocab.pad])
            for row in prompts.tolist()
        )

    def max_tokens(self, length: int) -> tuple[int, int]:
        """The longest prompt and the longest target (without EOS) of that length."""
        raise NotImplementedError

    def counted(self, target: Tensor) -> Tensor:
        """(B, Q) bool: the tokens of targets (B, Q) that an encoder's accuracy counts."""
        return target != self.vocab.pad

    def check_length(self, length: int) -> None:
        """Errors: TaskError when `length` has no instance."""
        if not self.lengths(length, length):
            near = self.lengths(max(1, length - 10), length + 10) or self.lengths(1, 1000)
            nearest = min(near, key=lambda n: abs(n - length))
            raise TaskError(f"{self.name} has no instance of length {length}; nearest: {nearest}")


def kinds(*conditions: Tensor) -> Tensor:
    """int64: k where the k-th condition holds, from 1; 0 where none does.

    >>> kinds(torch.tensor([True, False, False]), torch.tensor([False, True, False]))
    tensor([1, 2, 0])
    """
    held = torch.stack(torch.broadcast_tensors(*conditions)).long()
    return (
        held * torch.arange(1, len(held) + 1, device=held.device).view(-1, *[1] * (held.dim() - 1))
    ).sum(0)
