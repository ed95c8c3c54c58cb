"""Vector code that no compiler finds in a loop: networks of exchanges and products held in registers.

Columns of a buffer `(rows, lanes)` lie side by side: a row is one vector of BYTES bytes, whose numbers go
through the same steps. The processor need not have vectors of that length: the compiler cuts them. The plain
references are those of `sorting.sort_columns`, of a matrix product, and of `sliced.line_cost`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

BYTES = 64
"""Of a row: the longest vector registers there are."""

Network: TypeAlias = Sequence[tuple[int, int]]
"""Pairs of places; each step puts the smaller number of both into the first."""

# A. Green's network for 16 numbers (Knuth, 5.3.4).
SORTING_16: Network = (
    *((0, 13), (1, 12), (2, 15), (3, 14), (4, 8), (5, 6), (7, 11), (9, 10)),
    *((0, 5), (1, 7), (2, 9), (3, 4), (6, 13), (8, 14), (10, 15), (11, 12)),
    *((0, 1), (2, 3), (4, 5), (6, 8), (7, 9), (10, 11), (12, 13), (14, 15)),
    *((0, 2), (1, 3), (4, 10), (5, 11), (6, 7), (8, 9), (12, 14), (13, 15)),
    *((1, 2), (3, 12), (4, 6), (5, 7), (8, 10), (9, 11), (13, 14)),
    *((1, 4), (2, 6), (5, 8), (7, 10), (9, 13), (11, 14)),
    *((2, 4), (3, 6), (9, 12), (11, 13)),
    *((3, 5), (6, 8), (7, 9), (10, 12)),
    *((3, 4), (5, 6), (7, 8), (9, 10), (11, 12)),
    *((6, 7), (8, 9)),
)


def halving(count: int) -> Network:
    """The last steps of a merge: places half of `count` apart, then a quarter, down to neighbours.

    Examples
    --------
    >>> halving(4)
    [(0, 2), (1, 3), (0, 1), (2, 3)]
    """
    steps, apart = [], count // 2
    while apart:
        steps += [(i, i + apart) for i in range(count) if not i & apart]
        apart //= 2
    return steps


def folding(count: int) -> Network:
    """The first steps of a merge, whose upper half of places is counted from the end: see :func:`exchanger`.

    Examples
    --------
    >>> folding(4)
    [(0, 2), (1, 3), (0, 1), (3, 2)]
    """
    half = count // 2
    steps = [(k, half + k) for k in range(half)]
    for i, j in halving(half):
        steps += [(i, j), (half + j, half + i)]
    return steps


def exchanger(network: Network, *, folded: bool = False) -> Any:
    """`exchange(buffer, index, first, step, last)`: a network on rows `first`, `first + step`, ... of a buffer.

    If `folded`, the second half of them are `last`, `last - step`, ... Rows of `index` move along, unless it is
    None; they are unsigned integers as wide as the numbers, and decide between equal ones.
    """
    count = 1 + max(max(pair) for pair in network)

    @intrinsic  # type: ignore[untyped-decorator]
    def exchange(typing_context: Any, buffer: Any, index: Any, first: Any, step: Any, last: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            first, step, last = arguments[2:]
            half = count // 2 if folded else count
            rows = []
            for k in range(count):
                away = builder.mul(step, _integer(context, k % half))
                rows.append((builder.add if k < half else builder.sub)(first if k < half else last, away))
            tables = [0] if signature.args[1] == types.none else [0, 1]
            places = [
                [_Row(context, builder, signature.args[t], arguments[t], row) for row in rows] for t in tables
            ]
            held = [[place.load() for place in table] for table in places]
            for i, j in network:
                is_less = builder.fcmp_ordered("<", held[0][i], held[0][j])
                if len(held) > 1:
                    tie = builder.fcmp_ordered("==", held[0][i], held[0][j])
                    is_before = builder.icmp_unsigned("<", held[1][i], held[1][j])
                    is_less = builder.or_(is_less, builder.and_(tie, is_before))
                for table in held:
                    low, high = table[i], table[j]
                    table[i], table[j] = builder.select(is_less, low, high), builder.select(is_less, high, low)
            for table, values in zip(places, held, strict=True):
                for place, value in zip(table, values, strict=True):
                    place.store(value)
            return context.get_dummy_value()

        return types.void(buffer, index, types.intp, types.intp, types.intp), generate

    return exchange


def projector(count: int) -> Any:
    """`project(points, first, theta, out)`: rows `first` to `first + count` of `points @ theta`."""

    @intrinsic  # type: ignore[untyped-decorator]
    def project(typing_context: Any, points: Any, first: Any, theta: Any, out: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            table = context.make_array(signature.args[0])(context, builder, arguments[0])
            dim = builder.extract_value(table.shape, 1)
            rows = [builder.add(arguments[1], _integer(context, k)) for k in range(count)]
            starts = [builder.mul(row, dim) for row in rows]
            places = [_Row(context, builder, signature.args[3], arguments[3], row) for row in rows]
            sums = [cgutils.alloca_once_value(builder, ir.Constant(places[0].kind, None)) for _ in rows]
            with cgutils.for_range(builder, dim) as loop:
                direction = _Row(context, builder, signature.args[2], arguments[2], loop.index).load()
                for start, total in zip(starts, sums, strict=True):
                    number = builder.load(builder.gep(table.data, [builder.add(start, loop.index)]))
                    product = builder.fmul(
                        _splat(builder, number, direction.type), direction, flags=["contract"]
                    )
                    builder.store(builder.fadd(builder.load(total), product, flags=["contract"]), total)
            for place, total in zip(places, sums, strict=True):
                place.store(builder.load(total))
            return context.get_dummy_value()

        return types.void(points, types.intp, theta, out), generate

    return project


@intrinsic  # type: ignore[untyped-decorator]
def lanes_of(typing_context: Any, buffer: Any) -> Any:
    """How many numbers of the buffer's type a row has, as a constant."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return _integer(context, BYTES * 8 // signature.args[0].dtype.bitwidth)

    return types.intp(buffer), generate


