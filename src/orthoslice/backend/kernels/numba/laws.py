"""Costs of rows against a known law: sort and price in one go, for uniform clouds in host memory.

They stand beside the plain reference of `orthoslice.costs.laws.law_slopes`.
"""

from __future__ import annotations

from typing import TypeAlias, cast

import numpy as np

from orthoslice.backend.array_types import Floats, Indices, Words
from orthoslice.backend.kernels import LONGEST_SIMD
from orthoslice.backend.kernels.numba._compile import compiled, summing
from orthoslice.backend.kernels.numba.law_tables import Room, cube_row, room_for, share_row
from orthoslice.backend.kernels.numba.sliced import as_bits, line_cost, line_slope
from orthoslice.backend.kernels.numba.sorting import counters
from orthoslice.backend.kernels.numba.splitting import order_row, piece_bounds, sort_row

Tables: TypeAlias = tuple[Floats, Floats, Floats, Floats, Floats, Indices, Floats, Floats]
"""The arrays of `orthoslice.costs.laws.KernelTables`."""

Lines: TypeAlias = tuple[Floats, float, Floats, float, Floats, Room, Floats, Floats]
"""Lines of a cube: unit vectors, the period and the waves, the variance, the knots, and room for a table."""

# Most knots between which places are guessed and not halved.
_EVEN = 40


@summing
def _square_row(row: Floats, stretch: float, means: Floats, pulls: Floats) -> float:
    """The summed costs of sorted points for p = 2, but for what the law varies within shares."""
    total = 0.0
    for k in range(row.size):
        apart = np.float64(row[k]) - stretch * means[k]
        total += apart * apart
    for k in range(pulls.size):
        pulls[k] = 2.0 * (np.float64(row[k]) - stretch * means[k])
    return total


@summing
def _outside(row: Floats, stretch: float, means: Floats, pulls: Floats) -> float:
    """The summed costs for p = 1 of points that lie outside of their shares."""
    total = 0.0
    for k in range(row.size):
        total += abs(np.float64(row[k]) - stretch * means[k])
    for k in range(pulls.size):
        pulls[k] = 1.0 if np.float64(row[k]) > stretch * means[k] else -1.0
    return total


@compiled
def _length_row(
    row: Floats,
    stretch: float,
    means: Floats,
    quantiles: Floats,
    below: Floats,
    table: Floats,
    first: Indices,
    pulls: Floats,
) -> float:
    """The summed costs for p = 1: few points lie inside of their shares, which are split there."""
    n = row.size
    total = _outside(row, stretch, means, pulls)
    for k in range(n):
        t = np.float64(row[k])
        if stretch * quantiles[k] < t < stretch * quantiles[k + 1]:
            excess, reached = _excess(t / stretch, table, first[k], first[k + 1] + 1)
            if k < n * reached < k + 1:
                within = stretch * (2 * excess + below[k] + below[k + 1]) * n - t * (2 * k + 1)
                total += within - abs(t - stretch * means[k])
                if pulls.size:
                    pulls[k] = 2 * n * reached - (2 * k + 1)
    return total


@compiled
def _cell(z: float, table: Floats, low: int, high: int) -> int:
    """The last of the knots from `low` on that is not beyond z, which lies before the knot `high`."""
    while high - low > _EVEN:
        middle = (low + high) // 2
        if table[middle, 0] <= z:
            low = middle
        else:
            high = middle
    # A few knots are about evenly spaced: the first guess is mostly right. Processors guess halvings wrong.
    while high - low > 1:
        share = (z - table[low, 0]) / (table[high, 0] - table[low, 0])
        middle = min(low + int(share * (high - low)), high - 1)
        if z < table[middle, 0]:
            high = middle
        elif z < table[middle + 1, 0]:
            return middle
        else:
            low = min(middle + 1, high - 1)
    return low


@compiled
def _excess(z: float, table: Floats, low: int, high: int) -> tuple[float, float]:
    """E max(z - T, 0) and P(T < z), from a table of places, masses and excesses; z is between two knots."""
    cell = _cell(z, table, low, high)
    place, mass, height = table[cell]
    next_place, next_mass, next_height = table[cell + 1]
    width = next_place - place
    share = (z - place) / width
    bend = (next_mass - mass) * width
    above = min(max(next_height - height - mass * width, 0.0), bend)
    square, cube = 3 * above - bend, bend - 2 * above
    value = height + mass * (z - place) + share * share * (square + share * cube)
    slope = mass + share * (2 * square + 3 * share * cube) / width
    return value, min(max(slope, mass), next_mass)


@compiled
def _power_row(row: Floats, stretch: float, nodes: Floats, rule: Floats, p: float, pulls: Floats) -> float:
    """The summed costs for other powers, by the nodes of every share."""
    total = 0.0
    for k in range(row.size):
        t, slope = np.float64(row[k]), 0.0
        for j in range(rule.size):
            total += rule[j] * line_cost(t, stretch * nodes[k, j], p)
        if pulls.size:
            for j in range(rule.size):
                slope += rule[j] * line_slope(t, stretch * nodes[k, j], p)
            pulls[k] = slope
    return total


