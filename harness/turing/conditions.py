"""The conditions of Theorem 4.1, under which a short RASP program simulates a machine.

The machine works in memory: its head never goes beyond the input. And no n-gram comes up twice in
the text of one configuration: copying goes on after the one place where the last n tokens stood
before. Across configurations n-grams do repeat, as a tape is nearly a copy of the one before.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from harness.turing.simulate import Configuration

Token = TypeVar("Token")


def in_memory(run: Iterable[Configuration]) -> bool:
    """Whether no configuration of a run has a longer tape than its first."""
    sizes = [len(now.tape) for now in run]
    return max(sizes) == sizes[0]


def repeated_ngram(tokens: Sequence[Token], n: int) -> tuple[Token, ...] | None:
    """The first n-gram that is there for the second time, or None.

    >>> repeated_ngram("abcabd", 2), repeated_ngram("abcabd", 3)
    (('a', 'b'), None)
    """
    if n < 1:
        raise ValueError(f"an n-gram has at least one token, was given n={n}")
    seen: set[tuple[Token, ...]] = set()
    for i in range(len(tokens) - n + 1):
        ngram = tuple(tokens[i : i + n])
        if ngram in seen:
            return ngram
        seen.add(ngram)
    return None


@dataclass(frozen=True)
class Verdict:
    """Whether a run is in memory, and the first configuration with a repeated n-gram."""

    in_memory: bool
    step: int | None = None  # from 0; None: no n-gram is repeated
    ngram: tuple[int, ...] | None = None

    @property
    def holds(self) -> bool:
        return self.in_memory and self.step is None


def theorem_4_1(run: Iterable[Configuration], n: int) -> Verdict:
    """Both conditions on a run, for n-grams of tape symbols and head.

    A head is a token between symbols, right of the one that it reads, as in `rasp`: it makes the
    n-grams around it its own.
    """
    configurations = [*run]
    memory = in_memory(configurations)
    for number, now in enumerate(configurations):
        cells = [(symbol, 0) for symbol in now.tape]
        tokens = [*cells[: now.head + 1], (now.state, 1), *cells[now.head + 1 :]]
        if (ngram := repeated_ngram(tokens, n)) is not None:
            return Verdict(memory, number, tuple(value for value, _ in ngram))
    return Verdict(memory)
