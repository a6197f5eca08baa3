"""Draw and evaluate expressions modulo 5 with a bracket around every operation.

Tokens: the digits 0..4, + - * ( ) (ids 5..9). Loops over the depth of nesting use NumPy, whose
calls on small arrays cost half of torch's.
"""

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

PLUS, MINUS, TIMES, OPEN, CLOSE = 5, 6, 7, 8, 9
Array = NDArray[Any]


def expressions(generator: torch.Generator, batch: int, length: int, operators: int) -> Tensor:
    """Draw random expressions (B, n) with the first `operators` of + - *.

    An expression of 1 to 4 tokens is d, -d, (d) or (-d). A longer one is (left operator right),
    where left has 1 to n - 4 tokens, all equally likely. Digits and operators are uniform.

    All brackets at one depth are split together. Each token has its own random numbers: a bracket
    is split by those of the token that opens it.
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
    """Return the values modulo 5 (B, 1) of expressions (B, n) of that grammar.

    The value of a part is kept where the part begins. Digits, -d, (d) and (-d) have theirs from the
    start; all operations are evaluated once per depth of nesting, until the outermost is right.
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
    closes = x == CLOSE
    depth = opening.cumsum(1) - closes.cumsum(1) + closes  # brackets are inside themselves
    place = _by_depth(depth, opening | infix)  # an operator is next after what opens its bracket
    second = np.flatnonzero(infix.reshape(-1)[place])
    opens, operator = place[second - 1], place[second]
    left, right, code = opens + 1, operator + 1, 25 * (x.reshape(-1)[operator] - PLUS)
    for _ in range(int(depth.max())):
        value[opens] = _RESULTS[code + 5 * value[left] + value[right]]
    return torch.from_numpy(value.reshape(b, n)[:, :1]).to(expressions.device)


def _by_depth(depth: Array, some: Array) -> Array:
    """Return the flat places of `some` (B, n), sorted by row, then depth (B, n), then place."""
    b, n = depth.shape
    place = np.flatnonzero(some)
    key = (depth + np.arange(0, b * n, n)[:, None]).reshape(-1)  # depths are below n
    order: Array = place[key[place].argsort(kind="stable")]
    return order


# The results of + - * modulo 5, (75,), at 25 (operator - PLUS) + 5 left + right.
_LEFT, _RIGHT = np.arange(5)[:, None], np.arange(5)
_RESULTS = np.stack([_LEFT + _RIGHT, _LEFT - _RIGHT, _LEFT * _RIGHT]).reshape(-1) % 5


def value(tokens: list[int]) -> int:
    """Evaluate one expression modulo 5 by recursive descent."""
    total, _ = _read(tokens, 0)
    return total % 5


def _read(tokens: list[int], at: int) -> tuple[int, int]:
    """Evaluate the operand that begins at `at`; also return the place after it."""
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
