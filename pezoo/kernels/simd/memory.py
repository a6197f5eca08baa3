"""Where the vectors of numba's kernels come from and go to: arrays (n,), and pointers.

Rows of a tensor and lines of LANES rows: `load_rows` and `store_rows` transpose between them.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils

from pezoo.kernels.simd.vector import INT, INTS, LANES, LONG, Vector, intrinsic, ints


def _index(x: Any) -> Any:
    """How intrinsics take indices."""
    return types.intp if isinstance(x, types.Integer) else x


@intrinsic
def pointer(typing: Any, address: Any, like: Any) -> Any:
    """Numbers of the type of `like` at an address: an array that nobody counts references to."""

    def code(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.inttoptr(args[0], context.get_value_type(like).as_pointer())

    return types.CPointer(like)(_index(address), like), code


@intrinsic
def opened(typing: Any, places: Any, like: Any, skip: Any) -> Any:
    """A named tuple of addresses -> pointers, `skip` numbers further, of the type of `like`."""

    def code(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        kind = context.get_value_type(like).as_pointer()
        addresses = cgutils.unpack_tuple(builder, args[0], places.count)
        pointers = [builder.gep(builder.inttoptr(x, kind), [args[2]]) for x in addresses]
        return context.make_tuple(builder, signature.return_type, pointers)

    pointers = types.NamedUniTuple(types.CPointer(like), places.count, places.instance_class)
    return pointers(places, like, _index(skip)), code


@intrinsic
def beyond(typing: Any, x: Any, n: Any) -> Any:
    """A pointer -> one to the number n further."""

    def code(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.gep(args[0], [args[1]])

    return x(x, _index(n)), code


def _data(context: Any, builder: Any, kind: Any, array: Any) -> Any:
    """Where an array or a pointer begins."""
    if isinstance(kind, types.CPointer):
        return array
    return context.make_array(kind)(context, builder, array).data


def _address(context: Any, builder: Any, kind: Any, array: Any, index: Any) -> Any:
    """Of LANES numbers of an array (n,) from that index on."""
    data = _data(context, builder, kind, array)
    vector = ir.VectorType(context.get_value_type(kind.dtype), LANES)
    return builder.bitcast(builder.gep(data, [index]), vector.as_pointer())


@intrinsic
def load(typing: Any, x: Any, i: Any) -> Any:
    """x[i : i + LANES] of an array (n,)."""

    def code(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        size = context.get_abi_sizeof(context.get_value_type(x.dtype))
        return builder.load(_address(context, builder, x, *args), align=size)

    return Vector(x.dtype)(x, _index(i)), code


@intrinsic
def load_splat(typing: Any, x: Any, i: Any) -> Any:
    """x[i] in every lane, of an array (n,); an index below 0 does not count from the end."""

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
    """x[i : i + LANES] = value."""

    def code(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        size = context.get_abi_sizeof(context.get_value_type(x.dtype))
        builder.store(args[2], _address(context, builder, x, *args[:2]), align=size)
        return context.get_dummy_value()

    return types.void(x, _index(i), value), code


@intrinsic
def stream(typing: Any, x: Any, i: Any, value: Any) -> Any:
    """x[i : i + LANES] = value, past the caches; the address is a multiple of the vector's size."""

    def code(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        size = context.get_abi_sizeof(context.get_value_type(x.dtype))
        written = builder.store(
            args[2], _address(context, builder, x, *args[:2]), align=size * LANES
        )
        once = builder.module.add_metadata([ir.Constant(INT, 1)])
        written.set_metadata("nontemporal", once)
        return context.get_dummy_value()

    return types.void(x, _index(i), value), code


@intrinsic
def gather(typing: Any, x: Any, at: Any, skip: Any) -> Any:
    """(x[at[0] + skip], ..., x[at[LANES - 1] + skip]); at is an array of LANES indices."""

    def code(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        out = ir.Constant(context.get_value_type(signature.return_type), ir.Undefined)
        for lane, place in enumerate(_places(context, builder, signature.args, args)):
            out = builder.insert_element(out, builder.load(place), ir.Constant(INT, lane))
        return out

    return Vector(x.dtype)(x, at, _index(skip)), code


@intrinsic
def scatter(typing: Any, x: Any, at: Any, skip: Any, value: Any) -> Any:
    """x[at[k] + skip] = value[k]."""

    def code(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        for lane, place in enumerate(_places(context, builder, signature.args, args)):
            builder.store(builder.extract_element(args[3], ir.Constant(INT, lane)), place)
        return context.get_dummy_value()

    return types.void(x, at, _index(skip), value), code


def _places(context: Any, builder: Any, kinds: Any, args: Any) -> list[Any]:
    """Addresses of x[at[k] + skip] for args x, at, skip."""
    x, at = (_data(context, builder, kinds[i], args[i]) for i in (0, 1))
    lanes = (builder.gep(at, [ir.Constant(LONG, lane)]) for lane in range(LANES))
    return [builder.gep(x, [builder.add(builder.load(lane), args[2])]) for lane in lanes]


@intrinsic
def ask_to_read(typing: Any, x: Any, i: Any) -> Any:
    """Fetch the cache line of x[i], which may lie outside of x, ahead of its use."""

    def code(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        byte = ir.IntType(8).as_pointer()
        kind = ir.FunctionType(ir.VoidType(), [byte, INT, INT, INT])
        ask = builder.module.declare_intrinsic("llvm.prefetch", [byte], kind)
        place = builder.bitcast(_address(context, builder, x, *args), byte)
        read, second_level, data = 0, 2, 1  # the first level holds what is computed with
        how = [ir.Constant(INT, n) for n in (read, second_level, data)]
        builder.call(ask, [place, *how])
        return context.get_dummy_value()

    return types.void(x, _index(i)), code


@intrinsic
def load_rows(typing: Any, x: Any, at: Any, skip: Any, y: Any, i: Any) -> Any:
    """Transpose: y[i + LANES j + k] = x[at[k] + skip + j] for j, k < LANES; arrays (n,)."""

    def code(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        rows, lines, size = _tile(context, builder, signature.args, args)
        values = [builder.load(row, align=size) for row in rows]
        for value, line in zip(_transpose(builder, values), lines, strict=True):
            builder.store(value, line, align=size)
        return context.get_dummy_value()

    return types.void(x, at, _index(skip), y, _index(i)), code


@intrinsic
def store_rows(typing: Any, x: Any, at: Any, skip: Any, y: Any, i: Any, factor: Any) -> Any:
    """Transpose: x[at[k] + skip + j] = factor[k] y[i + LANES j + k]; j, k < LANES; arrays (n,)."""

    def code(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        rows, lines, size = _tile(context, builder, signature.args, args)
        values = [builder.fmul(builder.load(line, align=size), args[5]) for line in lines]
        for value, row in zip(_transpose(builder, values), rows, strict=True):
            builder.store(value, row, align=size)
        return context.get_dummy_value()

    return types.void(x, at, _index(skip), y, _index(i), factor), code


def _tile(context: Any, builder: Any, kinds: Any, args: Any) -> tuple[list[Any], list[Any], int]:
    """Addresses of the vectors of x and of y in `load_rows`, and the alignment that is known."""
    lines = [
        _address(context, builder, kinds[3], args[3], builder.add(args[4], ir.Constant(LONG, j)))
        for j in range(0, LANES * LANES, LANES)
    ]
    places = _places(context, builder, kinds, args)
    rows = [builder.bitcast(place, lines[0].type) for place in places]
    return rows, lines, context.get_abi_sizeof(context.get_value_type(kinds[0].dtype))


def _transpose(builder: Any, rows: list[Any]) -> list[Any]:
    """Swaps the off-diagonal blocks of size 1, then 2, then 4."""
    rows = list(rows)
    for s in (1, 2, 4):
        upper = ir.Constant(INTS, [j if not j & s else LANES + j - s for j in range(LANES)])
        lower = ir.Constant(INTS, [j + s if not j & s else LANES + j for j in range(LANES)])
        for i in (i for i in range(LANES) if not i & s):
            pair = rows[i], rows[i + s]
            rows[i] = builder.shuffle_vector(*pair, upper)
            rows[i + s] = builder.shuffle_vector(*pair, lower)
    return rows
