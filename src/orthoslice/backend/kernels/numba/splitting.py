"""Sorting rows that do not fit the processor's cache: split by the leading bits, then sort piece by piece.

A radix sort of a long row scatters through memory once a digit. Here only the first pass does, into few places
at a time, since the leading bits of a number are its sign, its size and little more; every other pass stays
within a piece. Where all numbers are of one size there is one piece, and nothing is gained or lost.

Short rows go through the same functions with `bounds=None`. None is a type to the compiler, which then drops
the code for long rows: that code is compiled only when a long row comes.
"""

from __future__ import annotations

import numpy as np

from orthoslice.backend.array_types import Indices, Words
from orthoslice.backend.kernels.numba._compile import compiled
from orthoslice.backend.kernels.numba.sorting import (
    SHORTEST_SPLIT,
    SPLIT_BITS,
    SPLIT_DIGITS,
    add_up,
    as_key,
    decode,
    encode,
    sort_indexed,
    sort_keys,
)

# A digit's counters take as long to clear and add up as this many keys to insert.
_INSERTED = 32


def piece_bounds(longest: int, width: int) -> Indices | None:
    """Room for where the pieces of rows of keys of `width` bytes begin; None if the longest is not split."""
    if longest < SHORTEST_SPLIT:
        return None
    return np.empty((1 << 8 * width - SPLIT_BITS * SPLIT_DIGITS[width // 4 - 1]) + 1, dtype=np.int64)


@compiled
def _find_pieces(bits: Words, shift: np.unsignedinteger, bounds: Indices) -> None:
    """Where the keys of each leading digit begin, and the end of the last."""
    top = bits.dtype.type(1) << bits.dtype.type(8 * bits.itemsize - 1)
    buckets = bounds.size - 1
    # Four tables: neighbours often share a bucket, and two increments of one counter in a row would wait.
    counts = np.zeros((4, buckets), dtype=np.uint32)
    whole = bits.size - bits.size % 4
    for k in range(0, whole, 4):
        counts[0, as_key(bits[k], top) >> shift] += 1
        counts[1, as_key(bits[k + 1], top) >> shift] += 1
        counts[2, as_key(bits[k + 2], top) >> shift] += 1
        counts[3, as_key(bits[k + 3], top) >> shift] += 1
    for k in range(whole, bits.size):
        counts[0, as_key(bits[k], top) >> shift] += 1
    total = np.int64(0)
    for digit in range(buckets):
        bounds[digit] = total
        total += counts[0, digit] + counts[1, digit] + counts[2, digit] + counts[3, digit]
    bounds[buckets] = total


@compiled
def _count(keys: Words, starts: Words) -> None:
    """Where the keys of each digit begin, as in :func:`encode`; 2 or 5 digits."""
    mask, w = keys.dtype.type(starts.shape[1] - 1), keys.dtype.type(SPLIT_BITS)
    starts[:, :] = 0
    for k in range(keys.size):
        key = keys[k]
        starts[0, key & mask] += 1
        starts[1, (key >> w) & mask] += 1
        if starts.shape[0] > 2:
            key = key >> (w + w)
            starts[2, key & mask] += 1
            starts[3, (key >> w) & mask] += 1
            starts[4, (key >> (w + w)) & mask] += 1
    add_up(starts)


@compiled
def _insert(keys: Words, out: Words) -> None:
    """Sort a few keys into `out`, which may be `keys`."""
    for k in range(keys.size):
        key, place = keys[k], k
        while place > 0 and out[place - 1] > key:
            out[place] = out[place - 1]
            place -= 1
        out[place] = key


@compiled
def _insert_indexed(keys: Words, index: Words, out: Words, out_index: Words) -> None:
    """The same for keys with their indices; equal keys keep their order."""
    for k in range(keys.size):
        key, own, place = keys[k], index[k], k
        while place > 0 and out[place - 1] > key:
            out[place] = out[place - 1]
            out_index[place] = out_index[place - 1]
            place -= 1
        out[place] = key
        out_index[place] = own


@compiled
def sort_row(bits: Words, keys: Words, spare: Words, starts: Words, bounds: Indices | None) -> Words:
    """Sort the numbers of a row whose bits are given; returns whichever of `keys` and `spare` holds their bits.

    `starts` come from :func:`counters`, `bounds` from :func:`piece_bounds`.
    """
    if bounds is None or bits.size < SHORTEST_SPLIT:
        encode(bits, keys, starts)
        ordered = sort_keys(keys, spare, starts)
    else:
        ordered = _sort_pieces(bits, keys, spare, starts, bounds)
    decode(ordered)
    return ordered


@compiled
def _sort_pieces(bits: Words, keys: Words, spare: Words, starts: Words, bounds: Indices) -> Words:
    digits = starts.shape[0]
    top = bits.dtype.type(1) << bits.dtype.type(8 * bits.itemsize - 1)
    shift = bits.dtype.type(SPLIT_BITS * digits)
    _find_pieces(bits, shift, bounds)
    piece: int | np.unsignedinteger
    place = bounds.copy()
    for k in range(bits.size):
        key = as_key(bits[k], top)
        piece = key >> shift
        keys[place[piece]] = key
        place[piece] += 1
    out = keys if digits % 2 == 0 else spare
    for piece in range(bounds.size - 1):
        first, stop = bounds[piece], bounds[piece + 1]
        if stop - first <= _INSERTED * digits:
            _insert(keys[first:stop], out[first:stop])
        else:
            _count(keys[first:stop], starts)
            sort_keys(keys[first:stop], spare[first:stop], starts)
    return out


@compiled
def order_row(
    bits: Words,
    keys: Words,
    spare: Words,
    index: Words,
    spare_index: Words,
    starts: Words,
    bounds: Indices | None,
) -> tuple[Words, Words]:
    """As :func:`sort_row`, with the place every number came from; equal numbers keep their order."""
    if bits.size <= _INSERTED:
        top = bits.dtype.type(1) << bits.dtype.type(8 * bits.itemsize - 1)
        for k in range(bits.size):
            keys[k] = as_key(bits[k], top)
            index[k] = k
        _insert_indexed(keys, index, keys, index)
        ordered, places = keys, index
    elif bounds is None or bits.size < SHORTEST_SPLIT:
        encode(bits, keys, starts)
        for k in range(index.size):
            index[k] = k
        ordered, places = sort_indexed(keys, spare, index, spare_index, starts)
    else:
        ordered, places = _order_pieces(bits, keys, spare, index, spare_index, starts, bounds)
    decode(ordered)
    return ordered, places


@compiled
def _order_pieces(
    bits: Words, keys: Words, spare: Words, index: Words, spare_index: Words, starts: Words, bounds: Indices
) -> tuple[Words, Words]:
    digits = starts.shape[0]
    top = bits.dtype.type(1) << bits.dtype.type(8 * bits.itemsize - 1)
    shift = bits.dtype.type(SPLIT_BITS * digits)
    _find_pieces(bits, shift, bounds)
    piece: int | np.unsignedinteger
    place = bounds.copy()
    for k in range(bits.size):
        key = as_key(bits[k], top)
        piece = key >> shift
        keys[place[piece]] = key
        index[place[piece]] = k
        place[piece] += 1
    out, out_index = (keys, index) if digits % 2 == 0 else (spare, spare_index)
    for piece in range(bounds.size - 1):
        a, b = bounds[piece], bounds[piece + 1]
        if b - a <= _INSERTED * digits:
            _insert_indexed(keys[a:b], index[a:b], out[a:b], out_index[a:b])
        else:
            _count(keys[a:b], starts)
            sort_indexed(keys[a:b], spare[a:b], index[a:b], spare_index[a:b], starts)
    return out, out_index
