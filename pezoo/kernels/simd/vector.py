"""Vectors for numba: LANES numbers that are loaded, computed with and stored together.

LLVM's loop vectoriser, which numba relies on, vectorises little here, because it must assume that
arrays overlap. A `Vector` is a value like a float: +, -, * and / take two vectors, or a vector and
a number.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any, cast

from llvmlite import ir
from numba import extending, types

LANES = 8
FUSED = ("contract",)  # a b + c is rounded once; nothing else that would change a result
INT, FLOAT = ir.IntType(32), ir.FloatType()
INTS, FLOATS = ir.VectorType(INT, LANES), ir.VectorType(FLOAT, LANES)


def intrinsic(function: Callable[..., Any]) -> Callable[..., Any]:
    """Make a function for kernels that emits LLVM code; `typing` is numba's."""
    # hides numba's types: callers do not pass the first argument
    return cast(Callable[..., Any], extending.intrinsic(function))


class Vector(types.Type):
    """LANES numbers of one type."""

    def __init__(self, dtype: Any) -> None:
        self.dtype = dtype
        super().__init__(f"Vector({dtype})")


@extending.register_model(Vector)
class _Model(extending.models.PrimitiveModel):
    def __init__(self, manager: Any, kind: Vector) -> None:
        number = manager.lookup(kind.dtype).get_value_type()
        super().__init__(  # type: ignore[no-untyped-call]
            manager, kind, ir.VectorType(number, LANES)
        )


def ints(x: int) -> ir.Constant:
    """Return the vector of an int32."""
    return ir.Constant(INTS, [x] * LANES)


@intrinsic
def splat(typing: Any, x: Any, like: Any) -> Any:
    """Broadcast a number to a vector of the type of `like`."""

    def code(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        kind = context.get_value_type(like)
        number = context.cast(builder, args[0], x, like.dtype)
        empty = ir.Constant(kind, ir.Undefined)
        one = builder.insert_element(empty, number, ir.Constant(INT, 0))
        return builder.shuffle_vector(one, empty, ints(0))

    return like(x, like), code


def _operator(function: Any, instruction: str) -> None:
    """Overload an operator for vectors, or a vector and a number."""

    @intrinsic
    def operation(typing: Any, a: Any, b: Any) -> Any:
        def code(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            return getattr(builder, instruction)(*args, flags=FUSED)

        return a(a, b), code

    @extending.overload(function)
    def _(a: Any, b: Any) -> Callable[[Any, Any], Any] | None:
        def both(a: Any, b: Any) -> Any:
            return operation(a, b)

        def left(a: Any, b: Any) -> Any:
            return operation(splat(a, b), b)

        def right(a: Any, b: Any) -> Any:
            return operation(a, splat(b, a))

        vectors = isinstance(a, Vector), isinstance(b, Vector)
        return {(True, True): both, (False, True): left, (True, False): right}.get(vectors)


_operator(operator.add, "fadd")
_operator(operator.sub, "fsub")
_operator(operator.mul, "fmul")
_operator(operator.truediv, "fdiv")


@intrinsic
def larger(typing: Any, a: Any, b: Any) -> Any:
    """Return the maximum of each lane."""

    def code(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.select(builder.fcmp_ordered(">", *args), *args)

    return a(a, b), code


@intrinsic
def where_negative(typing: Any, x: Any, a: Any, b: Any) -> Any:
    """Return a where x < 0, otherwise b."""

    def code(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        zero = ir.Constant(args[0].type, [0.0] * LANES)
        return builder.select(builder.fcmp_ordered("<", args[0], zero), *args[1:])

    return a(x, a, b), code


def _across(join: Callable[[Any, Any, Any], Any]) -> Callable[..., Any]:
    """Make a reduction of all lanes to a number, in pairs."""

    @intrinsic
    def reduce(typing: Any, x: Any) -> Any:
        def code(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            value = args[0]
            for s in (4, 2, 1):
                order = ir.Constant(INTS, [(lane + s) % LANES for lane in range(LANES)])
                value = join(builder, value, builder.shuffle_vector(value, value, order))
            return builder.extract_element(value, ir.Constant(INT, 0))

        return x.dtype(x), code

    return reduce


total = _across(lambda builder, a, b: builder.fadd(a, b))
highest = _across(lambda builder, a, b: builder.select(builder.fcmp_ordered(">", a, b), a, b))
