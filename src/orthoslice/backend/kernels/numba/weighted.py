"""Couplings of weighted clouds in host memory, by a merge of their quantiles over exact integer masses.

Both clouds are walked through in their order. At every step the point whose cumulative mass ends first is used
up, that of x where two end together. With a `slack`, points that end within it of each other are used up in the
opposite order. The plain references are those of `orthoslice.costs.weighted.weighted_slopes`,
`orthoslice.couplings.coupling.merge_quantiles` and `orthoslice.estimates.population.study_lines`.
"""

from __future__ import annotations

import numpy as np

from orthoslice.backend.array_types import Flags, Floats, Indices, Words
from orthoslice.backend.kernels.numba._compile import compiled
from orthoslice.backend.kernels.numba.sliced import as_bits, cost_row, line_cost, line_slope
from orthoslice.backend.kernels.numba.sorting import counters
from orthoslice.backend.kernels.numba.splitting import order_row, piece_bounds

_UNIT = 2.0**-62


@compiled
def _add_up(mass: Indices, order: Indices, ends: Indices) -> None:
    """Cumulative masses of points taken in this order."""
    total = np.int64(0)
    for k in range(order.size):
        total += mass[order[k]]
        ends[k] = total


@compiled
def _turn_round(takes: Flags, first: int, stop: int) -> None:
    """Turn a part of a row round."""
    for k in range((stop - first) // 2):
        low, high = first + k, stop - 1 - k
        takes[low], takes[high] = takes[high], takes[low]


@compiled
def _walk(ends_a: Indices, ends_b: Indices, slack: int, takes_a: Flags, ends: Indices) -> None:
    """Which cloud's point is used up at every step, and the mass moved by then; no slack is -1."""
    n, m = ends_a.size, ends_b.size
    first, last, i, j = 0, np.int64(0), np.int64(0), np.int64(0)
    for k in range(n + m):
        takes = i < n and (j == m or ends_a[i] <= ends_b[j])
        end = ends_a[i] if takes else ends_b[j]
        if slack >= 0 and end - last > slack:
            _turn_round(takes_a, first, k)
            first = k
        takes_a[k] = takes
        ends[k] = end
        last = end
        i += np.int64(takes)
        j += np.int64(not takes)
    if slack >= 0:
        _turn_round(takes_a, first, n + m)


@compiled
def _cost(a: Floats, ends_a: Indices, b: Floats, ends_b: Indices, p: float) -> float:
    """What it costs to move the sorted points `a` onto `b`."""
    total, last, i, j = 0.0, np.int64(0), np.int64(0), np.int64(0)
    while i < a.size and j < b.size:
        end_a, end_b = ends_a[i], ends_b[j]
        end = min(end_a, end_b)
        total += np.float64(end - last) * line_cost(a[i], b[j], p)
        last = end
        # Branch-free: which point ends first is unpredictable.
        i += np.int64(end_a <= end_b)
        j += np.int64(end_b < end_a)
    # Points that are left have no mass.
    return total * _UNIT


@compiled
def _put_slopes(
    a: Floats,
    at_a: Words,
    ends_a: Indices,
    b: Floats,
    at_b: Words,
    ends_b: Indices,
    p: float,
    factor: float,
    out_a: Floats,
    out_b: Floats,
) -> None:
    """The derivatives of `factor` times the cost, each at the place its point came from."""
    out_a[:] = 0
    out_b[:] = 0
    last, i, j = np.int64(0), np.int64(0), np.int64(0)
    pull_a, pull_b = 0.0, 0.0
    while i < a.size and j < b.size:
        end_a, end_b = ends_a[i], ends_b[j]
        end = min(end_a, end_b)
        pull = factor * _UNIT * np.float64(end - last) * line_slope(a[i], b[j], p)
        last = end
        pull_a += pull
        pull_b -= pull
        # Branch-free: partial sums are written at every step, and the last write is complete.
        out_a[at_a[i]] = pull_a
        out_b[at_b[j]] = pull_b
        i += np.int64(end_a <= end_b)
        j += np.int64(end_b < end_a)
        pull_a = 0.0 if end_a <= end_b else pull_a
        pull_b = 0.0 if end_b < end_a else pull_b


@compiled
def _add_potentials(
    a: Floats,
    at_a: Words,
    b: Floats,
    at_b: Words,
    takes_a: Flags,
    p: float,
    factor: float,
    out_a: Floats,
    out_b: Floats,
) -> None:
    """Add the derivatives of `factor` times the cost by the masses of the points; each side's mean is 0.

    A point that gains mass pushes the ends of all that follow, so its slope is the sum of the costs' rises
    where points before it end.
    """
    n, m = a.size, b.size
    i, j = 0, 0
    height_a, height_b, sum_a, sum_b = 0.0, 0.0, 0.0, 0.0
    cost = factor * line_cost(a[0], b[0], p)
    for k in range(n + m):
        if takes_a[k]:
            out_a[at_a[i]] += height_a
            sum_a += height_a
            i += 1
        else:
            out_b[at_b[j]] += height_b
            sum_b += height_b
            j += 1
        before = cost
        cost = factor * line_cost(a[min(i, n - 1)], b[min(j, m - 1)], p)
        if takes_a[k]:
            height_a += cost - before
        else:
            height_b += cost - before
    out_a -= sum_a / n
    out_b -= sum_b / m


@compiled
def _slope_rows(
    bits_a: Words,
    bits_b: Words,
    mass_a: Indices,
    mass_b: Indices,
    p: float,
    factor: float,
    slack: int,
    scores: Floats,
    slopes_a: Floats,
    slopes_b: Floats,
    potentials_a: Floats,
    potentials_b: Floats,
    bounds: Indices | None,
) -> None:
    """Costs of rows given as bits, in the floating type of the slopes; outputs without rows are skipped."""
    n, m, batch = bits_a.shape[1], bits_b.shape[1], mass_a.shape[0]
    starts_a, starts_b = counters(bits_a), counters(bits_b)
    work_a, spare_a = np.empty(n, dtype=bits_a.dtype), np.empty(n, dtype=bits_a.dtype)
    work_b, spare_b = np.empty(m, dtype=bits_b.dtype), np.empty(m, dtype=bits_b.dtype)
    place_a, rest_a = np.empty(n, dtype=np.uint32), np.empty(n, dtype=np.uint32)
    place_b, rest_b = np.empty(m, dtype=np.uint32), np.empty(m, dtype=np.uint32)
    ends_a, ends_b = np.empty(n, dtype=np.int64), np.empty(m, dtype=np.int64)
    takes_a, ends = np.empty(n + m, dtype=np.bool_), np.empty(n + m, dtype=np.int64)
    for s in range(bits_a.shape[0]):
        keys_a, at_a = order_row(bits_a[s], work_a, spare_a, place_a, rest_a, starts_a, bounds)
        keys_b, at_b = order_row(bits_b[s], work_b, spare_b, place_b, rest_b, starts_b, bounds)
        a, b = keys_a.view(slopes_a.dtype), keys_b.view(slopes_b.dtype)
        _add_up(mass_a[s % batch], at_a, ends_a)
        _add_up(mass_b[s % batch], at_b, ends_b)
        scores[s] = factor * _cost(a, ends_a, b, ends_b, p)
        if slopes_a.shape[0] > 0:
            _put_slopes(a, at_a, ends_a, b, at_b, ends_b, p, factor, slopes_a[s], slopes_b[s])
        if potentials_a.shape[0] > 0:
            out_a, out_b = potentials_a[s % batch], potentials_b[s % batch]
            _walk(ends_a, ends_b, slack, takes_a, ends)
            _add_potentials(a, at_a, b, at_b, takes_a, p, factor, out_a, out_b)


@compiled
def _merge_rows(
    order_a: Indices,
    order_b: Indices,
    mass_a: Indices,
    mass_b: Indices,
    slack: int,
    ia: Indices,
    ib: Indices,
    mass: Floats,
    takes: Flags,
) -> None:
    n, m, batch = order_a.shape[1], order_b.shape[1], mass_a.shape[0]
    ends_a, ends_b = np.empty(n, dtype=np.int64), np.empty(m, dtype=np.int64)
    ends = np.empty(n + m, dtype=np.int64)
    for s in range(order_a.shape[0]):
        _add_up(mass_a[s % batch], order_a[s], ends_a)
        _add_up(mass_b[s % batch], order_b[s], ends_b)
        _walk(ends_a, ends_b, slack, takes[s], ends)
        last, i, j = np.int64(0), np.int64(0), np.int64(0)
        for k in range(n + m):
            ia[s, k] = order_a[s, min(i, n - 1)]
            ib[s, k] = order_b[s, min(j, m - 1)]
            mass[s, k] = np.float64(ends[k] - last) * _UNIT
            last = ends[k]
            i += np.int64(takes[s, k])
            j += np.int64(not takes[s, k])


@compiled
def _deal(row: Floats, at: Words, is_first: Flags, one: Floats, other: Floats) -> np.int64:
    """Split a sorted row into two halves, which stay sorted; returns the size of the first."""
    i, j = np.int64(0), np.int64(0)
    for k in range(row.size):
        mine = np.int64(is_first[at[k]])
        # Branch-free: write to both halves, advance one counter. The branch would be unpredictable.
        one[i] = row[k]
        other[j] = row[k]
        i += mine
        j += 1 - mine
    return i


@compiled
def _study_rows(
    bits_a: Words,
    bits_b: Words,
    first_a: Flags,
    first_b: Flags,
    takes_a: Flags,
    p: float,
    scores: Floats,
    halves: Floats,
    potentials_a: Floats,
    potentials_b: Floats,
    bounds: Indices | None,
) -> None:
    n, m, batch = bits_a.shape[1], bits_b.shape[1], potentials_a.shape[0]
    starts_a, starts_b = counters(bits_a), counters(bits_b)
    work_a, spare_a = np.empty(n, dtype=bits_a.dtype), np.empty(n, dtype=bits_a.dtype)
    work_b, spare_b = np.empty(m, dtype=bits_b.dtype), np.empty(m, dtype=bits_b.dtype)
    place_a, rest_a = np.empty(n, dtype=np.uint32), np.empty(n, dtype=np.uint32)
    place_b, rest_b = np.empty(m, dtype=np.uint32), np.empty(m, dtype=np.uint32)
    # One extra place: the last point is written to both halves and counted in one.
    a1, a2, b1, b2 = np.empty(n + 1), np.empty(n + 1), np.empty(m + 1), np.empty(m + 1)
    for s in range(bits_a.shape[0]):
        keys_a, at_a = order_row(bits_a[s], work_a, spare_a, place_a, rest_a, starts_a, bounds)
        keys_b, at_b = order_row(bits_b[s], work_b, spare_b, place_b, rest_b, starts_b, bounds)
        a, b = keys_a.view(np.float64), keys_b.view(np.float64)
        scores[s] = cost_row(a, b, p)
        _add_potentials(a, at_a, b, at_b, takes_a, p, 1.0, potentials_a[s % batch], potentials_b[s % batch])
        i, j = _deal(a, at_a, first_a, a1, a2), _deal(b, at_b, first_b, b1, b2)
        halves[s] = (cost_row(a1[:i], b1[:j], p) + cost_row(a2[: n - i], b2[: m - j], p)) / 2


def study_rows(
    px: Floats, py: Floats, p: float, first_x: Flags, first_y: Flags, batch: int
) -> tuple[Floats, Floats, Floats, Floats]:
    """Costs on the line, the mean costs of both halves, and the summed potentials of both sides.

    Parameters
    ----------
    px, py
        Projections `(slices * batch, n)` and `(slices * batch, m)` of float64, the batch inside.
    p
        The power.
    first_x, first_y
        Which points are in the first halves, bool `(n,)` and `(m,)`.
    batch
        How many clouds there are; each has potentials of its own.

    Returns
    -------
    scores, halves, by_x, by_y
        `(slices * batch,)` twice, then `(batch, n)` and `(batch, m)`: the slopes of the summed scores by the
        masses of the points, with mean 0.

    Examples
    --------
    >>> px, py = np.array([[4.0, 1.0]]), np.array([[2.0, 5.0]])
    >>> first = np.array([True, False])
    >>> scores, halves, by_x, _ = study_rows(px, py, 2.0, first, first, 1)
    >>> scores.tolist(), halves.tolist(), by_x.tolist()
    ([1.0], [10.0], [[1.5, -1.5]])
    """
    n, m = px.shape[1], py.shape[1]
    # Points of x and y end in this order on every line, x first where both end at once.
    ends = np.concatenate([np.arange(1, n + 1) * m, np.arange(1, m + 1) * n])
    takes_x = np.argsort(ends, kind="stable") < n
    scores, halves = np.empty(len(px)), np.empty(len(px))
    by_x, by_y = np.zeros((batch, n)), np.zeros((batch, m))
    a, b = as_bits(px), as_bits(py)
    bounds = piece_bounds(max(a.shape[1], b.shape[1]), a.itemsize)
    _study_rows(a, b, first_x, first_y, takes_x, float(p), scores, halves, by_x, by_y, bounds)
    return scores, halves, by_x, by_y


def slope_weighted(
    px: Floats,
    py: Floats,
    mass_x: Indices,
    mass_y: Indices,
    p: float,
    factor: float,
    slack: int | None,
    wanted: tuple[bool, bool],
) -> tuple[Floats, tuple[Floats, Floats], tuple[Floats, Floats]]:
    """`factor` times the costs on the line, their slopes by the projections, and summed slopes by the masses.

    Parameters
    ----------
    px, py
        Projections `(slices * batch, n)` and `(slices * batch, m)`, the batch inside.
    mass_x, mass_y
        Integer masses `(batch, n)` and `(batch, m)`, each row 2**62 in all.
    slack
        In units of mass: points that end within it of each other are taken the other way round, or None.
    wanted
        Whether slopes by the projections, and by the masses, are wanted; they are empty otherwise.

    Examples
    --------
    >>> mass = np.array([[1 << 61, 1 << 61]])
    >>> px, py = np.array([[3.0, 1.0]]), np.array([[2.0, 5.0]])
    >>> scores, (by_px, _), _ = slope_weighted(px, py, mass, mass, 1.0, 1.0, None, (True, False))
    >>> scores.tolist(), by_px.tolist()
    ([1.5], [[-0.5, -0.5]])
    """
    scores = np.empty(px.shape[0])
    by_px, by_py = (np.empty(a.shape if wanted[0] else (0, 0), dtype=a.dtype) for a in (px, py))
    by_x, by_y = (np.zeros(a.shape if wanted[1] else (0, 0)) for a in (mass_x, mass_y))
    a, b = as_bits(px), as_bits(py)
    mass_a, mass_b = np.ascontiguousarray(mass_x), np.ascontiguousarray(mass_y)
    slack, bounds = -1 if slack is None else slack, piece_bounds(max(a.shape[1], b.shape[1]), a.itemsize)
    _slope_rows(a, b, mass_a, mass_b, p, factor, slack, scores, by_px, by_py, by_x, by_y, bounds)
    return scores, (by_px, by_py), (by_x, by_y)


def merge_orders(
    order_x: Indices, order_y: Indices, mass_x: Indices, mass_y: Indices, slack: int | None
) -> tuple[Indices, Indices, Floats, Flags]:
    """Pairs of every row: indices into x and y, masses, and whether a point of x is used up.

    Orders `(slices * batch, n)` and `(slices * batch, m)`, masses and slack as in :func:`slope_weighted`.

    Examples
    --------
    >>> order, mass = np.array([[1, 0]]), np.array([[1 << 61, 1 << 61]])
    >>> [a.tolist() for a in merge_orders(order, order, mass, mass, None)[:3]]
    [[[1, 0, 0, 0]], [[1, 1, 0, 0]], [[0.5, 0.0, 0.5, 0.0]]]
    """
    a, b, mass_a, mass_b = (np.ascontiguousarray(t) for t in (order_x, order_y, mass_x, mass_y))
    shape = order_x.shape[0], order_x.shape[1] + order_y.shape[1]
    ix, iy = np.empty(shape, dtype=np.int64), np.empty(shape, dtype=np.int64)
    mass, ends_x = np.empty(shape), np.empty(shape, dtype=np.bool_)
    _merge_rows(a, b, mass_a, mass_b, -1 if slack is None else slack, ix, iy, mass, ends_x)
    return ix, iy, mass, ends_x
