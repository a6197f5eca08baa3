"""log2 and exp2 that a compiler can vectorise, for numba kernels.

LLVM turns a call of the C library's logf into one call per number; these are polynomials after the
usual split x = 2^k m, so a loop over them runs on whole vectors. The coefficients are minimax fits
in relative error: log2(1 + f) / f for 1 + f in [sqrt(1/2), sqrt(2)] to 2.7e-8, and 2^f for f in
[-1/2, 1/2] to 1.9e-9, both below float32's rounding. float64 calls the C library.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic, overload

SINGLE = np.float32
ONE, HALF, LOWEST = SINGLE(1), SINGLE(0.5), SINGLE(-126)
L0, L1, L2, L3, L4, L5, L6, L7, L8 = (
    SINGLE(c)
    for c in (1.442695003652, -0.721347346802, 0.480910643031, -0.360703683031, 0.287916245071,
              -0.238944813858, 0.215715630976, -0.207269815672, 0.125837036922)
)  # fmt: skip
E1, E2, E3, E4, E5, E6 = (
    SINGLE(c)
    for c in (0.693147205737, 0.240226468906, 0.055503287766, 0.009618488959, 0.001339993139,
              0.000153458120)
)  # fmt: skip
INT, FLOAT = ir.IntType(32), ir.FloatType()
MANTISSA = ir.Constant(INT, 23)
BELOW_ONE = ir.Constant(INT, 0x3F3504F3)  # the bits of sqrt(1/2)
BIAS = ir.Constant(INT, 127)


@intrinsic
def _split(typing: Any, x: Any) -> Any:
    """A normal float32 x > 0 as (k, m) with x = 2^k m, m in [sqrt(1/2), sqrt(2))."""

    def code(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        bits = builder.bitcast(args[0], INT)
        k = builder.ashr(builder.sub(bits, BELOW_ONE), MANTISSA)
        m = builder.bitcast(builder.sub(bits, builder.shl(k, MANTISSA)), FLOAT)
        return context.make_tuple(builder, signature.return_type, [builder.sitofp(k, FLOAT), m])

    return types.UniTuple(types.float32, 2)(types.float32), code


@intrinsic
def _power_of_two(typing: Any, k: Any) -> Any:
    """2^k in float32 for an int32 k in -126..127."""

    def code(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.bitcast(builder.shl(builder.add(args[0], BIAS), MANTISSA), FLOAT)

    return types.float32(types.int32), code


def log2(x: Any) -> Any:
    """Base-2 logarithm of a normal x > 0."""
    raise NotImplementedError("for numba kernels")


def exp2(x: Any) -> Any:
    """2^x for x <= 0; what would be smaller than 2^-126 in float32 is 0."""
    raise NotImplementedError("for numba kernels")


@overload(log2, jit_options={"fastmath": True})
def _log2(x: Any) -> Callable[[Any], Any]:
    if x == types.float64:

        def double(x: Any) -> Any:
            return math.log2(x)

        return double

    def single(x: Any) -> Any:
        k, m = _split(x)
        f = m - ONE
        p = (((((((L8 * f + L7) * f + L6) * f + L5) * f + L4) * f + L3) * f + L2) * f + L1) * f + L0
        return k + f * p

    return single


@overload(exp2, jit_options={"fastmath": True})
def _exp2(x: Any) -> Callable[[Any], Any]:
    if x == types.float64:

        def double(x: Any) -> Any:
            return 2.0**x

        return double

    def single(x: Any) -> Any:
        inside = x if x > LOWEST else LOWEST
        k = np.int32(inside - HALF)  # towards zero: the nearest integer, as x <= 0
        f = inside - SINGLE(k)
        p = (((((E6 * f + E5) * f + E4) * f + E3) * f + E2) * f + E1) * f + ONE
        return _power_of_two(k) * p if x > LOWEST else SINGLE(0)

    return single
