"""Rough order: numbers in the order of their leading bits, those below in any order."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from orthoslice.backend.array_types import Floats

ROUGH_BITS = 15
"""The sign, the exponent, and as many digits more as a core's cache has counters for."""


class RowInPieces(NamedTuple):
    """One row in pieces, of which every number weighs the same."""

    pieces: Sequence[Floats]
    """In rough order each: see `orthoslice.costs.pieces.order_roughly`."""
    unit: int
    """What a number weighs."""
    skipped: int = 0
    """The mass of the least numbers, which is left out."""
    ends: tuple[tuple[float, int], tuple[float, int]] = ((0.0, 0), (0.0, 0))
    """Two more numbers, each with its count: all numbers of the pieces lie between them."""


def rough_bounds(values: Floats) -> tuple[Floats, Floats]:
    """Between which numbers all those lie that share their leading bits with one of `values (k,)`.

    Returns arrays `lows` and `highs`, each in order, so that `low <= number < high` for those that do; values
    must be finite. A binary search for a bound finds its place in numbers that are only in rough order.

    Examples
    --------
    >>> [bound.tolist() for bound in rough_bounds(np.array([1.01, 3.0, 3.001]))]
    [[1.0, 3.0], [1.125, 3.25]]
    """
    digits = np.unique(leading_bits(values))
    unsigned = digits.dtype.type
    top, shift = unsigned(1 << (8 * values.itemsize - 1)), unsigned(8 * values.itemsize - ROUGH_BITS)
    keys = digits << shift, (digits + unsigned(1)) << shift
    lows, highs = (np.where(k & top, k ^ top, ~k).view(values.dtype) for k in keys)
    return lows, highs


def leading_bits(values: Floats) -> Any:
    """Unsigned integers in the rough order of `values`: the leading bits of the keys that kernels sort by."""
    bits: Any = values.view(np.uint32 if values.itemsize == 4 else np.uint64)
    unsigned, width = bits.dtype.type, 8 * values.itemsize
    top = unsigned(1 << (width - 1))
    # Negative numbers have all bits turned, since their magnitude counts backwards.
    return np.where(bits > top, ~bits, bits | top) >> unsigned(width - ROUGH_BITS)
