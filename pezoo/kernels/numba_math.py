"""Functions of vectors, for the numba kernels.

log2, exp2, and what they give.

Polynomials after the usual split x = 2^k m. The coefficients are minimax fits in relative error:
log2(1 + f) / f for 1 + f in [sqrt(1/2), sqrt(2)] to 2.7e-8, and 2^f for f in [-1/2, 1/2] to 1.9e-9,
both below float32's rounding. They are summed in pairs (Estrin), which makes shorter chains than
Horner's rule. float64 calls the C library.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from llvmlite import ir
from numba import types
from numba.extending import overload

from pezoo.kernels.numba_vectors import (
    FLOATS,
    INT,
    INTS,
    LANES,
    Vector,
    intrinsic,
    ints,
    larger,
    splat,
)

LOWEST = -127.0  # k for which 2^k has the bits of 0
LOG2E = math.log2(math.e)
L0, L1, L2 = 1.442695003652, -0.721347346802, 0.480910643031
L3, L4, L5 = -0.360703683031, 0.287916245071, -0.238944813858
L6, L7, L8 = 0.215715630976, -0.207269815672, 0.125837036922
E1, E2, E3 = 0.693147205737, 0.240226468906, 0.055503287766
E4, E5, E6 = 0.009618488959, 0.001339993139, 0.000153458120
MANTISSA, BIAS = ints(23), ints(127)
BELOW_ONE = ints(0x3F3504F3)  # the bits of sqrt(1/2)
SINGLES = Vector(types.float32)


@intrinsic
def _split(typing: Any, x: Any) -> Any:
    """Normal x > 0 as (k, m) with x = 2^k m, m in [sqrt(1/2), sqrt(2))."""

    def code(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        bits = builder.bitcast(args[0], INTS)
        k = builder.ashr(builder.sub(bits, BELOW_ONE), MANTISSA)
        m = builder.bitcast(builder.sub(bits, builder.shl(k, MANTISSA)), FLOATS)
        return context.make_tuple(builder, signature.return_type, [builder.sitofp(k, FLOATS), m])

    return types.UniTuple(SINGLES, 2)(SINGLES), code


@intrinsic
def _nearest(typing: Any, x: Any) -> Any:
    """-127 <= x <= 0 as (k, 2^k) with k the nearest integer; 2^-127 is 0."""

    def code(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        half = ir.Constant(FLOATS, [0.5] * LANES)
        k = builder.fptosi(builder.fsub(args[0], half), INTS)  # rounds towards zero
        power = builder.bitcast(builder.shl(builder.add(k, BIAS), MANTISSA), FLOATS)
        return context.make_tuple(
            builder, signature.return_type, [builder.sitofp(k, FLOATS), power]
        )

    return types.UniTuple(SINGLES, 2)(SINGLES), code


def lane_by_lane(declare: Callable[[Any, Any], Any]) -> Any:
    """A function of vectors that calls one of numbers, which declare(module, type) gives."""

    @intrinsic
    def function(typing: Any, x: Any) -> Any:
        def code(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            call = declare(builder.module, args[0].type.element)
            out = args[0]
            for lane in (ir.Constant(INT, i) for i in range(LANES)):
                number = builder.call(call, [builder.extract_element(args[0], lane)])
                out = builder.insert_element(out, number, lane)
            return out

        return x(x), code

    return function


_library_log2 = lane_by_lane(lambda module, number: module.declare_intrinsic("llvm.log2", [number]))
_library_exp2 = lane_by_lane(lambda module, number: module.declare_intrinsic("llvm.exp2", [number]))


def log2(x: Any) -> Any:
    """Base-2 logarithm of a vector of normal x > 0."""
    raise NotImplementedError("for numba kernels")


def exp2(x: Any) -> Any:
    """2^x of a vector of x <= 0; what would be smaller than 2^-126.5 in float32 is 0."""
    raise NotImplementedError("for numba kernels")


@overload(log2)
def _log2(x: Any) -> Callable[[Any], Any]:
    def double(x: Any) -> Any:
        return _library_log2(x)

    def single(x: Any) -> Any:
        k, m = _split(x)
        f = m - 1
        f2 = f * f
        low = (L0 + L1 * f) + f2 * (L2 + L3 * f)
        high = (L4 + L5 * f) + f2 * (L6 + L7 * f)
        f4 = f2 * f2
        return k + f * (low + f4 * (high + f4 * L8))

    return single if x == SINGLES else double


@overload(exp2)
def _exp2(x: Any) -> Callable[[Any], Any]:
    def double(x: Any) -> Any:
        return _library_exp2(x)

    def single(x: Any) -> Any:
        inside = larger(splat(LOWEST, x), x)  # a NaN stays one
        k, power = _nearest(inside)
        f = inside - k
        f2 = f * f
        p = (1 + E1 * f) + f2 * ((E2 + E3 * f) + f2 * ((E4 + E5 * f) + f2 * E6))
        return power * p

    return single if x == SINGLES else double
