"""Logarithm and power of two of vectors, for the numba back ends.

float32: after the split x = 2^k m, log2 m is a polynomial in ((m - 1) / (m + 1))^2, and 2^f for f
in [-1/2, 1/2] one in f, both by Horner's rule; the coefficients are minimax fits in relative
error, to 7e-10 and 1.9e-9 before rounding. float64 calls the C library.

Callers pass the terms, because computed vectors stay in registers, while LLVM loads constants for
every vector.
"""

import math
from collections.abc import Callable
from typing import Any

from llvmlite import ir
from numba import types
from numba.extending import overload

from pezoo.kernels.simd.compile import inline
from pezoo.kernels.simd.vector import FLOATS, INT, INTS, LANES, Vector, intrinsic, ints, larger

UNIT = 2.0**-23  # of the logarithm: so the bits of k are a number without a shift
LOWEST = -127.0  # k for which 2^k has the bits of 0
EXPONENT = -math.inf  # in float32, ones where the sign and the exponent are
MAGIC = 1.5 * 2**23 - LOWEST  # added, it rounds: the last bits are those of k + 127
MANTISSA = ints(23)
SINGLES = Vector(types.float32)
# log2(m) / s as a polynomial in s^2, s = (m - 1) / (m + 1)
S0, S1, S2, S3 = (
    c / UNIT for c in (2.885390079789, 0.961798847642, 0.576714383937, 0.431735879692)
)
E1, E2, E3 = 0.693147205737, 0.240226468906, 0.055503287766
E4, E5, E6 = 0.009618488959, 0.001339993139, 0.000153458120


@inline
def log_terms(zero: Any) -> Any:
    """Return the terms of `log2`, from a vector of zeros that the compiler cannot fold."""
    return (
        zero + math.sqrt(0.5), zero + EXPONENT, zero + 1, zero + S0, zero + S1, zero + S2, zero + S3
    )  # fmt: skip


@inline
def power_terms(zero: Any) -> Any:
    """Return the terms of `exp2`, from a vector of zeros that the compiler cannot fold."""
    return (
        zero + LOWEST, zero + MAGIC, zero + 1, zero + E1, zero + E2, zero + E3, zero + E4,
        zero + E5, zero + E6,
    )  # fmt: skip


def log2(x: Any, terms: Any) -> Any:
    """Return log2 x / UNIT of a vector of normal x > 0."""
    raise NotImplementedError("for numba kernels")


def exp2(x: Any, terms: Any) -> Any:
    """Return 2^x of a vector of x below 127; results below 2^-126.5 in float32 are 0."""
    raise NotImplementedError("for numba kernels")


@overload(log2)
def _log2(x: Any, terms: Any) -> Callable[[Any, Any], Any]:
    def double(x: Any, terms: Any) -> Any:
        return _library_log2(x) / UNIT

    def single(x: Any, terms: Any) -> Any:
        root, exponent, one, s0, s1, s2, s3 = terms
        k, m = _split(x, root, exponent)
        s = (m - one) / (m + one)
        q = s * s
        return k + s * (s0 + q * (s1 + q * (s2 + q * s3)))

    return single if x == SINGLES else double


@overload(exp2)
def _exp2(x: Any, terms: Any) -> Callable[[Any, Any], Any]:
    def double(x: Any, terms: Any) -> Any:
        return _library_exp2(x)

    def single(x: Any, terms: Any) -> Any:
        lowest, magic, one, e1, e2, e3, e4, e5, e6 = terms
        inside = larger(lowest, x)  # a NaN stays one
        rounded = inside + magic
        f = inside - (rounded - magic)
        p = one + f * (e1 + f * (e2 + f * (e3 + f * (e4 + f * (e5 + f * e6)))))
        return p * _power(rounded)

    return single if x == SINGLES else double


@intrinsic
def _split(typing: Any, x: Any, root: Any, exponent: Any) -> Any:
    """Split normal x > 0 into (k / UNIT, m) with x = 2^k m, m in [sqrt(1/2), sqrt(2))."""

    def code(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        bits, root, exponent = (builder.bitcast(vector, INTS) for vector in args)
        k = builder.and_(builder.sub(bits, root), exponent)
        m = builder.bitcast(builder.sub(bits, k), FLOATS)
        return context.make_tuple(builder, signature.return_type, [builder.sitofp(k, FLOATS), m])

    return types.UniTuple(SINGLES, 2)(x, root, exponent), code


@intrinsic
def _power(typing: Any, x: Any) -> Any:
    """Return 2^k of x = MAGIC + k; 0 for k = LOWEST."""

    def code(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.bitcast(builder.shl(builder.bitcast(args[0], INTS), MANTISSA), FLOATS)

    return x(x), code


def _lane_by_lane(name: str) -> Any:
    """Make a function of vectors that calls an LLVM function for each lane."""

    @intrinsic
    def function(typing: Any, x: Any) -> Any:
        def code(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            call, out = builder.module.declare_intrinsic(name, [args[0].type.element]), args[0]
            for lane in (ir.Constant(INT, i) for i in range(LANES)):
                number = builder.call(call, [builder.extract_element(args[0], lane)])
                out = builder.insert_element(out, number, lane)
            return out

        return x(x), code

    return function


_library_log2, _library_exp2 = _lane_by_lane("llvm.log2"), _lane_by_lane("llvm.exp2")
