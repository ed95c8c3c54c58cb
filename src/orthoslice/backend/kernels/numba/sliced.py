"""Costs on the line: sort, match and add up in one go, for uniform clouds in host memory.

Every kernel stands beside a plain reference: `orthoslice.costs.lines.sorted_scores` for the scores,
`numpy.argsort(kind="stable")` for the orders, and `orthoslice.costs.lines.sorted_slopes` for the slopes.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from orthoslice.backend.array_types import Floats, Indices, Words
from orthoslice.backend.kernels import LONGEST_SIMD
from orthoslice.backend.kernels.numba._compile import compiled, summing
from orthoslice.backend.kernels.numba.sorting import LANES, counters, sort_columns
from orthoslice.backend.kernels.numba.splitting import order_row, piece_bounds, sort_row

# A radix sort of this many rows takes as long as a network for all LANES columns. Measured on Zen 4.
_FEWEST_LANES = 32


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


@compiled
def _add_costs(row_a: Floats, row_b: Floats, mass: float, p: float, scores: Floats) -> None:
    if p == 2.0:
        for k in range(row_a.size):
            difference = np.float64(row_a[k] - row_b[k])
            scores[k] += mass * (difference * difference)
    else:
        for k in range(row_a.size):
            scores[k] += mass * line_cost(row_a[k], row_b[k], p)


@compiled
def _score_columns(a: Floats, b: Floats, p: float, scores: Floats) -> None:
    """Costs of the columns of `a (n, LANES)` against those of `b (m, LANES)`; sorts both."""
    sort_columns(a, a)
    sort_columns(b, b)
    n, m = a.shape[0], b.shape[0]
    scores[:] = 0.0
    i, j, left_i, left_j = 0, 0, m, n
    # Each point of a weighs m and each of b weighs n, in units of 1 / (n m).
    while i < n:
        mass = min(left_i, left_j)
        _add_costs(a[i], b[j], np.float64(mass), p, scores)
        left_i -= mass
        left_j -= mass
        if left_i == 0:
            i, left_i = i + 1, m
        if left_j == 0:
            j, left_j = j + 1, n
    for k in range(scores.size):
        scores[k] /= np.float64(n) * np.float64(m)


@compiled
def _cost_rows(a: Floats, b: Floats, p: float, scores: Floats) -> None:
    """Costs of the sorted rows of `a (slices, n)` against those of `b (slices, m)`."""
    for s in range(a.shape[0]):
        scores[s] = cost_row(a[s], b[s], p)


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
    if longest <= LONGEST_SIMD:
        px.sort(axis=-1)
        py.sort(axis=-1)
        _cost_rows(px, py, p, scores)
    else:
        a, b = as_bits(px), as_bits(py)
        _score_rows(a, b, p, scores, np.empty(0, dtype=px.dtype), piece_bounds(longest, a.itemsize))
    return scores


def score_points(x: Floats, y: Floats, theta: Floats, p: float) -> Floats:
    """As :func:`score_projections`, of middling clouds `x (n, dim)`, `y (m, dim)` on `theta (slices, dim)`.

    Projections are made as columns, LANES at a time, and never leave the cache. The last `slices % LANES` are
    sorted as rows if they are fewer than _FEWEST_LANES.
    """
    slices = theta.shape[0]
    in_columns = slices - slices % LANES if slices % LANES < _FEWEST_LANES else slices
    scores = np.empty(-(-slices // LANES) * LANES)
    for first in range(0, in_columns, LANES):
        lanes = np.zeros((theta.shape[1], LANES), dtype=theta.dtype)
        lanes[:, : slices - first] = theta[first : first + LANES].T
        _score_columns(x @ lanes, y @ lanes, p, scores[first : first + LANES])
    if in_columns < slices:
        rest = theta[in_columns:]
        scores[in_columns:slices] = score_projections(rest @ x.T, rest @ y.T, p)
    return scores[:slices]


def slope_projections(px: Floats, py: Floats, p: float, factor: float) -> tuple[Floats, Floats, Floats]:
    """`factor` times the costs on the line, and their derivatives by `px` and `py`."""
    scores = np.empty(px.shape[0])
    slopes = np.empty(px.shape, dtype=px.dtype), np.empty(py.shape, dtype=py.dtype)
    a, b = as_bits(px), as_bits(py)
    bounds = piece_bounds(max(a.shape[1], b.shape[1]), a.itemsize)
    _slope_rows(a, b, p, factor, scores, *slopes, bounds)
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
