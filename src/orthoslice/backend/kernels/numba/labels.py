"""Many labellings of one pooled sample at once: which units belong to x, and what each labelling costs.

A word of LANES bits holds the label of one unit under LANES labellings: the labels of ten thousand points fit
a core's nearest caches. The plain references are those of `draw_labels`, `line_totals`
and `space_totals` in `orthoslice.applications.two_sample`.
"""

from __future__ import annotations

from typing import cast

import numpy as np

from orthoslice.backend.array_types import Floats, Indices, Words
from orthoslice.backend.kernels import LABELLINGS
from orthoslice.backend.kernels.numba._compile import compiled
from orthoslice.backend.kernels.numba.pairs import full_power, full_square
from orthoslice.backend.kernels.numba.random import third_key, threefry
from orthoslice.backend.kernels.numba.sliced import as_bits, cost_row
from orthoslice.backend.kernels.numba.sorting import counters
from orthoslice.backend.kernels.numba.splitting import order_row, piece_bounds

# All LANES labellings are computed, wanted or not: loops of a fixed length are straight vector code.
LANES = LABELLINGS

_HALF = LANES // 2


@compiled
def _draw(k0: np.uint32, k1: np.uint32, first: np.uint32, left: Indices, quota: Indices, words: Words) -> None:
    """Selection sampling (Knuth, 3.4.2 S): a unit is taken with probability needed / left, in its stratum."""
    k2 = third_key(k0, k1)
    needed = np.zeros(LANES, dtype=np.uint64)
    taken = np.empty(LANES, dtype=np.uint64)
    shift = np.uint64(32)
    for unit in range(left.size):
        if quota[unit] >= 0:
            needed[:] = np.uint64(quota[unit])
        remaining = np.uint64(left[unit])
        counter = np.uint32(unit)
        for b in range(LANES):
            high, low = threefry(k0, k1, k2, np.uint32(first + np.uint32(b)), counter)
            # The whole part of u * left, for u of 64 bits: whole numbers choose the same on every machine.
            draw = (np.uint64(high) * remaining + ((np.uint64(low) * remaining) >> shift)) >> shift
            take = np.uint64(draw < needed[b])
            needed[b] -= take
            taken[b] = take
        word = np.uint64(0)
        for b in range(LANES):
            word |= taken[b] << np.uint64(b)
        words[unit] = word


@compiled
def _walk(values: Floats, at: Words, words: Words, share: Floats, totals: Floats) -> None:
    """Add the costs for p = 1: the area between both distribution functions, walked from left to right."""
    count = np.empty(LANES, dtype=np.int32)
    for s in range(at.shape[0]):
        count[:] = 0
        for k in range(at.shape[1] - 1):
            word = words[at[s, k]]
            low, high = np.uint32(word), np.uint32(word >> np.uint64(32))
            gap = values[s, k + 1] - values[s, k]
            passed = np.float64(k + 1)
            # In halves of 32 bits: there are vector instructions that shift each by another number.
            for b in range(_HALF):
                count[b] += np.int32((low >> np.uint32(b)) & np.uint32(1))
                totals[b] += abs(count[b] - passed * share[b]) * gap
            for b in range(_HALF):
                h = _HALF + b
                count[h] += np.int32((high >> np.uint32(b)) & np.uint32(1))
                totals[h] += abs(count[h] - passed * share[h]) * gap


@compiled
def _unpack(words: Words, lane: int, labels: Words) -> None:
    shift = np.uint64(lane)
    for unit in range(words.size):
        labels[unit] = np.uint8((words[unit] >> shift) & np.uint64(1))


@compiled
def _match(values: Floats, at: Words, words: Words, lanes: int, p: float, totals: Floats) -> None:
    """Add the costs for any p: points of both sides are dealt to rows of their own, which are in order then."""
    n_all = at.shape[1]
    # Words in the order of the direction: gathered once for all labellings, then read from left to right.
    line = np.empty(n_all, dtype=np.uint64)
    # One place more: the last point is written to both sides, and counts on one.
    a, b = np.empty(n_all + 1), np.empty(n_all + 1)
    for s in range(at.shape[0]):
        for k in range(n_all):
            line[k] = words[at[s, k]]
        for lane in range(lanes):
            i, j = np.int64(0), np.int64(0)
            for k in range(n_all):
                mine = np.int64((line[k] >> np.uint64(lane)) & np.uint64(1))
                # Branch-free: write to both sides, advance one counter. A random label is unpredictable.
                a[i] = values[s, k]
                b[j] = values[s, k]
                i += mine
                j += 1 - mine
            totals[lane] += cost_row(a[:i], b[:j], p)


