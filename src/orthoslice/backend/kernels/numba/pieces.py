"""Rows that are longer than a cache, in pieces: put in rough order, then sorted and priced a part at a time.

Numbers are in *rough order* if they are in the order of their leading bits. That takes one pass over a piece,
and it is enough to cut all pieces at the same numbers, those whose other bits are 0: a binary search for such a
number finds its place, because all before it are smaller and all after it are not. What lies between two cuts
is taken from all pieces together, is sorted in the processor's cache, and is priced there.

The plain references are those of `order_roughly` and `piece_cost` in `orthoslice.costs.pieces`.
"""

from __future__ import annotations

import itertools
import math
import threading
from collections.abc import Iterable, Iterator

import numpy as np

from orthoslice.backend.array_types import Floats, Indices, Words
from orthoslice.backend.kernels.numba._compile import compiled
from orthoslice.backend.kernels.numba.sliced import as_bits, cost_ranks, line_cost
from orthoslice.backend.kernels.numba.sorting import WIDE_BITS, add_up, as_key, counters, decode, put_row
from orthoslice.backend.kernels.numba.splitting import piece_bounds, sort_row
from orthoslice.backend.kernels.rough_order import ROUGH_BITS, RowInPieces, leading_bits, rough_bounds

# About _PART numbers, which a core's cache holds, are sorted at a time; one in _DRAWN is drawn to cut there.
_PART = 1 << 17
_DRAWN = 1 << 8

# Numbers of a piece that is cut from a longer row.
_PIECE = 1 << 20

# A thread keeps working memory up to this size for its next chunk: the first touch of new memory takes longer
# than the work that is done in it.
_KEPT_BYTES = 1 << 24
_kept = threading.local()


@compiled
def _order_roughly(bits: Words, ordered: Words, starts: Words, shift: np.unsignedinteger) -> None:
    top = bits.dtype.type(1) << bits.dtype.type(8 * bits.itemsize - 1)
    starts[:, :] = 0
    for k in range(bits.size):
        starts[0, as_key(bits[k], top) >> shift] += 1
    add_up(starts)
    for k in range(bits.size):
        digit = as_key(bits[k], top) >> shift
        ordered[starts[0, digit]] = bits[k]
        starts[0, digit] += 1
    put_row(ordered, bits)


@compiled
def _sort_near(keys: Words, spare: Words, starts: Words, low: np.unsignedinteger, width: int) -> None:
    """Sort keys that are less than `4**width` above `low`, in two passes."""
    unsigned = keys.dtype.type
    w, mask = unsigned(width), (unsigned(1) << unsigned(width)) - unsigned(1)
    starts[:, :] = 0
    for k in range(keys.size):
        key = keys[k] - low
        starts[0, key & mask] += 1
        starts[1, key >> w] += 1
    add_up(starts)
    for k in range(keys.size):
        key = keys[k] - low
        digit = key & mask
        spare[starts[0, digit]] = key
        starts[0, digit] += 1
    for k in range(keys.size):
        key = spare[k]
        digit = key >> w
        keys[starts[1, digit]] = key + low
        starts[1, digit] += 1


@compiled
def _sort_part(bits: Words, keys: Words, spare: Words, bounds: Indices | None) -> None:
    """Sort numbers, given as bits, into `keys`; those that are close to each other in fewer passes.

    `bounds` come from :func:`piece_bounds`.
    """
    top = bits.dtype.type(1) << bits.dtype.type(8 * bits.itemsize - 1)
    low = high = as_key(bits[0], top)
    for k in range(bits.size):
        key = as_key(bits[k], top)
        keys[k] = key
        low, high = min(low, key), max(high, key)
    width = 0
    while width <= WIDE_BITS and (high - low) >> bits.dtype.type(2 * width):
        width += 1
    if width <= WIDE_BITS:
        _sort_near(keys, spare, np.empty((2, 1 << width), dtype=np.uint32), low, width)
        decode(keys)
    else:
        put_row(sort_row(bits, keys, spare, counters(bits.reshape(1, -1)), bounds), keys)


