"""The normal distribution of vectors, for the numba kernels.

For x <= 0 in float32, Phi(x) exp(x^2 / 2) is a polynomial in t = 1 / (1 - 0.39 x), a minimax fit:
Phi is within 1e-8, below float32's rounding. float64 calls the C library.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from llvmlite import ir
from numba.extending import overload

from pezoo.kernels.numba_math import SINGLES, exp2, lane_by_lane
from pezoo.kernels.numba_vectors import larger, where_negative

SLOPE = 0.39
P0, P1, P2 = 0.151425142117, 0.194449210219, -0.016667664955
P3, P4, P5 = 0.37520963398, -0.258269915197, 0.053853603412
HALF_LOG2_E, ROOT_HALF = math.log2(math.e) / 2, math.sqrt(0.5)


def _declared_erfc(module: Any, number: Any) -> Any:
    """The C library's, declared once in a module."""
    kind = ir.FunctionType(number, [number])
    return module.globals.get("erfc") or ir.Function(module, kind, "erfc")


_erfc = lane_by_lane(_declared_erfc)


def normal(x: Any) -> Any:
    """Phi(x), the share of the standard normal distribution below x, and exp(-x^2 / 2)."""
    raise NotImplementedError("for numba kernels")


@overload(normal)
def _normal(x: Any) -> Callable[[Any], Any]:
    def double(x: Any) -> Any:
        return _erfc(x * -ROOT_HALF) * 0.5, exp2(x * x * -HALF_LOG2_E)

    def single(x: Any) -> Any:
        power = exp2(x * x * -HALF_LOG2_E)
        t = 1 / (1 + SLOPE * larger(x, 0 - x))
        t2 = t * t
        tail = (P0 + P1 * t) + t2 * ((P2 + P3 * t) + t2 * (P4 + P5 * t))
        tail = tail * t * power
        return where_negative(x, tail, 1 - tail), power

    return single if x == SINGLES else double
