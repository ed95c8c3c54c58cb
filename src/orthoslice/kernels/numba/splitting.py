"""Sorting rows that do not fit the processor's cache: split by the leading bits, then sort piece by piece.

A radix sort of a long row scatters through memory once a digit. Here only the first pass does, into few places
at a time, since the leading bits of a number are its sign, its size and little more; every other pass stays
within a piece. Where all numbers are of one size there is one piece, and nothing is gained or lost.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from orthoslice.kernels.numba._compile import compiled
from orthoslice.kernels.numba.sorting import (
    SHORTEST_SPLIT,
    SPLIT_BITS,
    add_up,
    as_key,
    encode,
    sort_indexed,
    sort_keys,
)

# A digit's counters take as long to clear and add up as this many keys to insert.
_INSERTED = 32


@compiled
def _piece_starts(bits: Any, shift: Any) -> Any:
    """Where the keys of each leading digit begin, and the end of the last."""
    top = bits.dtype.type(1) << bits.dtype.type(8 * bits.itemsize - 1)
    buckets = 1 << (8 * bits.itemsize - np.int64(shift))
    # Four tables: neighbours are often of one size, and a counter must not wait for itself.
    counts = np.zeros((4, buckets), dtype=np.uint32)
    whole = bits.size - bits.size % 4
    for k in range(0, whole, 4):
        counts[0, as_key(bits[k], top) >> shift] += 1
        counts[1, as_key(bits[k + 1], top) >> shift] += 1
        counts[2, as_key(bits[k + 2], top) >> shift] += 1
        counts[3, as_key(bits[k + 3], top) >> shift] += 1
    for k in range(whole, bits.size):
        counts[0, as_key(bits[k], top) >> shift] += 1
    starts = np.empty(buckets + 1, dtype=np.int64)
    total = np.int64(0)
    for digit in range(buckets):
        starts[digit] = total
        total += counts[0, digit] + counts[1, digit] + counts[2, digit] + counts[3, digit]
    starts[buckets] = total
    return starts


@compiled
def _count(keys: Any, starts: Any) -> None:
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
def _insert(keys: Any, out: Any) -> None:
    """Sort a few keys into `out`, which may be `keys`."""
    for k in range(keys.size):
        key, place = keys[k], k
        while place > 0 and out[place - 1] > key:
            out[place] = out[place - 1]
            place -= 1
        out[place] = key


@compiled
def _insert_indexed(keys: Any, index: Any, out: Any, out_index: Any) -> None:
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
def sort_row(bits: Any, keys: Any, spare: Any, starts: Any) -> Any:
    """Encode a row of any length and sort it; returns whichever of the two arrays holds the keys in the end."""
    if bits.size < SHORTEST_SPLIT:
        encode(bits, keys, starts)
        return sort_keys(keys, spare, starts)
    digits = starts.shape[0]
    top = bits.dtype.type(1) << bits.dtype.type(8 * bits.itemsize - 1)
    shift = bits.dtype.type(SPLIT_BITS * digits)
    bounds = _piece_starts(bits, shift)
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
def order_row(bits: Any, keys: Any, spare: Any, index: Any, spare_index: Any, starts: Any) -> Any:
    """As :func:`sort_row`, with the place every key came from; equal keys keep their order."""
    if bits.size < SHORTEST_SPLIT:
        encode(bits, keys, starts)
        for k in range(index.size):
            index[k] = k
        return sort_indexed(keys, spare, index, spare_index, starts)
    digits = starts.shape[0]
    top = bits.dtype.type(1) << bits.dtype.type(8 * bits.itemsize - 1)
    shift = bits.dtype.type(SPLIT_BITS * digits)
    bounds = _piece_starts(bits, shift)
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
