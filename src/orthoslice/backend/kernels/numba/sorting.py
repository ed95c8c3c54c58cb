"""Sorting many short or a few long rows of floating-point numbers.

Short rows lie side by side as the columns of a buffer and go through one sorting network: a step compares whole
rows of the buffer, vectors whose numbers are all treated alike. Long rows are sorted one by one, by radix, 8 to
11 bits at a time, on integer keys in the order of the numbers. The radix sort is stable.
"""

from __future__ import annotations

import numpy as np

from orthoslice.backend.array_types import Floats, Words
from orthoslice.backend.kernels.numba._compile import compiled
from orthoslice.backend.kernels.numba.lanes import SORTING_16, exchanger, folding, halving

WIDE_BITS, SPLIT_BITS, NARROW_BITS = 11, 10, 8

# Crossovers, measured on Zen 4. Longer rows are sorted in fewer passes of more buckets, keys of 64 bits from
# twice this length on; still longer ones fall out of a core's cache and are split first.
LONGEST_NARROW = 640
SHORTEST_SPLIT = 1 << 18

SPLIT_DIGITS = (2, 5)
"""Digits of SPLIT_BITS, of keys of 32 and of 64 bits, that are left to sort within a piece."""

_SHORT = 16
"""Rows of a buffer that are sorted, and merged in the end, within registers."""

_sort_16 = exchanger(SORTING_16)
_fold_2, _fold_4, _fold_8 = (exchanger(folding(count), folded=True) for count in (2, 4, 8))
_halve_2, _halve_4, _halve_8, _halve_16 = (exchanger(halving(count)) for count in (2, 4, 8, _SHORT))


@compiled
def put_row(row: Floats | Words, out: Floats | Words) -> None:
    """`out[:] = row`, which would take seconds to compile: it could say that lengths differ."""
    for k in range(row.size):
        out[k] = row[k]


@compiled
def column_rows(n: int) -> int:
    """How many rows a buffer for columns of n numbers has: a power of two."""
    rows = _SHORT
    while rows < n:
        rows *= 2
    return rows


