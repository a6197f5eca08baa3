"""Expressions modulo 5 with a bracket around every operation: drawn, and their values.

Tokens: the digits 0..4, + - * ( ) (ids 5..9). What goes from one depth of nesting to the next is
computed in NumPy, whose calls on small arrays cost half of torch's.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

PLUS, MINUS, TIMES, OPEN, CLOSE = 5, 6, 7, 8, 9
Array = NDArray[Any]


def expressions(generator: torch.Generator, batch: int, length: int, operators: int) -> Tensor:
    """Random expressions (B, n); of + - *, the first `operators` are used.

    An expression of 1 to 4 tokens is d, -d, (d) or (-d). A longer one is (left operator right),
    where left has 1 to n - 4 tokens, all equally likely. Digits and operators are uniform.

    All brackets at one depth are split together. What is drawn at random has a place among the
    tokens: a bracket's split belongs to where it opens.
    """
    device, shape = generator.device, (batch, length)
    digits = torch.randint(5, shape, generator=generator, device=device)
    choices = torch.randint(PLUS, PLUS + operators, shape, generator=generator, device=device)
    shares = torch.rand(shape, generator=generator, dtype=torch.float64, device=device)
    x, operator, share = (drawn.flatten().numpy(force=True) for drawn in (digits, choices, shares))
    start = np.arange(0, batch * length, length)  # of the parts at this depth
    size = np.full_like(start, length)
    starts, sizes, middles = [start], [size], [start[:0]]
    while len(split := np.flatnonzero(size > 4)):
        start, size = start[split], size[split]
        left = 1 + (share[start] * (size - 4)).astype(np.int64)
        middle = start + left + 1
        start = np.concatenate([start + 1, middle + 1])
        size = np.concatenate([left, size - left - 3])
        starts.append(start)
        sizes.append(size)
        middles.append(middle)
    start, size, middle = (np.concatenate(each) for each in (starts, sizes, middles))
    x[middle] = operator[middle]
    x[(start + size // 4)[(size == 2) | (size == 4)]] = MINUS
    bracketed = size > 2
    x[start[bracketed]] = OPEN
    x[(start + size - 1)[bracketed]] = CLOSE
    return torch.from_numpy(x).view(shape).to(device)


def values(expressions: Tensor) -> Tensor:
    """(B, 1) values modulo 5 of expressions (B, n) of that grammar.

    Every part's value stands where the part begins. Those of digits, -d, (d) and (-d) are there at
    once; an operation takes its operands' values again and again, until the outermost is right.
    """
    x = expressions.numpy(force=True)
    b, n = x.shape
    before = np.full_like(x, OPEN)
    before[:, 1:] = x[:, :-1]
    infix = (x >= PLUS) & (x <= TIMES) & ((before < PLUS) | (before == CLOSE))
    negative, opening = (x == MINUS) & ~infix, x == OPEN
    value = np.where(x < PLUS, x, 0)
    value = np.where(negative, -np.roll(value, -1, 1) % 5, value)
    value = np.where(opening, np.roll(value, -1, 1), value).reshape(-1)
    depth = _depths(x)
    place = _by_depth(depth, opening | infix)  # an operator is next after what opens its bracket
    second = np.flatnonzero(infix.reshape(-1)[place])
    opens, operator = place[second - 1], place[second]
    left, right, code = opens + 1, operator + 1, 25 * (x.reshape(-1)[operator] - PLUS)
    for _ in range(int(depth.max())):
        value[opens] = _RESULTS[code + 5 * value[left] + value[right]]
    return torch.from_numpy(value.reshape(b, n)[:, :1]).to(expressions.device)


def signs(expressions: Tensor) -> Tensor:
    """(B, n): 1 or -1, with which each token counts in an expression (B, n) of + and - alone.

    Every minus turns round its operand: d, -d, or all up to where a bracket closes.
    """
    x = expressions.numpy(force=True)
    place = _by_depth(_depths(x), (x == OPEN) | (x == CLOSE))
    minus = x == MINUS
    last = np.arange(x.size) + minus.reshape(-1)  # of d and -d; of brackets:
    last[place[::2]] = place[1::2]
    begins = np.zeros_like(x)
    begins[:, 1:] = minus[:, :-1]
    ends = np.bincount(last[np.flatnonzero(begins)], minlength=x.size).reshape(x.shape)
    turns = begins.cumsum(1) - ends.cumsum(1) + ends
    return torch.from_numpy(1 - 2 * (turns % 2)).to(expressions.device)


def _depths(x: Array) -> Array:
    """(B, n): in how many brackets each token is; both ends of a bracket are in it."""
    closes = x == CLOSE
    depth: Array = (x == OPEN).cumsum(1) - closes.cumsum(1) + closes
    return depth


def _by_depth(depth: Array, some: Array) -> Array:
    """The flat places of `some` (B, n): row after row, each by depth (B, n), then from the left."""
    b, n = depth.shape
    place = np.flatnonzero(some)
    key = (depth + np.arange(0, b * n, n)[:, None]).reshape(-1)  # depths are below n
    order: Array = place[key[place].argsort(kind="stable")]
    return order


def _results() -> Array:
    """(75,) of left operator right modulo 5, at 25 (operator - PLUS) + 5 left + right."""
    b = np.arange(5)
    a = b[:, None]
    return np.stack([a + b, a - b, a * b]).reshape(-1) % 5


_RESULTS = _results()


def value(tokens: list[int]) -> int:
    """The value modulo 5 of one expression, read from left to right."""
    total, _ = _read(tokens, 0)
    return total % 5


def _read(tokens: list[int], at: int) -> tuple[int, int]:
    """The value of the operand that begins at a place, and the place after it."""
    if tokens[at] == MINUS:
        operand, at = _read(tokens, at + 1)
        return -operand, at
    if tokens[at] != OPEN:
        return tokens[at], at + 1
    total, at = _read(tokens, at + 1)
    while tokens[at] != CLOSE:
        operator = tokens[at]
        operand, at = _read(tokens, at + 1)
        if operator == PLUS:
            total += operand
        elif operator == MINUS:
            total -= operand
        else:
            total *= operand
    return total, at + 1
