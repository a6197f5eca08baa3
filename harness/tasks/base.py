"""The interface of tasks: Vocab, Batch and Task."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, reduce
from inspect import signature
from textwrap import shorten
from typing import ClassVar

import torch
from torch import Tensor

from harness.theory.relation import Relation
from harness.theory.representation import Computation


class TaskError(ValueError):
    """A length without instances, or a text outside the vocabulary."""


@dataclass(frozen=True)
class Vocab:
    """The symbols of a task; the id of a symbol is its index.

    Two ids follow the symbols: `pad` (no token) and `eos` (end of the answer). Both decode to "".
    `separator` is written between symbols ("" or " "). `typed` are characters that `encode` reads
    as symbols.

    >>> vocab = Vocab(("0", "1", "="))
    >>> vocab.encode("01=").tolist(), vocab.decode([0, 1, 2, vocab.eos])
    ([0, 1, 2], '01=')
    """

    symbols: tuple[str, ...]
    separator: str = ""
    typed: tuple[tuple[str, str], ...] = ()

    @property
    def pad(self) -> int:
        return len(self.symbols)

    @property
    def eos(self) -> int:
        return len(self.symbols) + 1

    def __len__(self) -> int:
        return len(self.symbols) + 2

    def id(self, symbol: str) -> int:
        """Return the id of a symbol."""
        return self.symbols.index(symbol)

    def encode(self, text: str) -> Tensor:
        """Return the ids (S,) of a text, int64. Errors: TaskError for an unknown symbol."""
        ids, rest = [], reduce(lambda own, pair: own.replace(*pair), self.typed, text)
        longest_first = sorted(self.symbols, key=len, reverse=True)
        while rest := rest.strip() if self.separator == " " else rest:
            symbol = next((s for s in longest_first if self._starts(rest, s)), None)
            if symbol is None:
                known = shorten(" ".join(self.symbols), 300, placeholder=" ...")
                raise TaskError(f"unknown symbol at {rest[:12]!r}; known: {known}")
            ids.append(self.symbols.index(symbol))
            rest = rest[len(symbol) :]
        return torch.tensor(ids, dtype=torch.int64)

    def decode(self, ids: Sequence[int] | Tensor) -> str:
        """Return the text of a sequence of ids."""
        return self.separator.join(self.symbols[i] for i in map(int, ids) if i < len(self.symbols))

    def _starts(self, text: str, symbol: str) -> bool:
        if self.separator == " ":
            return text.split(maxsplit=1)[0] == symbol
        return text.startswith(symbol)


@dataclass(frozen=True)
class Batch:
    """Instances: prompt (B, P), padded on the left; target (B, Q), padded on the right; int64."""

    prompt: Tensor
    target: Tensor


class Task:
    """Base class of tasks. A subclass defines the attributes and methods without a default.

    Options are keyword arguments of `__init__` with types and defaults: `odds_first(symbols=2)`.

    The prompt ends with the symbol after which the model answers. The target is the answer alone;
    the decoder appends EOS.
    """

    name: ClassVar[str]
    version: ClassVar[int] = 1  # increased when the data changes
    versioned_by: ClassVar[tuple[str, ...]] = ()  # options that change the version, such as a file
    tuning_set: ClassVar[str] = ""  # the test set to choose settings on, if tests do not draw
    summary: ClassVar[str]
    paper: ClassVar[str]
    family: ClassVar[str] = ""  # groups tasks on the leaderboard, such as "copying"
    example: str  # the text of one prompt and its target; may depend on options, like vocab, chance
    vocab: Vocab
    chance: float  # token accuracy of the best constant answer
    # (length, token accuracy of the best constant at each place), where far above chance, with the
    # default options
    best_constant: tuple[tuple[int, float], ...] = ()
    min_length: int = 1
    max_length: int | None = None
    determined: ClassVar[bool] = True  # False: a prompt has many targets, `solve` gives one (text)
    exact: ClassVar[bool] = True  # False: `right` also accepts other answers than the target
    aligned: int = 0  # the scale that every instance is padded to; 0: not padded

    def computation(self, n: int) -> Computation | None:
        """Return how the answer is computed at scale n, token by token (Definition 2), or None.

        Place 1 is the first token of the prompt; signs such as "=" have places too.
        """
        return None

    def prf(self, i: Tensor, j: Tensor, n: Tensor | None) -> Tensor:
        """Return the positional relation function of query i and key j, from 0, int64.

        0 marks a key that the query does not need; other numbers are the key's role, the same at
        all scales, from `computation`. n is the scale, or None for an encoding that does not
        receive it.
        Errors: TaskError for a task without a computation, or one that differs between scales.
        """
        try:
            return self._relation(i, j, n)
        except ValueError as error:
            padded = n is None and "aligned" in signature(type(self)).parameters
            raise TaskError(
                f"the PRF of {self.name} {error}{f', or {self.text(aligned=20)}' * padded}"
            ) from error

    def text(self, **changes: object) -> str:
        """Return the text of this task with some options changed, such as "copy(aligned=20)"."""
        known = signature(type(self)).parameters.values()
        own = {one.name: getattr(self, one.name, one.default) for one in known}
        own = {one.name: own[one.name] for one in known if own[one.name] != one.default} | changes
        options = ",".join(f"{key}={value}" for key, value in own.items())
        return f"{self.name}({options})" if options else self.name

    @cached_property
    def _relation(self) -> Relation:
        return Relation(lambda n: self.computation(n) if self.lengths(n, n) else None)

    def slots(self, ids: Tensor) -> Tensor | None:
        """Return the task's own position of each token, (B, S) int64 -> (B, S) int64, or None.

        0 marks tokens without one, such as padding. Encodings with `needs_slots` read them. Slots
        do not depend on later tokens, so that an answer can be written token by token, nor on
        padding, nor on a sample and its EOS before.
        """
        return None

    def coords(self, ids: Tensor) -> Tensor | None:
        """Return where each token lies on several axes, (B, S) int64 -> (B|1, S, A), or None.

        Encodings of several axes read it. It does not depend on later tokens, nor on padding.
        """
        return None

    def fields(self, ids: Tensor) -> dict[str, Tensor | None]:
        """Return what the task tells of each token, as fields of a Context."""
        return {"slots": self.slots(ids), "coords": self.coords(ids)}

    def lengths(self, low: int, high: int) -> list[int]:
        """Return the lengths in low..high (inclusive) that have instances."""
        top = high if self.max_length is None else min(high, self.max_length)
        return list(range(max(low, self.min_length), top + 1))

    def sample(self, generator: torch.Generator, batch: int, length: int) -> Batch:
        """Draw `batch` instances of exactly that length, on the generator's device.

        Errors: TaskError for a length without instances.
        """
        raise NotImplementedError

    def share(self, length: int) -> float:
        """Return the relative frequency of a length if the parts of an instance are independent.

        Two operands of independent lengths, of which the longer one counts, give 2n - 1.
        """
        return 1.0

    def check_test_set(self, name: str) -> None:
        """Errors: TaskError for an unknown test set."""
        raise TaskError(f"{self.name} has no test set {name!r}; it only has samples")

    def test_set(self, name: str, generator: torch.Generator, batch: int, length: int) -> Batch:
        """Draw `batch` instances of a further test set. Errors: TaskError, for name or length."""
        raise NotImplementedError

    def right(self, answer: Tensor, target: Tensor) -> Tensor:
        """Return which answers (B, Q) count as right, (B,) bool, if `exact` is False.

        Each row holds an answer and its EOS, with padding elsewhere; tokens right of EOS are
        ignored.
        """
        raise NotImplementedError

    def instances(self, length: int) -> Batch | None:
        """Return every instance of a length once, or None if there are too many to list."""
        return None

    def solve(self, prompt: list[int]) -> list[int]:
        """Return the target of one unpadded prompt, in plain Python, independently of `sample`."""
        raise NotImplementedError

    def measure(self, prompt: list[int]) -> int:
        """Return the length n of one unpadded prompt; for an aligned one, the least possible."""
        raise NotImplementedError

    def longest(self, prompts: Tensor) -> int:
        """Return the largest length n in a batch of padded prompts."""
        return max(
            self.measure([token for token in row if token != self.vocab.pad])
            for row in prompts.tolist()
        )

    def max_tokens(self, length: int) -> tuple[int, int]:
        """Return the tokens of the longest prompt and the longest target (without EOS)."""
        raise NotImplementedError

    def counted(self, target: Tensor) -> Tensor:
        """Return the tokens of targets (B, Q), bool, that the accuracy of encoders counts."""
        return target != self.vocab.pad

    def given(self, target: Tensor) -> Tensor:
        """Return the tokens of targets (B, Q), bool, that a model reads and does not write."""
        return torch.zeros_like(target, dtype=torch.bool)

    def check_length(self, length: int) -> None:
        """Errors: TaskError for a length without instances."""
        if not self.lengths(length, length):
            nearest = self.nearest(length)
            raise TaskError(f"{self.name} has no instance of length {length}; nearest: {nearest}")

    def nearest(self, length: int) -> int:
        """Return the length with instances that is nearest."""
        near = self.lengths(max(1, length - 10), length + 10) or self.lengths(1, 1000)
        return min(near, key=lambda n: abs(n - length))
