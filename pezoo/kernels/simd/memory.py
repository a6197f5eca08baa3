"""Loads and stores of vectors in numba's kernels, from arrays (n,) and pointers."""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils

from pezoo.kernels.simd.vector import INT, LANES, Vector, intrinsic, ints


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


def _data(context: Any, builder: Any, kind: Any, array: Any) -> Any:
    """Return the address of an array or a pointer."""
    if isinstance(kind, types.CPointer):
        return array
    return context.make_array(kind)(context, builder, array).data


def _address(context: Any, builder: Any, kind: Any, array: Any, index: Any) -> Any:
    """Return the address of LANES numbers of an array (n,) from an index."""
    data = _data(context, builder, kind, array)
    vector = ir.VectorType(context.get_value_type(kind.dtype), LANES)
    return builder.bitcast(builder.gep(data, [index]), vector.as_pointer())


@intrinsic
def load(typing: Any, x: Any, i: Any) -> Any:
    """Load x[i : i + LANES] of an array (n,)."""

    def code(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        size = context.get_abi_sizeof(context.get_value_type(x.dtype))
        return builder.load(_address(context, builder, x, *args), align=size)

    return Vector(x.dtype)(x, _index(i)), code


@intrinsic
def load_splat(typing: Any, x: Any, i: Any) -> Any:
    """Load x[i] into every lane; negative indices do not count from the end."""

    def code(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        data = _data(context, builder, x, args[0])
        kind = context.get_value_type(signature.return_type)
        empty = ir.Constant(kind, ir.Undefined)
        number = builder.load(builder.gep(data, [args[1]]))
        one = builder.insert_element(empty, number, ir.Constant(INT, 0))
        return builder.shuffle_vector(one, empty, ints(0))

    return Vector(x.dtype)(x, _index(i)), code


@intrinsic
def store(typing: Any, x: Any, i: Any, value: Any) -> Any:
    """Store x[i : i + LANES] = value."""

    def code(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        size = context.get_abi_sizeof(context.get_value_type(x.dtype))
        builder.store(args[2], _address(context, builder, x, *args[:2]), align=size)
        return context.get_dummy_value()

    return types.void(x, _index(i), value), code