@compiled
def _cost_masses(
    a: Floats, b: Floats, left_a: int, left_b: int, unit_a: int, unit_b: int, mass: int, p: float
) -> tuple[float, int, int, int, int, int]:
    """What it costs to move sorted numbers onto others until one row, or `mass`, is used up.

    A number of `a` weighs `unit_a`, of which the first has `left_a` left. Returns the cost, how many numbers
    of each row are used up, and what is left of the next ones and of the mass.
    """
    total, i, j = 0.0, 0, 0
    while i < a.size and j < b.size and mass > 0:
        moved = min(left_a, left_b, mass)
        total += moved * line_cost(a[i], b[j], p)
        left_a -= moved
        left_b -= moved
        mass -= moved
        if left_a == 0:
            i, left_a = i + 1, unit_a
        if left_b == 0:
            j, left_b = j + 1, unit_b
    return total, i, j, left_a, left_b, mass


@compiled
def _count_roughly(
    bits: Words, counts: Indices, is_close: Indices, close: Words, shift: np.unsignedinteger
) -> int:
    """Count numbers by their leading bits, and collect those whose bits are marked; returns how many."""
    top = bits.dtype.type(1) << bits.dtype.type(8 * bits.itemsize - 1)
    n_close = 0
    for k in range(bits.size):
        digit = as_key(bits[k], top) >> shift
        counts[digit] += 1
        close[n_close] = bits[k]
        n_close += is_close[digit]
    return n_close


def count_marks(parts: Iterable[Floats], marks: Floats) -> Indices:
    """How many numbers of a row, which comes in parts, are below and up to each of `marks (k,)`: `(2, k)`.

    Examples
    --------
    >>> count_marks([np.array([3.0, 1.0]), np.array([2.0, 2.0])], np.array([2.0, 2.0, np.inf])).tolist()
    [[1, 1, 4], [3, 3, 4]]
    """
    digits = leading_bits(marks)
    counts, is_close = (np.zeros(1 << ROUGH_BITS, dtype=np.int64) for _ in range(2))
    is_close[digits] = 1
    shift = digits.dtype.type(8 * marks.itemsize - ROUGH_BITS)
    found = []
    for part in parts:
        close = np.empty_like(part)
        n_close = _count_roughly(as_bits(part), counts, is_close, close.view(digits.dtype), shift)
        found.append(close[:n_close])
    close = np.sort(np.concatenate(found))
    far = np.cumsum(np.where(is_close, 0, counts))[digits]
    return np.stack([far + np.searchsorted(close, marks), far + np.searchsorted(close, marks, "right")])