def summer(power: int) -> Any:
    """`add(a, b, i, j, count, mass, sums)`: add `mass |a[i + k] - b[j + k]|^power` for k < count to `sums`."""

    @intrinsic  # type: ignore[untyped-decorator]
    def add(typing_context: Any, a: Any, b: Any, i: Any, j: Any, count: Any, mass: Any, sums: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            i, j, count, mass = arguments[2:6]
            lanes = BYTES * 8 // signature.args[0].dtype.bitwidth
            kind = ir.VectorType(ir.DoubleType(), lanes)
            sums = context.make_array(signature.args[6])(context, builder, arguments[6])
            place = builder.bitcast(sums.data, kind.as_pointer())
            total = cgutils.alloca_once_value(builder, ir.Constant(kind, None))
            with cgutils.for_range(builder, count) as loop:
                sides = [
                    _Row(context, builder, signature.args[t], arguments[t], builder.add(at, loop.index)).load()
                    for t, at in ((0, i), (1, j))
                ]
                gap = builder.fsub(*sides)
                if gap.type != kind:
                    gap = builder.fpext(gap, kind)
                if power == 2:
                    cost = builder.fmul(gap, gap, flags=["contract"])
                else:
                    zero = ir.Constant(kind, None)
                    cost = builder.select(builder.fcmp_ordered("<", gap, zero), builder.fsub(zero, gap), gap)
                builder.store(builder.fadd(builder.load(total), cost, flags=["contract"]), total)
            part = builder.fmul(builder.load(total), _splat(builder, mass, kind))
            builder.store(builder.fadd(builder.load(place, align=8), part), place, align=8)
            return context.get_dummy_value()

        return types.void(a, b, types.intp, types.intp, types.intp, types.float64, sums), generate

    return add


class _Row:
    """A row of a buffer, to be loaded and stored as a vector."""

    def __init__(self, context: Any, builder: Any, array: Any, value: Any, row: Any) -> None:
        self._builder, self._align = builder, array.dtype.bitwidth // 8
        lanes = BYTES // self._align
        self.kind = ir.VectorType(context.get_data_type(array.dtype), lanes)
        data = context.make_array(array)(context, builder, value).data
        start = builder.gep(data, [builder.mul(row, _integer(context, lanes))])
        self._place = builder.bitcast(start, self.kind.as_pointer())

    def load(self) -> Any:
        return self._builder.load(self._place, align=self._align)

    def store(self, value: Any) -> None:
        self._builder.store(value, self._place, align=self._align)


def _integer(context: Any, value: int) -> Any:
    return ir.Constant(context.get_value_type(types.intp), value)


def _splat(builder: Any, number: Any, kind: Any) -> Any:
    """A vector of equal numbers."""
    one = builder.insert_element(ir.Constant(kind, ir.Undefined), number, ir.Constant(ir.IntType(32), 0))
    return builder.shuffle_vector(one, one, ir.Constant(ir.VectorType(ir.IntType(32), kind.count), None))
