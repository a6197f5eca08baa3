"""Student's t distribution: two functions instead of scipy, whose import takes longer than a table.

    Pr(|T| >= t) = I_x(n / 2, 1 / 2), x = n / (n + t^2), n the degrees of freedom

I is the regularised incomplete beta function, by its continued fraction (DLMF 8.17.22).
"""

from __future__ import annotations

from functools import cache
from math import exp, fabs, lgamma, log

_TINY = 1e-300


def two_sided(t: float, freedom: int) -> float:
    """Pr(|T| >= |t|) with that many degrees of freedom.

    >>> round(two_sided(4.3027, 2), 4)
    0.05
    """
    total, a, b = freedom + t * t, freedom / 2, 0.5
    x, y = freedom / total, t * t / total  # y = 1 - x, without its rounding
    if x > (a + 1) / (a + b + 2):  # where the fraction converges slowly
        return 1 - _incomplete_beta(y, x, b, a)
    return _incomplete_beta(x, y, a, b)


@cache
def quantile(level: float, freedom: int) -> float:
    """The t with Pr(|T| < t) = level, by bisection.

    >>> round(quantile(0.95, 2), 4)
    4.3027
    """
    low, high = 0.0, 1.0
    while two_sided(high, freedom) > 1 - level:
        low, high = high, 2 * high
    while high - low > 1e-13 * high:
        middle = (low + high) / 2
        low, high = (middle, high) if two_sided(middle, freedom) > 1 - level else (low, middle)
    return high


def _incomplete_beta(x: float, y: float, a: float, b: float) -> float:
    """I_x(a, b), where y is 1 - x."""
    if not x:
        return 0.0
    front = exp(lgamma(a + b) - lgamma(a) - lgamma(b) + a * log(x) + b * log(y)) / a
    return front / _fraction(x, a, b)


def _fraction(x: float, a: float, b: float) -> float:
    """1 + d_1 / (1 + d_2 / (1 + ...)), forwards, by Lentz's method."""
    value = upper = 1.0
    lower = 0.0
    for i in range(1, 1000):
        m = i // 2
        if i % 2:
            d = -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1))
        else:
            d = m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m))
        lower = 1 / (1 + d * lower or _TINY)
        upper = 1 + d / upper or _TINY
        value *= upper * lower
        if fabs(upper * lower - 1) < 1e-15:
            break
    return value