@compiled
def _walk_kept(values: Floats, at: Words, words: Words, n: int, steps: Floats, totals: Floats) -> None:
    """As `_walk`, where labels say what is kept: every kept point steps up its side's distribution function."""
    lead = np.empty(LANES)
    for s in range(at.shape[0]):
        lead[:] = 0
        for k in range(at.shape[1] - 1):
            unit = at[s, k]
            word, step = words[unit], steps[np.int64(unit >= n)]
            low, high = np.uint32(word), np.uint32(word >> np.uint64(32))
            gap = values[s, k + 1] - values[s, k]
            for b in range(_HALF):
                lead[b] += np.int32((low >> np.uint32(b)) & np.uint32(1)) * step[b]
                totals[b] += abs(lead[b]) * gap
            for b in range(_HALF):
                h = _HALF + b
                lead[h] += np.int32((high >> np.uint32(b)) & np.uint32(1)) * step[h]
                totals[h] += abs(lead[h]) * gap


@compiled
def _match_kept(values: Floats, at: Words, words: Words, lanes: int, n: int, p: float, totals: Floats) -> None:
    """As `_match`, where labels say what is kept."""
    n_all = at.shape[1]
    labels = np.empty(words.size, dtype=np.uint8)
    a, b = np.empty(n_all + 1), np.empty(n_all + 1)
    for lane in range(lanes):
        _unpack(words, lane, labels)
        for s in range(at.shape[0]):
            i, j = np.int64(0), np.int64(0)
            for k in range(n_all):
                unit = at[s, k]
                kept, mine = np.int64(labels[unit]), np.int64(unit < n)
                a[i] = values[s, k]
                b[j] = values[s, k]
                i += kept & mine
                j += kept & (1 - mine)
            totals[lane] += cost_row(a[:i], b[:j], p)


@compiled
def space_cost(points: Floats, a: Indices, b: Indices, p: float) -> float:
    """What the coupling of points `a` with points `b`, by rank, costs in full space."""
    n, m = a.size, b.size
    total = 0.0
    if n == m:
        for k in range(n):
            total += full_power(full_square(points, points, a[k], b[k]), p)
        return total / n
    i, j, left_i, left_j = 0, 0, m, n
    while i < n:
        mass = min(left_i, left_j)
        total += mass * full_power(full_square(points, points, a[i], b[j]), p)
        left_i -= mass
        left_j -= mass
        if left_i == 0:
            i, left_i = i + 1, m
        if left_j == 0:
            j, left_j = j + 1, n
    return total / np.float64(n) / np.float64(m)


@compiled
def _match_in_space(
    points: Floats, order: Words, unit: Indices, words: Words, lanes: int, p: float, totals: Floats
) -> None:
    n_all = order.shape[1]
    line = np.empty(n_all, dtype=np.uint64)
    a, b = np.empty(n_all + 1, dtype=np.uint32), np.empty(n_all + 1, dtype=np.uint32)
    for s in range(order.shape[0]):
        for k in range(n_all):
            line[k] = words[unit[order[s, k]]]
        for lane in range(lanes):
            i, j = np.int64(0), np.int64(0)
            for k in range(n_all):
                mine = np.int64((line[k] >> np.uint64(lane)) & np.uint64(1))
                a[i] = order[s, k]
                b[j] = order[s, k]
                i += mine
                j += 1 - mine
            totals[lane] += space_cost(points, a[:i], b[:j], p)


@compiled
def _sort_rows(bits: Words, unit: Indices, at: Words, bounds: Indices | None) -> None:
    n = bits.shape[1]
    starts = counters(bits)
    keys, spare = np.empty(n, dtype=bits.dtype), np.empty(n, dtype=bits.dtype)
    place, rest = np.empty(n, dtype=np.uint32), np.empty(n, dtype=np.uint32)
    for s in range(bits.shape[0]):
        found_keys, found = order_row(bits[s], keys, spare, place, rest, starts, bounds)
        for k in range(n):
            bits[s, k] = found_keys[k]
            at[s, k] = unit[found[k]]


def sort_in_place(projections: Floats, unit: Indices) -> Words:
    """Sort the rows of `projections (slices, points)` in place; returns the units that they are of, of uint32.

    Equal numbers keep their order. The plain reference is that of the operation
    `sort_with_units`.

    Examples
    --------
    >>> rows = np.array([[2.0, -1.0, 2.0, 0.0]])
    >>> sort_in_place(rows, np.array([4, 5, 6, 7], dtype=np.uint32)).tolist(), rows.tolist()
    ([[5, 7, 4, 6]], [[-1.0, 0.0, 2.0, 2.0]])
    """
    at = np.empty(projections.shape, dtype=np.uint32)
    bits = as_bits(projections)
    _sort_rows(bits, unit, at, piece_bounds(bits.shape[1], bits.itemsize))
    return at