@compiled
def _price_sorted(row: Floats, s: int, stretch: float, p: float, tables: Tables, pulls: Floats) -> float:
    """The cost of the sorted row `s`, and its slopes if `pulls` has room for them."""
    means, residue, quantiles, below, knots, first, nodes, rule = tables
    # One table for all rows, or one for each.
    own = s if means.shape[0] > 1 else 0
    if p == 2.0:
        within: float = residue[own]
        return _square_row(row, stretch, means[own], pulls) + row.size * stretch * stretch * within
    if p == 1.0:
        return _length_row(row, stretch, means[own], quantiles[own], below[own], knots[own], first[own], pulls)
    return _power_row(row, stretch, nodes[own], rule, p, pulls)


@compiled
def _tell(lines: Lines, s: int, tables: Tables) -> None:
    """Have tables of one row be those of the line `s`."""
    unit, period, waves, variance, place, room, mass, below = lines
    means, residue, quantiles, moments, knots, first, _, _ = tables
    cube_row(unit[s], period, waves, room, mass, below)
    residue[0] = share_row(mass, place, below, variance, means[0], quantiles[0], moments[0], first[0])
    for i in range(knots.shape[1]):
        knots[0, i, 0], knots[0, i, 1] = place[i], mass[i]
        knots[0, i, 2] = place[i] * mass[i] - below[i]


@compiled
def _score_rows(
    rows: Floats, stretch: Floats, p: float, unit: float, tables: Tables, scores: Floats, lines: Lines | None
) -> None:
    no_pulls = np.empty(0)
    for s in range(rows.shape[0]):
        if lines is not None:
            _tell(lines, s, tables)
        scores[s] = unit * _price_sorted(rows[s], s, stretch[s], p, tables, no_pulls)


@compiled
def _score_bits(
    bits: Words,
    stretch: Floats,
    p: float,
    unit: float,
    tables: Tables,
    scores: Floats,
    floats: Floats,
    bounds: Indices | None,
    lines: Lines | None,
) -> None:
    n = bits.shape[1]
    starts, keys, spare = counters(bits), np.empty(n, dtype=bits.dtype), np.empty(n, dtype=bits.dtype)
    no_pulls = np.empty(0)
    for s in range(bits.shape[0]):
        if lines is not None:
            _tell(lines, s, tables)
        row = sort_row(bits[s], keys, spare, starts, bounds).view(floats.dtype)
        scores[s] = unit * _price_sorted(row, s, stretch[s], p, tables, no_pulls)


@compiled
def _slope_bits(
    bits: Words,
    stretch: Floats,
    p: float,
    unit: float,
    tables: Tables,
    scores: Floats,
    slopes: Floats,
    bounds: Indices | None,
    lines: Lines | None,
) -> None:
    n = bits.shape[1]
    starts, keys, spare = counters(bits), np.empty(n, dtype=bits.dtype), np.empty(n, dtype=bits.dtype)
    index, spare_index, pulls = np.empty(n, dtype=np.uint32), np.empty(n, dtype=np.uint32), np.empty(n)
    for s in range(bits.shape[0]):
        if lines is not None:
            _tell(lines, s, tables)
        ordered, places = order_row(bits[s], keys, spare, index, spare_index, starts, bounds)
        scores[s] = unit * _price_sorted(ordered.view(slopes.dtype), s, stretch[s], p, tables, pulls)
        for k in range(n):
            slopes[s, places[k]] = unit * pulls[k]


def price_rows(
    rows: Floats,
    stretch: Floats,
    p: float,
    factor: float,
    tables: Tables,
    with_slopes: bool,
    lines: Lines | None = None,
) -> tuple[Floats, Floats | None]:
    """`factor` times the costs of `rows (slices, n)` against a law times `stretch (slices,)`, and their slopes.

    `tables` are those of `orthoslice.costs.laws.KernelTables`. Slopes are None unless wanted; the rows may be
    sorted.
    """
    n, scores = rows.shape[1], np.empty(rows.shape[0])
    unit, bits = factor / n, as_bits(rows)
    bounds, tables = piece_bounds(n, bits.itemsize), cast(Tables, tuple(tables))
    if with_slopes:
        slopes = np.empty(rows.shape, dtype=rows.dtype)
        _slope_bits(bits, stretch, p, unit, tables, scores, slopes, bounds, lines)
        return scores, slopes
    if n <= LONGEST_SIMD:
        rows.sort(axis=-1)
        _score_rows(rows, stretch, p, unit, tables, scores, lines)
    else:
        _score_bits(bits, stretch, p, unit, tables, scores, np.empty(0, dtype=rows.dtype), bounds, lines)
    return scores, None


def price_rows_of_cubes(
    rows: Floats,
    stretch: Floats,
    p: float,
    factor: float,
    unit: Floats,
    series: tuple[float, Floats, Floats],
    variance: float,
    with_slopes: bool,
) -> tuple[Floats, Floats | None]:
    """As :func:`price_rows` for p = 1 and 2, against the laws of a cube on the lines `unit (slices, dim)`.

    A table is priced with as soon as it is known and never stored: pages of new memory for all of them would
    take longer than what is written there.
    """
    (period, waves, place), n, size = series, rows.shape[1], (p == 1) * 1
    n_knots, ends = place.size, (1, (n + 1) * size)
    tables = (
        *(np.empty((1, n)), np.empty(1), np.empty(ends), np.empty(ends)),
        *(np.empty((1, n_knots * size, 3)), np.empty(ends, dtype=np.int64), np.empty((1, 0, 0)), np.empty(0)),
    )
    room = room_for(unit.shape[1], waves)
    lines = (unit, period, waves, variance, place, room, np.empty(n_knots), np.empty(n_knots))
    return price_rows(rows, stretch, p, factor, tables, with_slopes, lines)
