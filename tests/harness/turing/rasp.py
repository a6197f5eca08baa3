"""An oracle for the simulator: the RASP program of Hou et al. 2024, Appendix D, in NumPy.

RASP (Weiss et al. 2021, as in Zhou et al. 2023) has element-wise maps and causal attention that
selects keys by comparing them with a query. Only `shift_right` uses an index as a number.

A configuration is BOS, the symbols with the state as a token right of the symbol under the head,
EOS, SEP; the text is one configuration after another. Tokens away from the state are copied:

    state q reads y, writes y', continues in q'       ... x y q z ...
    to the right                                      ... x y' z q' ...
    to the left                                       ... x q' y' z ...
    to the left on the first cell, where it stays     BOS y' q' z ...

After a final state the text repeats the last configuration. So each token of the next configuration
follows from the four tokens around its place (`next_tape`), and the next token of the text is found
by copying: after the place in the next configuration where the last n tokens stand. Keys and
queries are n-grams since the last SEP, packed into one integer with the number of SEPs before them.

The program is right under the conditions of Theorem 4.1: the head never leaves the input, and no
n-gram occurs twice in a configuration.

Deviations from the paper's listing, which leaves these open: the direction of the head is passed
on, the head cannot step on BOS, and the count of SEPs has its own digit. `hash_n_gram(x, n)` there
takes n tokens beside the current one; an n-gram here is n tokens in all.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from harness.turing.machine import Machine
from harness.turing.simulate import Configuration

Values = np.ndarray  # (S,) int64, a number per token
Selection = np.ndarray  # (S, S) bool: which keys a query takes

SEP, BOS, EOS, EMPTY = range(4)
FIRST = 4  # symbols begin here, then states


def full(x: Values, value: int) -> Values:
    return np.full_like(x, value)


def seq_map(func: Callable[..., int], *sequences: Values) -> Values:
    """Apply a function element by element to one or several sequences."""
    rows = zip(*(x.tolist() for x in sequences), strict=True)
    return np.array([int(func(*values)) for values in rows], dtype=np.int64)


def select(keys: Values, queries: Values, pred: Callable[[Values, Values], Selection]) -> Selection:
    """Causal attention: row i holds the keys j <= i that query i selects."""
    return np.tril(pred(keys[None, :], queries[:, None]))


def sel_width(selected: Selection) -> Values:
    """Count the keys that each query selects."""
    return selected.sum(1)


def aggr_max(selected: Selection, values: Values, default: int = 0) -> Values:
    """Return the largest value among the keys that each query selects."""
    masked = np.where(selected, values[None, :], np.iinfo(np.int64).min)
    return np.where(selected.any(1), masked.max(1), default)


def shift_right(x: Values, n: int, default: int = 0) -> Values:
    """Move every token n places to the right, with `default` in front."""
    places = np.arange(len(x))
    return aggr_max(select(places + n, places, np.equal), x, default)


def cumsum(x: Values) -> Values:
    """Count the numbers so far that are not 0."""
    return sel_width(select(x, x, lambda k, q: (k != 0) & (q == q)))


def where(condition: Values, x: Values, y: Values) -> Values:
    return seq_map(lambda c, a, b: a if c else b, condition, x, y)


@dataclass(frozen=True)
class Program:
    """The RASP program of a machine, for n-grams of n tokens."""

    machine: Machine
    n: int

    @property
    def base(self) -> int:
        """The size of the vocabulary."""
        return FIRST + len(self.machine.symbols) + len(self.machine.states)

    def tokens(self, configurations: Iterable[Configuration]) -> Values:
        """Write a run as tokens."""
        text: list[int] = []
        for now in configurations:
            cells = [FIRST + symbol for symbol in now.tape]
            state = FIRST + len(self.machine.symbols) + now.state
            text += [BOS, *cells[: now.head + 1], state, *cells[now.head + 1 :], EOS, SEP]
        return np.array(text, dtype=np.int64)

    def predict(self, x: Values) -> tuple[Values, Values]:
        """Return the token after each token of x, and whether its n-gram occurs more than once.

        Repeated n-grams, and runs that leave the input, may give wrong tokens. The first
        configuration cannot be predicted and gives EMPTY.
        """
        after, before = self.next_tape(x, 2), self.next_tape(x, 3)
        # Of the three tokens in front, one stays SEP: it counts for the configuration that the
        # queries are ahead.
        before = where(shift_right(full(x, 1), 2), before, full(x, EMPTY))
        found = select(self.n_gram(before), self.n_gram(x), np.equal)
        known = seq_map(lambda seps: seps > 0, cumsum(seq_map(_is_sep, x)))
        several = seq_map(lambda width, k: width > 1 and k, sel_width(found), known)
        return where(known, aggr_max(found, after, EMPTY), full(x, EMPTY)), several

    def next_tape(self, x: Values, shift: int) -> Values:
        """Return the next configuration, moved `shift` >= 1 places to the right."""
        right = shift_right(x, shift - 1)
        here, left, left2 = (shift_right(x, shift + more) for more in range(3))
        return seq_map(self._next, left2, left, here, right)

    def n_gram(self, x: Values) -> Values:
        """Pack the last n tokens since the last SEP, and the number of SEPs, into one integer."""
        code, ended = x, seq_map(_is_sep, x)
        for more in range(1, self.n):
            token = shift_right(x, more)
            ended = seq_map(lambda done, t: done or _is_sep(t), ended, token)
            scale = self.base**more
            code = seq_map(lambda c, t, done, s=scale: c + s * t * (not done), code, token, ended)
        scale = self.base**self.n
        return seq_map(lambda c, seps: c + scale * seps, code, cumsum(seq_map(_is_sep, x)))

    def _next(self, left2: int, left: int, here: int, right: int) -> int:
        """Return the token that replaces `here` in the next configuration."""
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
        """Return True for a state that has no move at this symbol."""
        key = state - FIRST - len(self.machine.symbols), symbol - FIRST
        return self._is_state(state) and key not in self.machine.transitions

    def _move(self, state: int, symbol: int) -> tuple[int, int, bool]:
        """Return the next state and symbol as tokens, and True for a move to the right."""
        states = FIRST + len(self.machine.symbols)
        move = self.machine.transitions[state - states, symbol - FIRST]
        return states + move.state, FIRST + move.symbol, move.direction > 0


def _is_sep(token: int) -> bool:
    return token == SEP


def in_memory(run: Iterable[Configuration]) -> bool:
    """Return True if no configuration of a run has a longer tape than the first."""
    sizes = [len(now.tape) for now in run]
    return max(sizes) == sizes[0]


def repeats(tokens: Sequence[object], n: int) -> bool:
    """Return True if an n-gram occurs twice.

    >>> repeats("abcabd", 2), repeats("abcabd", 3)
    (True, False)
    """
    ngrams = [tuple(tokens[i : i + n]) for i in range(len(tokens) - n + 1)]
    return len(set(ngrams)) < len(ngrams)


def theorem_4_1(run: Iterable[Configuration], n: int) -> bool:
    """Return True if a run meets both conditions of Theorem 4.1 for n-grams of n tokens."""
    configurations = [*run]
    for now in configurations:
        cells = [("symbol", symbol) for symbol in now.tape]
        cells.insert(now.head + 1, ("state", now.state))
        if repeats(cells, n):
            return False
    return in_memory(configurations)
