"""The order of float64 projections in which numbers that rounding cannot tell apart keep the order they had.

Numbers are rounded to float32 and sorted. Short rows are sorted by their leading bits, each number in one word
with its index, which leaves few neighbours in disorder; those are exchanged. Only numbers that are next to each
other there, to the accuracy of float32, are looked up in full and put in order by all their digits.

Longer rows and crowded ones take a radix sort, and `room` for it: the `bounds` of
:mod:`orthoslice.backend.kernels.numba.splitting` for keys of 32 and of 64 bits. Without room a row that needs
some is left, and the code for it is not compiled, as there: most clouds have no such row.

The plain reference is that of `tied_order` in `orthoslice.couplings.orders`.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from orthoslice.backend.array_types import Floats, Indices, Words
from orthoslice.backend.kernels.numba._compile import compiled
from orthoslice.backend.kernels.numba.sorting import (
    LONGEST_NARROW,
    NARROW_BITS,
    WIDE_BITS,
    add_up,
    as_key,
    counters,
    sort_packed,
)
from orthoslice.backend.kernels.numba.splitting import order_row, piece_bounds

# Up to this length the leading 22 or 24 bits of a float32 (sign, exponent, half of the fraction) tell most
# neighbours apart, and a pass more costs more than the exchanges. Measured on Zen 4.
_LONGEST_PACKED = 1 << 12

# Exchanges a number beyond which a row is too crowded for its leading bits.
_EXCHANGES = 4

# Longer rows, and longer runs of close numbers, are sorted by radix.
_LONGEST_INSERTED = 48

_TOP = np.uint32(1 << 31)
_INDEX = np.uint64((1 << 32) - 1)

# Two numbers were rounded to float32, by half a unit each: relative to the larger, and for the smallest ones.
_ROUNDED = 2.0**-23
_SMALLEST = 2.0**-148


@compiled
def _pack(words: Words, packed: Words, starts: Words) -> None:
    """Keys in the order of the float32 numbers whose bits are given, above their indices.

    Counts their digits where they are too many to be inserted.
    """
    if words.size <= _LONGEST_INSERTED:
        for k in range(words.size):
            packed[k] = (np.uint64(as_key(words[k], _TOP)) << np.uint64(32)) | np.uint64(k)
        return
    w = np.uint64(WIDE_BITS if starts.shape[1] == 1 << WIDE_BITS else NARROW_BITS)
    mask, digits = np.uint64(starts.shape[1] - 1), starts.shape[0]
    shift = np.uint64(64) - w - w
    starts[:, :] = 0
    for k in range(words.size):
        key = (np.uint64(as_key(words[k], _TOP)) << np.uint64(32)) | np.uint64(k)
        packed[k] = key
        starts[digits - 1, key >> (shift + w)] += 1
        starts[digits - 2, (key >> shift) & mask] += 1
        if digits > 2:
            starts[0, (key >> (shift - w)) & mask] += 1
    add_up(starts)


@compiled
def _settle(packed: Words) -> bool:
    """Insert every word among those before it; False where that takes too long."""
    left = (_LONGEST_INSERTED if packed.size <= _LONGEST_INSERTED else _EXCHANGES) * packed.size
    for k in range(1, packed.size):
        word, place = packed[k], k
        while place > 0 and packed[place - 1] > word:
            packed[place] = packed[place - 1]
            place -= 1
        packed[place] = word
        left -= k - place
        if left < 0:
            return False
    return True


@compiled
def _order_packed(words: Words, packed: Words, spare: Words, starts: Words, order: Indices) -> bool:
    """Sort bits of float32 numbers in place and say where they came from; False where they are too crowded."""
    _pack(words, packed, starts)
    ordered = packed if words.size <= _LONGEST_INSERTED else sort_packed(packed, spare, starts)
    if not _settle(ordered):
        return False
    for k in range(words.size):
        key = np.uint32(ordered[k] >> np.uint64(32))
        words[k] = key ^ _TOP if key & _TOP else ~key
        order[k] = np.int64(ordered[k] & _INDEX)
    return True


@compiled
def _is_close(low: float, high: float, reach: float) -> bool:
    """Whether two numbers, given rounded to float32, may tie or be in the wrong order."""
    a, b = np.float64(low), np.float64(high)
    # The difference of two infinities is NaN: `not ... >` counts it as close.
    return not b - a > reach + _ROUNDED * max(abs(a), abs(b)) + _SMALLEST


@compiled
def _insert(values: Floats, order: Indices) -> None:
    """Sort numbers with their indices, of which those of equal numbers are in order."""
    for k in range(1, values.size):
        value, own, place = values[k], order[k], k
        while place > 0 and values[place - 1] > value:
            values[place] = values[place - 1]
            order[place] = order[place - 1]
            place -= 1
        values[place] = value
        order[place] = own


@compiled
def _sort_by_radix(values: Floats, order: Indices, bounds: Indices | None) -> None:
    """The same for many numbers."""
    n = values.size
    bits = values.copy().view(np.uint64)
    keys, spare = np.empty(n, dtype=np.uint64), np.empty(n, dtype=np.uint64)
    place, rest = np.empty(n, dtype=np.uint32), np.empty(n, dtype=np.uint32)
    _, found = order_row(bits, keys, spare, place, rest, counters(bits.reshape(1, n)), bounds)
    before_values, before_order = values.copy(), order.copy()
    for k in range(n):
        values[k] = before_values[found[k]]
        order[k] = before_order[found[k]]


@compiled
def _sort_indices(order: Indices) -> None:
    """Sort many indices, by as many digits as the largest has."""
    n, largest, digits = order.size, 0, 1
    for k in range(n):
        largest = max(largest, order[k])
    while largest >> (NARROW_BITS * digits) > 0:
        digits += 1
    starts = np.zeros((digits, 1 << NARROW_BITS), dtype=np.uint32)
    packed, spare = np.empty(n, dtype=np.uint64), np.empty(n, dtype=np.uint64)
    mask, shift = (1 << NARROW_BITS) - 1, np.uint64(64 - NARROW_BITS * digits)
    for k in range(n):
        packed[k] = np.uint64(order[k]) << shift
        for d in range(digits):
            starts[d, (order[k] >> (NARROW_BITS * d)) & mask] += 1
    add_up(starts)
    ordered = sort_packed(packed, spare, starts)
    for k in range(n):
        order[k] = np.int64(ordered[k] >> shift)


@compiled
def _join_ties(
    values: Floats, rounding: Floats, order: Indices, room: tuple[Indices | None, Indices | None] | None
) -> bool:
    """Put the indices of sorted numbers in order where rounding may have separated or exchanged equals.

    Overwrites the numbers. Returns False if a tie is too long to insert and `room` is None.
    """
    n, k = values.size, 1
    while k < n:
        first, equal = k - 1, True
        while k < n and values[k] - values[k - 1] <= rounding[order[k - 1]] + rounding[order[k]]:
            equal = equal and values[k] == values[k - 1]
            k += 1
        if not equal:
            if k - first <= _LONGEST_INSERTED:
                for j in range(first, k):
                    values[j] = order[j]
                _insert(values[first:k], order[first:k])
            elif room is None:
                return False
            else:
                _sort_indices(order[first:k])
        k += 1
    return True


@compiled
def _settle_run(
    row: Floats,
    rounding: Floats,
    values: Floats,
    order: Indices,
    room: tuple[Indices | None, Indices | None] | None,
) -> bool:
    """Order numbers of a row that are close to each other; their indices are in order where they are equal.

    Returns False if the run is too long to insert and `room` is None.
    """
    in_order = True
    for k in range(order.size):
        values[k] = row[order[k]]
        in_order = in_order and (k == 0 or values[k - 1] <= values[k])
    if not in_order:
        if order.size <= _LONGEST_INSERTED:
            _insert(values, order)
        elif room is None:
            return False
        else:
            _sort_by_radix(values, order, room[1])
    return _join_ties(values, rounding, order, room)


@compiled
def _are_equal(row: Floats, order: Indices, first: int, stop: int) -> bool:
    """Whether the numbers from `first` up to `stop` are the same, as those of equal points mostly are."""
    k = first + 1
    while k < stop and row[order[k]] == row[order[first]]:
        k += 1
    return k == stop


@compiled
def _settle_close(
    row: Floats,
    narrow: Floats,
    rounding: Floats,
    reach: float,
    values: Floats,
    order: Indices,
    room: tuple[Indices | None, Indices | None] | None,
) -> bool:
    """Order runs of close numbers by their float64 values; False if that needs `room` and it is None."""
    n, n_close = row.size, 0
    for k in range(1, n):
        # A sum without a branch is vector code; in most short rows it is 0.
        n_close += _is_close(narrow[k - 1], narrow[k], reach)
    k = 1 if n_close > 0 else n
    while k < n:
        first = k - 1
        while k < n and _is_close(narrow[k - 1], narrow[k], reach):
            k += 1
        is_settled = k - first == 1 or _are_equal(row, order, first, k)
        if not (is_settled or _settle_run(row, rounding, values[first:k], order[first:k], room)):
            return False
        k += 1
    return True


@compiled
def order_rows(
    rows: Floats,
    rounding: Floats,
    reach: Floats,
    index: Indices,
    done: int,
    room: tuple[Indices | None, Indices | None] | None,
) -> Any:
    """Order rows from `done` on, up to the first that needs `room` if it is None; returns how many are done."""
    n, batch = rows.shape[1], rounding.shape[0]
    narrow, values = np.empty(n, dtype=np.float32), np.empty(n)
    words = narrow.view(np.uint32)
    is_packed = n <= _LONGEST_PACKED
    packed, spare = np.empty(n, dtype=np.uint64), np.empty(n, dtype=np.uint64)
    bits = NARROW_BITS if n <= LONGEST_NARROW else WIDE_BITS
    starts = np.empty((3 if bits == NARROW_BITS else 2, 1 << bits), dtype=np.uint32)
    if room is not None:
        keys, spare_keys = np.empty(n, dtype=np.uint32), np.empty(n, dtype=np.uint32)
        place, rest = np.empty(n, dtype=np.uint32), np.empty(n, dtype=np.uint32)
        key_starts = counters(words.reshape(1, n))
    for s in range(done, rows.shape[0]):
        b, row, order = s % batch, rows[s], index[s]
        for k in range(n):
            narrow[k] = row[k]
        if not (is_packed and _order_packed(words, packed, spare, starts, order)):
            if room is None:
                return s
            found_keys, found = order_row(words, keys, spare_keys, place, rest, key_starts, room[0])
            for k in range(n):
                words[k] = found_keys[k]
                order[k] = found[k]
        if not _settle_close(row, narrow, rounding[b], reach[b], values, order, room):
            return s
    return rows.shape[0]


def order_with_ties(projections: Floats, rounding: Floats) -> Indices:
    """The order of every row of `projections (slices * batch, n)`, int64, the batch inside.

    `rounding (batch, n)` is how far off the projections of each point may be. Neighbours that are no further
    apart than both may be off are a tie, and so are those of a chain of such; ties keep their order.

    Examples
    --------
    >>> rows = np.array([[2.0, -1.0, 2.0 - 1e-15, 0.0]])
    >>> order_with_ties(rows, np.zeros((1, 4))).tolist(), order_with_ties(rows, np.full((1, 4), 1e-15)).tolist()
    ([[1, 3, 2, 0]], [[1, 3, 0, 2]])
    """
    index = np.empty(projections.shape, dtype=np.int64)
    rows, rounding = np.ascontiguousarray(projections), np.ascontiguousarray(rounding)
    n, reach = rows.shape[1], 2.0 * rounding.max(axis=1)
    done = order_rows(rows, rounding, reach, index, 0, None) if n <= _LONGEST_PACKED else 0
    if done < len(rows):
        order_rows(rows, rounding, reach, index, done, (piece_bounds(n, 4), piece_bounds(n, 8)))
    return index