def draw_words(high: int, low: int, first: int, left: Indices, quota: Indices) -> Words:
    """Labels of LANES labellings, `(units,)` of uint64: bit b belongs to labelling `first + b`.

    Parameters
    ----------
    high, low
        The key of the generator, two words of 32 bits.
    first
        The number of the first labelling.
    left
        For every unit, how many of its stratum there are from it on: `(units,)` of int32, strata one after the
        other.
    quota
        At the first unit of a stratum, how many of it go to x; -1 elsewhere. `(units,)` of int32.

    Examples
    --------
    >>> words = draw_words(1, 2, 0, np.array([3, 2, 1]), np.array([2, -1, -1]))
    >>> [sum(int(word) >> lane & 1 for word in words) for lane in (0, 1, 63)]
    [2, 2, 2]
    """
    words = np.empty(left.size, dtype=np.uint64)
    _draw(np.uint32(high), np.uint32(low), np.uint32(first), left, quota, words)
    return words


def add_line_totals(values: Floats, at: Words, words: Words, sizes: Indices, p: float) -> Floats:
    """Summed costs on the lines of all directions, `(lanes,)`, one for each of `sizes (lanes,)`.

    Parameters
    ----------
    values
        Projections of the pooled points in increasing order, `(slices, points)`.
    at
        The units of these points, `(slices, points)` of uint32.
    words
        Labels, `(units,)` of uint64.
    sizes
        How many points every labelling gives to x, `(lanes,)`.
    p
        The power.

    Examples
    --------
    >>> values, at = np.array([[0.0, 1.0, 3.0, 7.0]]), np.array([[0, 1, 2, 3]], dtype=np.uint32)
    >>> words = np.array([0b11, 0b01, 0b10, 0b00], dtype=np.uint64)
    >>> add_line_totals(values, at, words, np.array([2, 2]), 1.0).tolist()
    [4.5, 2.5]
    >>> add_line_totals(values, at, words, np.array([2, 2]), 2.0).tolist()
    [22.5, 8.5]
    """
    lanes, n_all = sizes.size, at.shape[1]
    totals = np.zeros(LANES)
    if p != 1:
        _match(values, at, words, lanes, p, totals)
        return totals[:lanes]
    share = np.full(LANES, 0.5)
    share[:lanes] = sizes / n_all
    _walk(values, at, words, share, totals)
    # F_x - F_y = (count - passed * share) * (1 / n + 1 / m).
    return cast(Floats, totals[:lanes] * (1 / sizes + 1 / (n_all - sizes)))


def add_space_totals(points: Floats, order: Words, unit: Indices, words: Words, lanes: int, p: float) -> Floats:
    """Summed costs in full space of the couplings that all directions induce, `(lanes,)`.

    Parameters
    ----------
    points
        The pooled cloud, `(points, dim)`.
    order
        Its points in increasing order of their projections, `(slices, points)` of uint32.
    unit
        The unit of every point, `(points,)`.
    words, lanes, p
        As in :func:`add_line_totals`; how many labellings are wanted.

    Examples
    --------
    >>> points, order = np.array([[0.0, 0.0], [3.0, 4.0]]), np.array([[0, 1]], dtype=np.uint32)
    >>> unit, words = np.array([0, 1], dtype=np.uint32), np.array([1, 2], dtype=np.uint64)
    >>> add_space_totals(points, order, unit, words, 2, 1.0).tolist()
    [5.0, 5.0]
    """
    totals = np.zeros(LANES)
    _match_in_space(points, order, unit, words, lanes, p, totals)
    return totals[:lanes]


def add_kept_totals(values: Floats, at: Words, words: Words, sizes: Indices, n: int, p: float) -> Floats:
    """Summed costs on the lines of all directions, `(lanes,)`, of the points that each labelling keeps.

    Parameters
    ----------
    values, at, words, p
        As in :func:`add_line_totals`; here words say what is kept.
    sizes
        How many points of x and of y every labelling keeps, `(lanes, 2)`.
    n
        Units below this are of x, the others of y.

    Examples
    --------
    >>> values, at = np.array([[0.0, 1.0, 3.0, 7.0]]), np.array([[0, 1, 2, 3]], dtype=np.uint32)
    >>> words = np.array([0b01, 0b11, 0b11, 0b01], dtype=np.uint64)
    >>> add_kept_totals(values, at, words, np.array([[2, 2], [1, 1]]), 2, 1.0).tolist()
    [4.5, 2.0]
    >>> add_kept_totals(values, at, words, np.array([[2, 2], [1, 1]]), 2, 2.0).tolist()
    [22.5, 4.0]
    """
    lanes = len(sizes)
    totals = np.zeros(LANES)
    if p != 1:
        _match_kept(values, at, words, lanes, n, p, totals)
        return totals[:lanes]
    # In whole numbers: a point of x adds 1 / n to F - G, a point of y takes 1 / m off.
    steps = np.ones((2, LANES))
    steps[0, :lanes], steps[1, :lanes] = sizes[:, 1], -sizes[:, 0]
    _walk_kept(values, at, words, n, steps, totals)
    return totals[:lanes] / sizes[:, 0] / sizes[:, 1]
