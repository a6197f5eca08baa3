"""Vectors for numba: LANES numbers that are loaded, computed with and stored together.

LLVM's loop vectoriser, which numba relies on, vectorises little here, because it must assume that
arrays overlap. A `Vector` is a value like a float: +, -, * and / take two vectors, or a vector and
a number. They are loaded from arrays (n,) and pointers, and stored there.
"""

import operator
from collections.abc import Callable
from typing import Any, cast

from llvmlite import ir
from numba import extending, types
from numba.core import cgutils

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


def _index(x: Any) -> Any:
    """Return the type by which intrinsics take indices."""
    return types.intp if isinstance(x, types.Integer) else x


@intrinsic
def pointer(typing: Any, address: Any, like: Any) -> Any:
    """Return a pointer to numbers of the type of `like`, without reference counts."""

    def code(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.inttoptr(args[0], context.get_value_type(like).as_pointer())

    return types.CPointer(like)(_index(address), like), code


@intrinsic
def opened(typing: Any, places: Any, like: Any) -> Any:
    """Convert a named tuple of addresses to pointers to numbers of the type of `like`."""

    def code(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        kind = context.get_value_type(like).as_pointer()
        addresses = cgutils.unpack_tuple(builder, args[0], places.count)
        pointers = [builder.inttoptr(x, kind) for x in addresses]
        return context.make_tuple(builder, signature.return_type, pointers)

    pointers = types.NamedUniTuple(types.CPointer(like), places.count, places.instance_class)
    return pointers(places, like), code


@intrinsic
def beyond(typing: Any, x: Any, n: Any) -> Any:
    """Advance a pointer by n numbers."""

    def code(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.gep(args[0], [args[1]])

    return x(x, _index(n)), code


def _address(context: Any, builder: Any, kind: Any, data: Any, index: Any) -> Any:
    """Return the address of LANES numbers from an index."""
    vector = ir.VectorType(context.get_value_type(kind.dtype), LANES)
    return builder.bitcast(builder.gep(data, [index]), vector.as_pointer())


@intrinsic
def load(typing: Any, x: Any, i: Any) -> Any:
    """Load x[i : i + LANES], x a pointer."""

    def code(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        size = context.get_abi_sizeof(context.get_value_type(x.dtype))
        return builder.load(_address(context, builder, x, *args), align=size)

    return Vector(x.dtype)(x, _index(i)), code


@intrinsic
def store(typing: Any, x: Any, i: Any, value: Any) -> Any:
    """Store x[i : i + LANES] = value, x a pointer."""

    def code(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        size = context.get_abi_sizeof(context.get_value_type(x.dtype))
        builder.store(args[2], _address(context, builder, x, *args[:2]), align=size)
        return context.get_dummy_value()

    return types.void(x, _index(i), value), code
