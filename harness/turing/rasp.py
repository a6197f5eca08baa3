"""Appendix D of Hou et al. 2024, re-derived: a Turing machine's next token in RASP's operations.

RASP (Weiss et al. 2021, in the form of Zhou et al. 2023) has element-wise maps, and attention that
picks by a comparison of keys and queries, here causal. No operation uses an index as a number but
`shift_right`, as in the paper.

A configuration is BOS, the symbols with the state as a token right of the one that it reads, EOS,
SEP; the text is one configuration after another. Every token but those around the state is copied:

    state q reads y, writes y', goes on in q'         ... x y q z ...
    to the right                                      ... x y' z q' ...
    to the left                                       ... x q' y' z ...
    to the left on the first cell, where it stays     BOS y' q' z ...

In a final state the run has ended: the text repeats the last configuration.
So the next configuration's token at a place follows from the four tokens around it (`next_tape`).
A head that goes right of the input is outside of the theorem: the program has no blank to put there
and predicts wrongly, without a sign of it. `conditions.theorem_4_1` tells whether a run stays in
memory.
The next token of the text is found as text is copied: where the last n tokens of the text end in
the next configuration, the token after them comes next. Keys and queries are n-grams since the
last SEP with the number of SEPs before them, which `n_gram` packs into one integer.

Of the paper's primitives (Appendices D.1 to D.3) these are the ones that the program needs. Its
`hash_n_gram(x, n)` takes n tokens beside the current one; an n-gram here is n tokens in all.

What the paper's listing leaves open is settled here: `is_head_move_left` and its like are not
passed on there; a head may step on BOS there, and has no next state on it; its integers count SEPs
in the place of a token, so that many SEPs look like another token.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

import numpy as np

from harness.turing.machine import Machine
from harness.turing.simulate import Configuration

Sequence = np.ndarray  # (S,) int64, a number per token
Selection = np.ndarray  # (S, S) bool: which keys a query takes

SEP, BOS, EOS, EMPTY = range(4)
FIRST = 4  # symbols begin here, then states


def full(x: Sequence, value: int) -> Sequence:
    return np.full_like(x, value)


def seq_map(func: Callable[..., int], *sequences: Sequence) -> Sequence:
    """An element-wise function of one or several sequences."""
    rows = zip(*(x.tolist() for x in sequences), strict=True)
    return np.array([int(func(*values)) for values in rows], dtype=np.int64)


def select(
    keys: Sequence, queries: Sequence, pred: Callable[[Sequence, Sequence], Selection]
) -> Selection:
    """Causal attention: row i says which keys j <= i the query i takes."""
    return np.tril(pred(keys[None, :], queries[:, None]))


def sel_width(selected: Selection) -> Sequence:
    """How many keys each query takes."""
    return selected.sum(1)


def aggr_max(selected: Selection, values: Sequence, default: int = 0) -> Sequence:
    """The largest value of the keys that a query takes."""
    masked = np.where(selected, values[None, :], np.iinfo(np.int64).min)
    return np.where(selected.any(1), masked.max(1), default)


def shift_right(x: Sequence, n: int, default: int = 0) -> Sequence:
    """Every token n places later; `default` in front."""
    places = np.arange(len(x))
    return aggr_max(select(places + n, places, np.equal), x, default)


def cumsum(x: Sequence) -> Sequence:
    """How many of the numbers so far are not 0."""
    return sel_width(select(x, x, lambda k, q: (k != 0) & (q == q)))


def where(condition: Sequence, x: Sequence, y: Sequence) -> Sequence:
    return seq_map(lambda c, a, b: a if c else b, condition, x, y)


@dataclass(frozen=True)
class Program:
    """The RASP program of a machine for n-grams of n tokens, for runs that stay in memory.

    Errors: ValueError for an n of 0, or so large that n-grams fit into no integer.
    """

    machine: Machine
    n: int

    def __post_init__(self) -> None:
        if self.n < 1 or self.base ** (self.n + 2) >= 2**63:
            raise ValueError(f"n-grams of {self.n} tokens do not fit into an integer")

    @property
    def base(self) -> int:
        """How many tokens there are."""
        return FIRST + len(self.machine.symbols) + len(self.machine.states)

    def tokens(self, configurations: Iterable[Configuration]) -> Sequence:
        """The text of a run."""
        text: list[int] = []
        for now in configurations:
            cells = [FIRST + symbol for symbol in now.tape]
            state = FIRST + len(self.machine.symbols) + now.state
            text += [BOS, *cells[: now.head + 1], state, *cells[now.head + 1 :], EOS, SEP]
        return np.array(text, dtype=np.int64)

    def predict(self, x: Sequence) -> tuple[Sequence, Sequence]:
        """After each token of x the next one, and whether its n-gram has several places.

        Where it has, the largest of the tokens there is given, and the theorem promises nothing.
        Nor does it where the machine has left its memory, which is not told here.
        In the first configuration nothing can be known: there it is EMPTY.
        Errors: ValueError for more configurations than an integer can count beside an n-gram.
        """
        seps = int((x == SEP).sum())
        most = 2**63 // self.base**self.n - 2  # queries are one ahead
        if seps > most:
            raise ValueError(
                f"n-grams of {self.n} tokens and {seps} configurations do not fit into an integer: "
                f"expected at most {most} configurations, or a smaller n"
            )
        after, before = self.next_tape(x, 2), self.next_tape(x, 3)
        # Of the three tokens in front, one stays SEP: it counts for the configuration that the
        # queries are ahead.
        before = where(shift_right(full(x, 1), 2), before, full(x, EMPTY))
        found = select(self.n_gram(before), self.n_gram(x), np.equal)
        known = seq_map(lambda seps: seps > 0, cumsum(seq_map(_is_sep, x)))
        several = seq_map(lambda width, k: width > 1 and k, sel_width(found), known)
        return where(known, aggr_max(found, after, EMPTY), full(x, EMPTY)), several

    def next_tape(self, x: Sequence, shift: int) -> Sequence:
        """The next configuration's tokens, each `shift` >= 1 places after its own place."""
        right = shift_right(x, shift - 1)
        here, left, left2 = (shift_right(x, shift + more) for more in range(3))
        return seq_map(self._next, left2, left, here, right)

    def n_gram(self, x: Sequence) -> Sequence:
        """The last n tokens, up to the last SEP, and the number of SEPs so far, as one number."""
        code, ended = x, seq_map(_is_sep, x)
        for more in range(1, self.n):
            token = shift_right(x, more)
            ended = seq_map(lambda done, t: done or _is_sep(t), ended, token)
            scale = self.base**more
            code = seq_map(lambda c, t, done, s=scale: c + s * t * (not done), code, token, ended)
        scale = self.base**self.n
        return seq_map(lambda c, seps: c + scale * seps, code, cumsum(seq_map(_is_sep, x)))

    def _next(self, left2: int, left: int, here: int, right: int) -> int:
        """The token that comes to stand in the place of `here`."""
        if any(map(self._halted, (left, here, right), (left2, left, here))):
            return here
        if self._is_state(here):
            state, symbol, goes_right = self._move(here, left)
            if goes_right:
                return right
            return state if left2 == BOS else symbol
        if self._is_state(right):
            state, symbol, goes_right = self._move(right, here)
            return symbol if goes_right or left == BOS else state
        if self._is_state(left):
            state, _, goes_right = self._move(left, left2)
            return state if goes_right else here
        return here

    def _is_state(self, token: int) -> bool:
        return token >= FIRST + len(self.machine.symbols)

    def _halted(self, state: int, symbol: int) -> bool:
        """Whether a token is a state without a move at this symbol."""
        key = state - FIRST - len(self.machine.symbols), symbol - FIRST
        return self._is_state(state) and key not in self.machine.transitions

    def _move(self, state: int, symbol: int) -> tuple[int, int, bool]:
        """Next state, symbol and direction, as tokens."""
        states = FIRST + len(self.machine.symbols)
        move = self.machine.transitions[state - states, symbol - FIRST]
        return states + move.state, FIRST + move.symbol, move.direction > 0


def _is_sep(token: int) -> bool:
    return token == SEP
