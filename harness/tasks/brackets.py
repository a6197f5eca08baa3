"""Expressions modulo 5 with a bracket around every operation: drawn, and their values.

Tokens: the digits 0..4, + - * ( ) (ids 5..9).
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import pad

PLUS, MINUS, TIMES, OPEN, CLOSE = 5, 6, 7, 8, 9


def expressions(generator: torch.Generator, batch: int, length: int, operators: int) -> Tensor:
    """Random expressions (B, n); of + - *, the first `operators` are used.

    An expression of 1 to 4 tokens is d, -d, (d) or (-d). A longer one is (left operator right),
    where left has 1 to n - 4 tokens, all equally likely. Digits and operators are uniform.

    All brackets at one depth are split together. What is drawn at random has a place among the
    tokens: a bracket's split belongs to where it opens.
    """
    device, shape = generator.device, (batch, length)
    x = torch.randint(5, shape, generator=generator, device=device).flatten()
    operator = torch.randint(PLUS, PLUS + operators, shape, generator=generator, device=device)
    share = torch.rand(shape, generator=generator, dtype=torch.float64, device=device).flatten()
    start = torch.arange(0, batch * length, length, device=device)  # of the parts at this depth
    size = torch.full_like(start, length)
    parts, middles = [(start, size)], [start[:0]]
    while len(split := (size > 4).nonzero().squeeze(1)):
        start, size = start.index_select(0, split), size.index_select(0, split)
        left = 1 + (share.index_select(0, start) * (size - 4)).long()
        middle = start + left + 1
        start, size = torch.cat([start + 1, middle + 1]), torch.cat([left, size - left - 3])
        parts.append((start, size))
        middles.append(middle)
    start, size = (torch.cat(each) for each in zip(*parts, strict=True))
    middle, bracketed = torch.cat(middles), size > 2
    x.index_copy_(0, middle, operator.flatten().index_select(0, middle))
    x.index_fill_(0, (start + size // 4)[(size == 2) | (size == 4)], MINUS)
    x.index_fill_(0, start[bracketed], OPEN)
    x.index_fill_(0, (start + size - 1)[bracketed], CLOSE)
    return x.view(shape)


def values(x: Tensor) -> Tensor:
    """(B, 1) values modulo 5 of expressions (B, n) of that grammar.

    Every part's value stands where the part begins. Those of digits and of -d are there at once; a
    bracket takes its operands' values, again and again, until the outermost has the right ones.
    """
    b, n = x.shape
    before = pad(x[:, :-1], (1, 0), value=OPEN)
    infix = (x >= PLUS) & (x <= TIMES) & ((before < PLUS) | (before == CLOSE))
    negative = (x == MINUS) & ~infix
    value = torch.where(x < PLUS, x, 0)
    value = torch.where(negative, -value.roll(-1, 1) % 5, value)
    value = torch.where(x == OPEN, value.roll(-1, 1), value).flatten()  # right for (d) and (-d)
    depth = _depths(x)
    place = _by_depth(
        depth, (x == OPEN) | infix
    )  # an operator is next after what opens its bracket
    second = infix.take(place).nonzero().squeeze(1)
    opens, operator = place.take(second - 1), place.take(second)
    left, right, code = opens + 1, operator + 1, 25 * (x.take(operator) - PLUS)
    table = _table(x.device)
    for _ in range(int(depth.max())):
        operands = value.index_select(0, right).add_(value.index_select(0, left), alpha=5)
        value.index_copy_(0, opens, table.index_select(0, operands.add_(code)))
    return value.view(b, n)[:, :1]


def signs(x: Tensor) -> Tensor:
    """(B, n): 1 or -1, with which each token counts in an expression (B, n) of + and - alone.

    Every minus turns round its operand: d, -d, or all up to where a bracket closes.
    """
    place = _by_depth(_depths(x), (x == OPEN) | (x == CLOSE))
    minus = x == MINUS
    last = minus.flatten() + torch.arange(x.numel(), device=x.device)  # of d and -d; of brackets:
    last.index_copy_(0, place[::2], place[1::2])
    begins = pad(minus[:, :-1], (1, 0)).long()
    ends = torch.zeros_like(last).index_add_(0, last, begins.flatten()).view(x.shape)
    turns = begins.cumsum(1) - ends.cumsum(1) + ends
    return 1 - 2 * (turns % 2)


def _depths(x: Tensor) -> Tensor:
    """(B, n): in how many brackets each token is; both ends of a bracket are in it."""
    closes = (x == CLOSE).long()
    return (x == OPEN).cumsum(1) - closes.cumsum(1) + closes


def _by_depth(depth: Tensor, some: Tensor) -> Tensor:
    """The flat places of `some` (B, n): row after row, each by depth (B, n), then from the left."""
    b, n = depth.shape
    row = torch.arange(0, b * n, n, device=depth.device)[:, None]  # depths are below n
    place = some.flatten().nonzero().squeeze(1)
    return place.take((depth + row).take(place).argsort(stable=True))


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


def _table(device: torch.device) -> Tensor:
    """(75,) of left operator right modulo 5, at 25 (operator - PLUS) + 5 left + right."""
    a = torch.arange(5, device=device)[:, None]
    return torch.stack([a + a.T, a - a.T, a * a.T]).flatten() % 5
