"""The paper's examples of computational representations (Examples 1 to 5).

Places, operators and parents are as printed, without signs, but for misprints: Example 2 names the
last two steps by one place, 2n, and the last one as its own parent; Example 5's first form starts
as its second does where n = 2.
"""

from __future__ import annotations

from functools import cache, reduce
from operator import xor

from harness.theory.representation import Computation, Operator, Step


def same(u: int) -> int:
    """g_ID."""
    return u


def exclusive_or(*u: int) -> int:
    """g_xor, of any number of inputs."""
    return reduce(xor, u)


def parity(n: int) -> Computation:
    """Example 1: y_1 = x_1, y_t = x_t xor y_(t-1)."""
    later = (Step(n + t, exclusive_or, (t, n + t - 1)) for t in range(2, n + 1))
    return Computation(n, (Step(n + 1, same, (1,)), *later))


def parity_at_once(n: int) -> Computation:
    """Example 3: y_t = x_1 xor .. xor x_t, an operator for every t."""
    later = (Step(n + t, _xor_of(t), tuple(range(1, t + 1))) for t in range(2, n + 1))
    return Computation(n, (Step(n + 1, same, (1,)), *later))


def multiplication(n: int) -> Computation:
    """Example 2: x_1 times x_n .. x_2, for n of 2 and more."""
    middle = (Step(n + k, _digit, (1, k, k + 1, n + k - 1)) for k in range(2, n))
    last = Step(2 * n, _carry, (1, n, 2 * n - 1))
    return Computation(n, (Step(n + 1, _lowest, (1, 2)), *middle, last))


def multiplication_at_once(n: int) -> Computation:
    """Example 4: every digit from all factors below it, an operator for every place."""
    digits = (Step(n + k, _digit_of(k), tuple(range(1, k + 2))) for k in range(1, n))
    return Computation(n, (*digits, Step(2 * n, _top_of(n - 1), tuple(range(1, n + 1)))))


def count_up(n: int) -> Computation:
    """Example 5, C: x_1 + 1, then one more each, but two more than the last but one at the end."""
    if n < 3:
        return count_up_by_two(n)
    middle = (Step(n + k, _plus_one, (n + k - 1,)) for k in range(2, n))
    return Computation(
        n, (Step(n + 1, _plus_one, (1,)), *middle, Step(2 * n, _plus_two, (2 * n - 2,)))
    )


def count_up_by_two(n: int) -> Computation:
    """Example 5, C': x_1 + 1, x_1 + 2, then two more than the last but one."""
    starts = (Step(n + 1, _plus_one, (1,)), Step(n + 2, _plus_two, (1,)))
    later = (Step(n + k, _plus_two, (n + k - 2,)) for k in range(3, n + 1))
    return Computation(n, (*starts[:n], *later))


def copy(n: int) -> Computation:
    """Example 7."""
    return Computation(n, tuple(Step(n + t, same, (t,)) for t in range(1, n + 1)))


def _plus_one(u: int) -> int:
    return (u + 1) % 10


def _plus_two(u: int) -> int:
    return (u + 2) % 10


def _lowest(u1: int, u2: int) -> int:
    return u1 * u2 % 10


def _digit(u1: int, u2: int, u3: int, u4: int) -> int:
    return (u1 * u3 + u1 * u2 // 10 + (u4 < u1 * u2 % 10)) % 10


def _carry(u1: int, u2: int, u3: int) -> int:
    return u1 * u2 // 10 + (u3 < u1 * u2 % 10)


@cache
def _xor_of(k: int) -> Operator:
    """g_(xor, k), one object for each k."""
    return _named(lambda *u: exclusive_or(*u), f"exclusive_or_{k}")


@cache
def _digit_of(k: int) -> Operator:
    def digit(*u: int) -> int:
        below = sum(u[0] * u[i - 1] * 10 ** (i - 2) for i in range(2, k + 1)) // 10 ** (k - 1)
        return (u[0] * u[k] + below) % 10

    return _named(digit, f"digit_{k}")


@cache
def _top_of(k: int) -> Operator:
    def top(*u: int) -> int:
        return sum(u[0] * u[i - 1] * 10 ** (i - 2) for i in range(2, k + 2)) // 10**k

    return _named(top, f"top_{k}")


def _named(operator: Operator, name: str) -> Operator:
    operator.__name__ = name
    return operator
