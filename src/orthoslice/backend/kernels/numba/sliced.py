"""Costs on the line: sort, match and add up in one go, for uniform clouds in host memory.

Every kernel stands beside a plain reference: `orthoslice.costs.lines.sorted_scores` for the scores,
`numpy.argsort(kind="stable")` for the orders, and `orthoslice.costs.lines.sorted_slopes` for the slopes.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from orthoslice.backend.array_types import Floats, Indices, Words
from orthoslice.backend.kernels import LONGEST_COLUMN, LONGEST_INDEXED
from orthoslice.backend.kernels.numba._compile import compiled, summing
from orthoslice.backend.kernels.numba.checking import are_fit
from orthoslice.backend.kernels.numba.lanes import lanes_of, projector, summer
from orthoslice.backend.kernels.numba.sorting import column_rows, counters, sort_columns
from orthoslice.backend.kernels.numba.splitting import order_row, piece_bounds, sort_row


@compiled
def line_cost(a: float, b: float, p: float) -> float:
    difference = np.float64(a - b)
    if p == 2.0:
        return difference * difference
    if p == 1.0:
        return abs(difference)
    return abs(difference) ** p


@compiled
def line_slope(a: float, b: float, p: float) -> Any:
    difference = np.float64(a - b)
    if p == 2.0:
        return 2.0 * difference
    sign = np.sign(difference)
    return sign if p == 1.0 else p * abs(difference) ** (p - 1.0) * sign


# Integers as wide as the numbers that they are places of.
_PLACES: dict[int, Words] = {4: np.empty(0, np.uint32), 8: np.empty(0, np.uint64)}

_add_lengths, _add_squares = summer(1), summer(2)
_project_8, _project_1 = projector(8), projector(1)


@compiled
def _room(n: int, like: Floats) -> Floats:
    """A buffer for columns of n numbers, with infinity below them."""
    buffer = np.empty((column_rows(n), lanes_of(like)), dtype=like.dtype)
    buffer[n:] = np.inf
    return buffer


@compiled
def _take_lanes(rows: Floats, first: int, columns: Floats) -> int:
    """Rows from the first on as columns; whether any number of them is NaN, in as many bits."""
    n, with_nan = rows.shape[1], 0
    columns[n:] = np.inf
    for k in range(min(columns.shape[1], rows.shape[0] - first)):
        row, has_nan = rows[first + k], False
        for i in range(n):
            columns[i, k] = row[i]
            has_nan |= row[i] != row[i]
        with_nan |= int(has_nan) << k
    return with_nan


@compiled
def _take_directions(theta: Floats, first: int, lanes: Floats) -> None:
    """Directions from the first on as columns of `lanes (dim, lanes)`; 0 where there are none left."""
    count = min(lanes.shape[1], theta.shape[0] - first)
    for k in range(count):
        for j in range(theta.shape[1]):
            lanes[j, k] = theta[first + k, j]
    lanes[:, count:] = 0.0


@compiled
def _project(points: Floats, lanes: Floats, columns: Floats) -> None:
    n = points.shape[0]
    if n < 8:
        for i in range(n):
            _project_1(points, i, lanes, columns)
        return
    for i in range(0, n - 7, 8):
        _project_8(points, i, lanes, columns)
    # Some of the last rows are made twice.
    _project_8(points, n - 8, lanes, columns)


@compiled
def _add_costs(a: Floats, b: Floats, i: int, j: int, count: int, mass: float, p: float, sums: Floats) -> None:
    """Costs of `count` rows of sorted columns from row i and row j on."""
    if p == 2.0:
        _add_squares(a, b, i, j, count, mass, sums)
    elif p == 1.0:
        _add_lengths(a, b, i, j, count, mass, sums)
    else:
        for k in range(count):
            for lane in range(sums.size):
                sums[lane] += mass * line_cost(a[i + k, lane], b[j + k, lane], p)


@compiled
def _price_columns(a: Floats, b: Floats, n: int, m: int, p: float, sums: Floats) -> None:
    """Costs of the sorted columns of `a` against those of `b`."""
    sums[:] = 0.0
    # Each point of a weighs m and each of b weighs n, in units of 1 / (n m): whole numbers add up exactly.
    # As many rows at a time as are matched one by one.
    count = n if n == m else 1
    i, j, left_i, left_j = 0, 0, m, n
    while i < n:
        mass = min(left_i, left_j)
        _add_costs(a, b, i, j, count, np.float64(mass), p, sums)
        left_i -= mass
        left_j -= mass
        if left_i == 0:
            i, left_i = i + count, m
        if left_j == 0:
            j, left_j = j + count, n
    for lane in range(sums.size):
        sums[lane] /= np.float64(n) * np.float64(m)


@compiled
def _score_columns(
    x: Floats, y: Floats, theta: Floats, p: float, scores: Floats, limits: Words, rounding: float
) -> float:
    """Costs of clouds on the rows of `theta`, and their sum; or -1 if `are_fit` says no to limits."""
    if limits.size > 0:
        bits = limits.dtype
        if not are_fit(x, x.view(bits), y.view(bits), limits, theta, rounding):
            return -1.0
    n, m, (slices, dim) = x.shape[0], y.shape[0], theta.shape
    a, b = _room(n, x), _room(m, x)
    lanes, sums, total = np.empty((dim, a.shape[1]), dtype=x.dtype), np.empty(a.shape[1]), 0.0
    for first in range(0, slices, lanes.shape[1]):
        _take_directions(theta, first, lanes)
        _project(x, lanes, a)
        _project(y, lanes, b)
        sort_columns(a, None, n)
        sort_columns(b, None, m)
        _price_columns(a, b, n, m, p, sums)
        for k in range(min(sums.size, slices - first)):
            scores[first + k] = sums[k]
            total += sums[k]
    return total


@compiled
def _score_short_rows(a: Floats, b: Floats, p: float, scores: Floats) -> None:
    """Costs of the rows of `a (slices, n)` against those of `b (slices, m)`, as columns."""
    (slices, n), m = a.shape, b.shape[1]
    room_a, room_b = _room(n, a), _room(m, a)
    sums = np.empty(room_a.shape[1])
    for first in range(0, slices, sums.size):
        # NaN has no place in an order.
        with_nan = _take_lanes(a, first, room_a) | _take_lanes(b, first, room_b)
        sort_columns(room_a, None, n)
        sort_columns(room_b, None, m)
        _price_columns(room_a, room_b, n, m, p, sums)
        for k in range(min(sums.size, slices - first)):
            scores[first + k] = np.nan if with_nan >> k & 1 else sums[k]


@summing
def cost_ranks(a: Floats, b: Floats, p: float) -> float:
    """The summed costs of points that are matched rank by rank."""
    total = 0.0
    # Written out: with the choice inside, the loop would not be vector code.
    if p == 2.0:
        for k in range(a.size):
            difference = np.float64(a[k] - b[k])
            total += difference * difference
    else:
        for k in range(a.size):
            total += line_cost(a[k], b[k], p)
    return total


@compiled
def cost_row(a: Floats, b: Floats, p: float) -> float:
    """What it costs to move the sorted points `a (n,)` onto `b (m,)`, by integer ranks where n and m differ."""
    n, m = a.size, b.size
    if n == m:
        return cost_ranks(a, b, p) / n
    total = 0.0
    i, j, left_i, left_j = 0, 0, m, n
    while i < n:
        mass = min(left_i, left_j)
        total += mass * line_cost(a[i], b[j], p)
        left_i -= mass
        left_j -= mass
        if left_i == 0:
            i, left_i = i + 1, m
        if left_j == 0:
            j, left_j = j + 1, n
    return total / np.float64(n) / np.float64(m)


@compiled
def _score_rows(a: Words, b: Words, p: float, scores: Floats, floats: Floats, bounds: Indices | None) -> None:
    """Costs of the rows of `a (slices, n)` against those of `b (slices, m)`, given as bits."""
    n, m = a.shape[1], b.shape[1]
    starts_a, starts_b = counters(a), counters(b)
    work_a, spare_a = np.empty(n, dtype=a.dtype), np.empty(n, dtype=a.dtype)
    work_b, spare_b = np.empty(m, dtype=b.dtype), np.empty(m, dtype=b.dtype)
    for s in range(a.shape[0]):
        row_a = sort_row(a[s], work_a, spare_a, starts_a, bounds).view(floats.dtype)
        row_b = sort_row(b[s], work_b, spare_b, starts_b, bounds).view(floats.dtype)
        scores[s] = cost_row(row_a, row_b, p)


@compiled
def _slope_rows(
    a: Words,
    b: Words,
    p: float,
    factor: float,
    scores: Floats,
    slopes_a: Floats,
    slopes_b: Floats,
    bounds: Indices | None,
) -> None:
    """As `_score_rows`, and the derivatives of `factor * score` by every projection."""
    n, m = a.shape[1], b.shape[1]
    starts_a, starts_b = counters(a), counters(b)
    work_a, spare_a = np.empty(n, dtype=a.dtype), np.empty(n, dtype=a.dtype)
    work_b, spare_b = np.empty(m, dtype=b.dtype), np.empty(m, dtype=b.dtype)
    place_a, rest_a = np.empty(n, dtype=np.uint32), np.empty(n, dtype=np.uint32)
    place_b, rest_b = np.empty(m, dtype=np.uint32), np.empty(m, dtype=np.uint32)
    unit = 1.0 / np.float64(n) / np.float64(m)
    for s in range(a.shape[0]):
        keys_a, at_a = order_row(a[s], work_a, spare_a, place_a, rest_a, starts_a, bounds)
        keys_b, at_b = order_row(b[s], work_b, spare_b, place_b, rest_b, starts_b, bounds)
        row_a, row_b = keys_a.view(slopes_a.dtype), keys_b.view(slopes_b.dtype)
        slopes_a[s, :] = 0.0
        slopes_b[s, :] = 0.0
        total = 0.0
        i, j, left_i, left_j = 0, 0, m, n
        while i < n:
            mass = min(left_i, left_j)
            total += mass * line_cost(row_a[i], row_b[j], p)
            pull = factor * unit * mass * line_slope(row_a[i], row_b[j], p)
            slopes_a[s, at_a[i]] += pull
            slopes_b[s, at_b[j]] -= pull
            left_i -= mass
            left_j -= mass
            if left_i == 0:
                i, left_i = i + 1, m
            if left_j == 0:
                j, left_j = j + 1, n
        scores[s] = factor * unit * total


@compiled
def _number(index: Words, n: int) -> None:
    """Write row numbers; those below the last point are never used, and are those of a point all the same."""
    for i in range(index.shape[0]):
        index[i] = min(i, n - 1)


@compiled
def _slope_columns(
    a: Floats,
    b: Floats,
    index_a: Words,
    index_b: Words,
    p: float,
    factor: float,
    first: int,
    slopes_a: Floats,
    slopes_b: Floats,
) -> None:
    """Derivatives of `factor * score` into the rows of slopes from the first on; sorts the columns."""
    (slices, n), m = slopes_a.shape, slopes_b.shape[1]
    count = min(a.shape[1], slices - first)
    _number(index_a, n)
    _number(index_b, m)
    sort_columns(a, index_a, n)
    sort_columns(b, index_b, m)
    if n == m:
        pull = factor / np.float64(n)
        for i in range(n):
            for k in range(count):
                slope = pull * line_slope(a[i, k], b[i, k], p)
                slopes_a[first + k, index_a[i, k]] = slope
                slopes_b[first + k, index_b[i, k]] = -slope
        return
    slopes_a[first : first + count] = 0.0
    slopes_b[first : first + count] = 0.0
    unit = factor / np.float64(n) / np.float64(m)
    i, j, left_i, left_j = 0, 0, m, n
    while i < n:
        mass = min(left_i, left_j)
        for k in range(count):
            slope = mass * unit * line_slope(a[i, k], b[j, k], p)
            slopes_a[first + k, index_a[i, k]] += slope
            slopes_b[first + k, index_b[j, k]] -= slope
        left_i -= mass
        left_j -= mass
        if left_i == 0:
            i, left_i = i + 1, m
        if left_j == 0:
            j, left_j = j + 1, n


@compiled
def _slope_short_rows(
    a: Floats,
    b: Floats,
    p: float,
    factor: float,
    scores: Floats,
    slopes_a: Floats,
    slopes_b: Floats,
    places: Words,
) -> None:
    """As `_score_short_rows`, times a factor, and derivatives by every projection; `places` gives a type."""
    (slices, n), m = a.shape, b.shape[1]
    room_a, room_b = _room(n, a), _room(m, a)
    index_a, index_b = np.empty(room_a.shape, dtype=places.dtype), np.empty(room_b.shape, dtype=places.dtype)
    sums = np.empty(room_a.shape[1])
    for first in range(0, slices, sums.size):
        with_nan = _take_lanes(a, first, room_a) | _take_lanes(b, first, room_b)
        _slope_columns(room_a, room_b, index_a, index_b, p, factor, first, slopes_a, slopes_b)
        _price_columns(room_a, room_b, n, m, p, sums)
        for k in range(min(sums.size, slices - first)):
            scores[first + k] = factor * sums[k]
            if with_nan >> k & 1:
                scores[first + k] = slopes_a[first + k, :] = slopes_b[first + k, :] = np.nan


@compiled
def _slope_points(
    x: Floats,
    y: Floats,
    theta: Floats,
    p: float,
    factor: float,
    slopes_x: Floats,
    slopes_y: Floats,
    places: Words,
) -> float:
    """The summed costs of clouds on the rows of `theta`; and derivatives of `factor * cost` by projections."""
    n, m, (slices, dim) = x.shape[0], y.shape[0], theta.shape
    a, b = _room(n, x), _room(m, x)
    index_a, index_b = np.empty(a.shape, dtype=places.dtype), np.empty(b.shape, dtype=places.dtype)
    lanes, sums, total = np.empty((dim, a.shape[1]), dtype=x.dtype), np.empty(a.shape[1]), 0.0
    for first in range(0, slices, lanes.shape[1]):
        _take_directions(theta, first, lanes)
        _project(x, lanes, a)
        _project(y, lanes, b)
        _slope_columns(a, b, index_a, index_b, p, factor, first, slopes_x, slopes_y)
        _price_columns(a, b, n, m, p, sums)
        for k in range(min(sums.size, slices - first)):
            total += sums[k]
    return total


@compiled
def _order_rows(a: Words, index: Indices, bounds: Indices | None) -> None:
    n = a.shape[1]
    starts = counters(a)
    keys, spare = np.empty(n, dtype=a.dtype), np.empty(n, dtype=a.dtype)
    place, rest = np.empty(n, dtype=np.uint32), np.empty(n, dtype=np.uint32)
    for s in range(a.shape[0]):
        _, found = order_row(a[s], keys, spare, place, rest, starts, bounds)
        for k in range(n):
            index[s, k] = found[k]


def as_bits(a: Floats) -> Words:
    """Rows as unsigned integers of the same width."""
    return np.ascontiguousarray(a).view(np.uint32 if a.itemsize == 4 else np.uint64)


def score_projections(px: Floats, py: Floats, p: float) -> Floats:
    """Costs on the line of `px (slices, n)` against `py (slices, m)`, float64 `(slices,)`; may sort them.

    Examples
    --------
    >>> score_projections(np.array([[3.0, 1.0]]), np.array([[2.0, 5.0]]), 1.0).tolist()
    [1.5]
    """
    scores = np.empty(px.shape[0])
    longest = max(px.shape[1], py.shape[1])
    if longest <= LONGEST_COLUMN:
        _score_short_rows(plain(px), plain(py), p, scores)
    else:
        a, b = as_bits(px), as_bits(py)
        _score_rows(a, b, p, scores, np.empty(0, dtype=px.dtype), piece_bounds(longest, a.itemsize))
    return scores


def plain(a: Floats) -> Floats:
    """The array row by row in memory and writable: others are types of their own, to be compiled anew."""
    flags = a.flags
    return a if flags.c_contiguous and flags.writeable else np.array(a, order="C")


def score_points(x: Floats, y: Floats, theta: Floats, p: float) -> Floats:
    """As :func:`score_projections`, of clouds `x (n, dim)`, `y (m, dim)` on `theta (slices, dim)`.

    Projections are made as columns, a vector of them at a time, and never leave the cache.
    """
    return score_fit_points(x, y, theta, p, _PLACES[x.itemsize], 0.0)[1]


def score_fit_points(
    x: Floats, y: Floats, theta: Floats, p: float, limits: Words, rounding: float
) -> tuple[float, Floats]:
    """The same, and their sum first, which is -1 if :func:`are_fit` says no to limits, if there are any."""
    scores = np.empty(len(theta))
    return _score_columns(plain(x), plain(y), plain(theta), p, scores, limits, rounding), scores


def slope_points(x: Floats, y: Floats, theta: Floats, p: float, factor: float) -> tuple[float, Floats, Floats]:
    """The sum of :func:`score_points`, and the derivatives of `factor` times each score by every projection."""
    slopes = np.empty((len(theta), len(x)), dtype=x.dtype), np.empty((len(theta), len(y)), dtype=x.dtype)
    places = _PLACES[x.itemsize]
    return _slope_points(plain(x), plain(y), plain(theta), p, factor, *slopes, places), *slopes


def slope_projections(px: Floats, py: Floats, p: float, factor: float) -> tuple[Floats, Floats, Floats]:
    """`factor` times the costs on the line, and their derivatives by `px` and `py`."""
    scores = np.empty(px.shape[0])
    slopes = np.empty(px.shape, dtype=px.dtype), np.empty(py.shape, dtype=py.dtype)
    longest = max(px.shape[1], py.shape[1])
    if longest <= LONGEST_INDEXED:
        _slope_short_rows(plain(px), plain(py), p, factor, scores, *slopes, _PLACES[px.itemsize])
    else:
        a, b = as_bits(px), as_bits(py)
        _slope_rows(a, b, p, factor, scores, *slopes, piece_bounds(longest, a.itemsize))
    return scores, *slopes


def order_projections(projections: Floats) -> Indices:
    """The stable order of every row of `projections (slices, n)`, as int64.

    Examples
    --------
    >>> order_projections(np.array([[2.0, -1.0, 2.0, 0.0]])).tolist()
    [[1, 3, 0, 2]]
    """
    index = np.empty(projections.shape, dtype=np.int64)
    bits = as_bits(projections)
    _order_rows(bits, index, piece_bounds(bits.shape[1], bits.itemsize))
    return index
