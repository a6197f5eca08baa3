"""Positional relation functions of tasks, written by hand: `Relation` builds the same ones."""

from collections.abc import Callable

import torch
from torch import Tensor

Relation = Callable[[Tensor, Tensor, int], Tensor]  # i, j from 0, and the scale that is written


def kinds(*conditions: Tensor) -> Tensor:
    """Number the conditions from 1: k where the k-th holds, 0 where none does, int64."""
    numbered = (k * held.long() for k, held in enumerate(conditions, 1))
    return torch.stack(torch.broadcast_tensors(*numbered)).sum(0)


def copy(i: Tensor, j: Tensor, m: int) -> Tensor:
    return kinds((i >= m) & (i < 2 * m) & (j == i - m))


def reverse(i: Tensor, j: Tensor, m: int) -> Tensor:
    return kinds((i >= m) & (i < 2 * m) & (i + j == 2 * m - 1))


def odds_first(i: Tensor, j: Tensor, m: int) -> Tensor:
    t = i - m  # token t of the answer, from 0
    source = torch.where(t < m // 2, 2 * t + 1, 2 * (t - m // 2))
    return kinds((t >= 0) & (t < m) & (j == source))


def parity(i: Tensor, j: Tensor, m: int) -> Tensor:
    first, later = i == m, (i > m) & (i < 2 * m)
    return kinds(first & (j == 0), later & (j == i - m), later & (j == i))


def addition(i: Tensor, j: Tensor, m: int) -> Tensor:
    k = i - 2 * m - 1  # which digit of the sum, from 0
    first, middle, end = k == 0, (k > 0) & (k < m), k == m
    return kinds(
        first & (j == 0), first & (j == m + 1),
        middle & (j == k - 1), middle & (j == m + k), middle & (j == i),
        middle & (j == k), middle & (j == m + 1 + k),
        end & (j == m - 1), end & (j == 2 * m), end & (j == i),
    )  # fmt: skip


def multiplication_1n(i: Tensor, j: Tensor, m: int) -> Tensor:
    k = i - m - 2  # which digit of the product, from 0
    first, middle, end = k == 0, (k > 0) & (k < m), k == m
    return kinds(
        first & (j == 0), first & (j == 2),
        middle & (j == 0), middle & (j == k + 1), middle & (j == k + 2), middle & (j == i),
        end & (j == 0), end & (j == m + 1), end & (j == i),
    )  # fmt: skip


def division_n1(i: Tensor, j: Tensor, m: int) -> Tensor:
    k = i - m - 2  # which digit of the quotient, from 0
    first, later = k == 0, (k > 0) & (k < m)
    return kinds(
        first & (j == 0), first & (j == m + 1),
        later & (j == k - 1), later & (j == i), later & (j == k), later & (j == m + 1),
    )  # fmt: skip


def select_first(i: Tensor, j: Tensor, m: int) -> Tensor:
    return kinds((i == m) & (j == 0))


def select_middle(i: Tensor, j: Tensor, m: int) -> Tensor:
    return kinds((i == m) & (j == i // 2))


def select_last(i: Tensor, j: Tensor, m: int) -> Tensor:
    return kinds((i == m) & (j == i - 1))