@compiled
def sort_columns(buffer: Floats, index: Words | None, n: int) -> None:
    """Sort every column of `buffer (rows, lanes)` in place: a network of merges, several steps at a time.

    There are :func:`column_rows` rows; those from the n-th on hold infinity. Rows of an index, if there is
    one, are moved along, and equal numbers are ordered by it: so the sort is stable.

    Examples
    --------
    >>> a = np.full((16, 8), np.inf)
    >>> a[:3, 0] = 3, 1, 2
    >>> sort_columns(a, None, 3)
    >>> a[:4, 0].tolist()
    [1.0, 2.0, 3.0, inf]
    """
    for first in range(0, n, _SHORT):
        _sort_16(buffer, index, first, 1, 0)
    half = _SHORT
    while half < n:
        parts = min(half // _SHORT, 4)
        step = half // parts
        for first in range(0, n, 2 * half):
            last = first + 2 * half - 1
            for k in range(step):
                if parts == 4:
                    _fold_8(buffer, index, first + k, step, last - k)
                elif parts == 2:
                    _fold_4(buffer, index, first + k, step, last - k)
                else:
                    _fold_2(buffer, index, first + k, step, last - k)
        apart = step // 2
        while apart >= _SHORT:
            _halve(buffer, index, n, apart)
            apart //= min(2 * apart // _SHORT, 8)
        for first in range(0, n, _SHORT):
            _halve_16(buffer, index, first, 1, 0)
        half *= 2


@compiled
def _halve(buffer: Floats, index: Words | None, n: int, apart: int) -> None:
    """Exchange rows that far apart, and where rows are left for another step, half and a quarter as far."""
    parts = min(2 * apart // _SHORT, 8)
    step = 2 * apart // parts
    for first in range(0, n, 2 * apart):
        for k in range(first, first + step):
            if parts == 8:
                _halve_8(buffer, index, k, step, 0)
            elif parts == 4:
                _halve_4(buffer, index, k, step, 0)
            else:
                _halve_2(buffer, index, k, step, 0)


@compiled
def counters(rows: Words) -> Words:
    """Room to count the digits of keys in `rows (slices, n)` of unsigned integers: `(digits, buckets)`.

    Clearing and adding up 2048 buckets a digit only pays on rows that are not much shorter than that.
    """
    words = rows.itemsize // 4
    if rows.shape[1] >= SHORTEST_SPLIT:
        return np.empty((SPLIT_DIGITS[words - 1], 1 << SPLIT_BITS), dtype=np.uint32)
    if rows.shape[1] <= LONGEST_NARROW * words:
        return np.empty((4 * words, 1 << NARROW_BITS), dtype=np.uint32)
    return np.empty((3 * words, 1 << WIDE_BITS), dtype=np.uint32)


@compiled
def _digit_bits(starts: Words) -> int:
    if starts.shape[1] == 1 << SPLIT_BITS:
        return SPLIT_BITS
    return WIDE_BITS if starts.shape[1] == 1 << WIDE_BITS else NARROW_BITS


@compiled
def as_key(word: np.unsignedinteger, top: np.unsignedinteger) -> np.unsignedinteger:
    """A key in the order of the floating-point number whose bits are given; `top` is the sign bit alone."""
    # Negative numbers: all bits turned, since their magnitude counts backwards. Others: the sign bit.
    # Minus zero counts as zero, as it does to a comparison.
    return ~word if word > top else word | top


@compiled
def encode(bits: Words, keys: Words, starts: Words) -> None:
    """Unsigned keys in the order of the floating-point numbers whose bits are given.

    Also counts where the keys of each digit begin, in the same reading; `starts` come from :func:`counters`.
    """
    unsigned = bits.dtype.type
    top = unsigned(1) << unsigned(8 * bits.itemsize - 1)
    digits, w = starts.shape[0], unsigned(_digit_bits(starts))
    mask = unsigned(starts.shape[1] - 1)
    starts[:, :] = 0
    for k in range(bits.size):
        key = as_key(bits[k], top)
        keys[k] = key
        # Written out: a loop over the digits here costs as much as the sorting.
        starts[0, key & mask] += 1
        starts[1, (key >> w) & mask] += 1
        starts[2, (key >> (w + w)) & mask] += 1
        if digits > 3:
            key = key >> (w + w + w)
            starts[3, key & mask] += 1
            if digits > 4:
                starts[4, (key >> w) & mask] += 1
                starts[5, (key >> (w + w)) & mask] += 1
                if digits > 6:
                    key = key >> (w + w + w)
                    starts[6, key & mask] += 1
                    starts[7, (key >> w) & mask] += 1
    add_up(starts)


@compiled
def add_up(starts: Words) -> None:
    """Turn the counts of every digit, `(digits, buckets)`, into the places where its keys begin."""
    for d in range(starts.shape[0]):
        total = starts.dtype.type(0)
        for digit in range(starts.shape[1]):
            count = starts[d, digit]
            starts[d, digit] = total
            total += count


@compiled
def decode(keys: Words) -> None:
    """Undo :func:`encode` in place."""
    top = keys.dtype.type(1) << keys.dtype.type(8 * keys.itemsize - 1)
    for k in range(keys.size):
        keys[k] = keys[k] ^ top if keys[k] & top else ~keys[k]


@compiled
def sort_keys(keys: Words, spare: Words, starts: Words) -> Words:
    """Sort encoded keys by radix; returns whichever of the two arrays holds them in the end."""
    mask, w = keys.dtype.type(starts.shape[1] - 1), _digit_bits(starts)
    for d in range(starts.shape[0]):
        shift = keys.dtype.type(w * d)
        for k in range(keys.size):
            key = keys[k]
            digit = (key >> shift) & mask
            spare[starts[d, digit]] = key
            starts[d, digit] += 1
        keys, spare = spare, keys
    return keys


@compiled
def sort_indexed(
    keys: Words, spare: Words, index: Words, spare_index: Words, starts: Words
) -> tuple[Words, Words]:
    """Sort encoded keys and carry their indices along; returns the arrays that hold both in the end."""
    mask, w = keys.dtype.type(starts.shape[1] - 1), _digit_bits(starts)
    for d in range(starts.shape[0]):
        shift = keys.dtype.type(w * d)
        for k in range(keys.size):
            key = keys[k]
            digit = (key >> shift) & mask
            place = starts[d, digit]
            spare[place] = key
            spare_index[place] = index[k]
            starts[d, digit] += 1
        keys, spare = spare, keys
        index, spare_index = spare_index, index
    return keys, index


@compiled
def sort_packed(packed: Words, spare: Words, starts: Words) -> Words:
    """Sort words of 64 bits by as many leading digits as were counted; returns the array that holds them."""
    mask, w, digits = np.uint64(starts.shape[1] - 1), _digit_bits(starts), starts.shape[0]
    for d in range(digits):
        shift = np.uint64(64 - w * (digits - d))
        for k in range(packed.size):
            word = packed[k]
            digit = (word >> shift) & mask
            spare[starts[d, digit]] = word
            starts[d, digit] += 1
        packed, spare = spare, packed
    return packed