def order_in_place(rows: Floats) -> None:
    """Put every row of `rows (slices, n)` in rough order.

    Examples
    --------
    >>> rows = np.array([[3.0, -1.0, 2.0]])
    >>> order_in_place(rows)
    >>> rows.tolist()
    [[-1.0, 2.0, 3.0]]
    """
    ordered = _spare_row(rows.nbytes // max(1, len(rows))).view(as_bits(rows[:0]).dtype)
    starts = np.empty((1, 1 << ROUGH_BITS), dtype=np.uint32)
    shift = ordered.dtype.type(8 * ordered.itemsize - ROUGH_BITS)
    for row in rows:
        _order_roughly(row.view(ordered.dtype), ordered, starts, shift)


def _spare_row(n_bytes: int) -> Words:
    """Memory to work in until the next call of this thread."""
    if n_bytes > _KEPT_BYTES:
        return np.empty(n_bytes, dtype=np.uint8)
    row = getattr(_kept, "row", None)
    if row is None or len(row) < n_bytes:
        row = _kept.row = np.empty(n_bytes, dtype=np.uint8)
    return row[:n_bytes]


def _cuts(pieces: list[Floats]) -> Floats:
    """Where to cut the pieces into parts of about _PART numbers: at numbers whose lower bits are 0."""
    drawn = np.sort(np.concatenate([piece[::_DRAWN] for piece in pieces]))
    return rough_bounds(np.ascontiguousarray(drawn[_PART // _DRAWN :: _PART // _DRAWN]))[0]


def _repeated(value: float, count: int, dtype: np.dtype[np.floating]) -> Iterator[Floats]:
    block = np.full(min(count, _PART), value, dtype=dtype)
    for first in range(0, count, _PART):
        yield block[: count - first]


class _Ordered:
    """The numbers of a side in order, a part at a time; `skipped` are left out."""

    def __init__(self, side: RowInPieces) -> None:
        self.side = side
        self.pieces = [piece for piece in side.pieces if piece.size]
        self.dtype = side.pieces[0].dtype
        cuts = _cuts(self.pieces) if self.pieces else np.empty(0, dtype=self.dtype)
        places = [[0, *np.searchsorted(piece, cuts).tolist(), piece.size] for piece in self.pieces]
        self.bounds = list(itertools.pairwise(zip(*places, strict=True)))
        self.longest = max((sum(stop) - sum(first) for first, stop in self.bounds), default=0)

    def parts(self, bits: Words, spare: Words) -> Iterator[Floats]:
        """Parts in order, each of them valid until the next; `bits` and `spare` are shared by both sides."""
        keys, bounds = np.empty(self.longest, dtype=bits.dtype), piece_bounds(self.longest, bits.itemsize)
        (low, n_low), (high, n_high) = self.side.ends
        skipped = self.side.skipped // self.side.unit
        yield from _repeated(low, n_low - min(skipped, n_low), self.dtype)
        skipped = max(0, skipped - n_low)
        for first, stop in self.bounds:
            size = sum(stop) - sum(first)
            if skipped >= size:
                skipped -= size
                continue
            taken = [piece[a:b] for piece, a, b in zip(self.pieces, first, stop, strict=True)]
            np.concatenate(taken, out=bits[:size].view(self.dtype))
            _sort_part(bits[:size], keys[:size], spare[:size], bounds)
            yield keys[skipped:size].view(self.dtype)
            skipped = 0
        yield from _repeated(high, n_high - min(skipped, n_high), self.dtype)


def price_pieces(x: RowInPieces, y: RowInPieces, mass: int, p: float) -> float:
    """What it costs to move `mass` of one side onto the other: see `orthoslice.costs.pieces.piece_cost`."""
    sides = _Ordered(x), _Ordered(y)
    longest = max(side.longest for side in sides)
    bits, spare = (np.empty(longest, dtype=as_bits(np.empty(0, sides[0].dtype)).dtype) for _ in range(2))
    sorted_parts = [side.parts(bits, spare) for side in sides]
    a = b = np.empty(0, dtype=sides[0].dtype)
    left_a, left_b = (side.unit - side.skipped % side.unit for side in (x, y))
    total = 0.0
    while mass > 0:
        a, b = (part if part.size else next(later) for part, later in zip((a, b), sorted_parts, strict=True))
        if x.unit == y.unit == 1:
            i = j = min(a.size, b.size, mass)
            cost = cost_ranks(a[:i], b[:i], p)
            mass -= i
        else:
            cost, i, j, left_a, left_b, mass = _cost_masses(a, b, left_a, left_b, x.unit, y.unit, mass, p)
        total += cost
        a, b = a[i:], b[j:]
    return total


def score_long_rows(px: Floats, py: Floats, p: float) -> Floats:
    """Costs on the line of `px (slices, n)` against `py (slices, m)`, float64 `(slices,)`; changes their order.

    Examples
    --------
    >>> score_long_rows(np.array([[3.0, 1.0]]), np.array([[2.0, 5.0]]), 1.0).tolist()
    [1.5]
    """
    n, m = px.shape[1], py.shape[1]
    shared = math.gcd(n, m)
    mass = n * (m // shared)
    scores = np.empty(len(px))
    for s in range(len(px)):
        x, y = RowInPieces(_cut(px[s]), m // shared), RowInPieces(_cut(py[s]), n // shared)
        scores[s] = price_pieces(x, y, mass, p) / mass
    return scores


def _cut(row: Floats) -> list[Floats]:
    """A row in pieces, each of them put in rough order."""
    pieces = np.split(row, range(_PIECE, row.size, _PIECE))
    for piece in pieces:
        order_in_place(piece[None])
    return pieces
