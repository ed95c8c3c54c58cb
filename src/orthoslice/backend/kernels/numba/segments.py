"""Many clouds at once: their projections lie side by side in one row, each sorted in its own segment.

The plain references are those of `sort_segments`, `segment_costs` and `segment_space_costs` in
`orthoslice.costs.segments`.
"""

from __future__ import annotations

import itertools

import numpy as np

from orthoslice.backend.array_types import Floats, Indices, Words
from orthoslice.backend.kernels import LONGEST_SIMD
from orthoslice.backend.kernels.numba._compile import compiled, summing
from orthoslice.backend.kernels.numba.labels import space_cost
from orthoslice.backend.kernels.numba.sliced import as_bits, cost_row
from orthoslice.backend.kernels.numba.sorting import counters, put_row
from orthoslice.backend.kernels.numba.splitting import piece_bounds, sort_row


@compiled
def _sort_rows(rows: Floats, bits: Words, bounds: Indices | None) -> None:
    """Sort every row of `rows (slices, n)` in place; `bits` are the same rows as unsigned integers, copied."""
    starts = counters(bits)
    keys, spare = np.empty(bits.shape[1], dtype=bits.dtype), np.empty(bits.shape[1], dtype=bits.dtype)
    for s in range(rows.shape[0]):
        put_row(sort_row(bits[s], keys, spare, starts, bounds).view(rows.dtype), rows[s])


@compiled
def _add_costs(rows: Floats, starts: Indices, p: float, totals: Floats) -> None:
    clouds = starts.size - 1
    for s in range(rows.shape[0]):
        pair = 0
        for i in range(clouds):
            a = rows[s, starts[i] : starts[i + 1]]
            for j in range(i + 1, clouds):
                totals[pair] += cost_row(a, rows[s, starts[j] : starts[j + 1]], p)
                pair += 1


@summing
def _squares(a: Floats, b: Floats) -> float:
    total = 0.0
    for k in range(a.size):
        total += (a[k] - b[k]) * (a[k] - b[k])
    return total


@compiled
def _add_space_costs(points: Floats, order: Indices, starts: Indices, p: float, totals: Floats) -> None:
    clouds, dim = starts.size - 1, points.shape[1]
    # Points in the order of a direction: each is fetched once for all pairs, and clouds are contiguous.
    ordered = np.empty_like(points)
    flat = ordered.reshape(-1)
    ranks = np.arange(points.shape[0])
    for s in range(order.shape[0]):
        for k in range(order.shape[1]):
            put_row(points[order[s, k]], ordered[k])
        pair = 0
        for i in range(clouds):
            n = starts[i + 1] - starts[i]
            a = ranks[starts[i] : starts[i + 1]]
            for j in range(i + 1, clouds):
                if p == 2.0 and starts[j + 1] - starts[j] == n:
                    first, second = starts[i] * dim, starts[j] * dim
                    totals[pair] += _squares(flat[first : first + n * dim], flat[second : second + n * dim]) / n
                else:
                    totals[pair] += space_cost(ordered, a, ranks[starts[j] : starts[j + 1]], p)
                pair += 1


def sort_in_segments(rows: Floats, starts: Indices) -> None:
    """Sort each segment of every row in place.

    Parameters
    ----------
    rows
        Projections `(slices, points)` of all clouds, one after the other.
    starts
        Where clouds begin, and the number of points at the end: `(clouds + 1,)`.

    Examples
    --------
    >>> rows = np.array([[3.0, 1.0, 9.0, 8.0, 7.0]])
    >>> sort_in_segments(rows, np.array([0, 2, 5]))
    >>> rows.tolist()
    [[1.0, 3.0, 7.0, 8.0, 9.0]]
    """
    for first, stop in itertools.pairwise(starts):
        segment = rows[:, first:stop]
        if stop - first <= LONGEST_SIMD:
            segment.sort(axis=-1)
        else:
            _sort_rows(segment, as_bits(segment.copy()), piece_bounds(stop - first, rows.itemsize))


def add_segment_costs(rows: Floats, starts: Indices, p: float) -> Floats:
    """Costs on the line of all pairs of clouds, summed over slices: `(clouds (clouds - 1) / 2,)` of float64.

    Pairs are in the order (0, 1), (0, 2), ..., (1, 2), ... The segments must be sorted.

    Examples
    --------
    >>> add_segment_costs(np.array([[1.0, 3.0, 7.0, 9.0, 4.0]]), np.array([0, 2, 4, 5]), 1.0).tolist()
    [6.0, 2.0, 4.0]
    """
    clouds = starts.size - 1
    totals = np.zeros(clouds * (clouds - 1) // 2)
    _add_costs(rows, starts, p, totals)
    return totals


def add_segment_space_costs(points: Floats, order: Indices, starts: Indices, p: float) -> Floats:
    """As :func:`add_segment_costs`, in full space.

    Parameters
    ----------
    points
        All clouds, one after the other, float64 `(points, dim)`.
    order
        The points of every cloud in the order of a direction, `(slices, points)` of uint32.
    starts, p
        Where clouds begin, and the number of points at the end, `(clouds + 1,)`; the power.

    Examples
    --------
    >>> points = np.array([[0.0, 0.0], [1.0, 0.0], [3.0, 4.0], [1.0, 1.0]])
    >>> order = np.array([[0, 1, 3, 2]], dtype=np.uint32)
    >>> add_segment_space_costs(points, order, np.array([0, 2, 4]), 2.0).tolist()
    [11.0]
    """
    clouds = starts.size - 1
    totals = np.zeros(clouds * (clouds - 1) // 2)
    _add_space_costs(points, order, starts, float(p), totals)
    return totals
