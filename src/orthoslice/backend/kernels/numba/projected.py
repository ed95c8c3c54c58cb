"""Small clouds on all directions of a projected step: ordered, coupled and priced in one call.

The plain reference is the score `Exact` of `orthoslice.costs.scores`, which knows what to do with ties: here
points are not in the order that decides them, and clouds whose projections may tie are left to it.
"""

from __future__ import annotations

import numpy as np

from orthoslice.backend.array_types import Floats, Indices
from orthoslice.backend.kernels.numba._compile import compiled
from orthoslice.backend.kernels.numba.pairs import pair_gradients
from orthoslice.backend.kernels.numba.ties import order_rows

# Squares of shorter lengths underflow: projections that are no further apart are taken to tie.
_SHORTEST = 2.0**-500


@compiled
def _widest_tie(points: Floats) -> float:
    """How far apart projections of tied points may be: at least twice the largest of `roundings`."""
    n, dim = points.shape
    largest = 0.0
    for i in range(n):
        square = 0.0
        for k in range(dim):
            square += np.float64(points[i, k]) * np.float64(points[i, k])
        largest = max(largest, square)
    return float(2 * (dim + 9) * 2.0**-53 * np.sqrt(largest) + _SHORTEST)


@compiled
def _order_apart(rows: Floats, points: Floats, index: Indices) -> bool:
    """Write the order of every row of projections; False where neighbours are so close that they may tie."""
    slices, n = rows.shape
    reach = _widest_tie(points)
    if order_rows(rows, np.zeros((1, n)), np.zeros(1), index, 0, None) < slices:
        return False
    are_apart = True
    for s in range(slices):
        for k in range(1, n):
            # NaN counts as close.
            are_apart &= rows[s, index[s, k]] - rows[s, index[s, k - 1]] > reach
    return are_apart


@compiled
def price_apart(
    x: Floats,
    y: Floats,
    px: Floats,
    py: Floats,
    ranks_x: Indices,
    ranks_y: Indices,
    mass: Floats,
    p: float,
    out_scores: Floats,
    gx: Floats,
    gy: Floats,
) -> bool:
    """Scores of the couplings that projections induce; False, and nothing else, where some of them may tie.

    Parameters
    ----------
    x, y
        Clouds `(n, dim)` and `(m, dim)`.
    px, py
        Their projections in float64, `(slices, n)` and `(slices, m)`.
    ranks_x, ranks_y, mass
        Which ranks make a pair, and what it carries, `(pairs,)`.
    p
        The power.
    out_scores
        `(slices,)`; overwritten.
    gx, gy
        As in :func:`orthoslice.backend.kernels.numba.pairs.pair_gradients`.

    Examples
    --------
    >>> x, y = np.array([[0.0, 0.0], [3.0, 0.0]]), np.array([[3.0, 4.0], [0.0, 1.0]])
    >>> theta, ranks, scores, none = np.eye(2)[:1], np.arange(2), np.empty(1), np.empty((0, 2))
    >>> pairs = ranks, ranks, np.full(2, 0.5)
    >>> price_apart(x, y, theta @ x.T, theta @ y.T, *pairs, 1.0, scores, none, none), scores.tolist()
    (True, [2.5])
    >>> price_apart(x, y, theta @ x.T, 0 * theta @ y.T, *pairs, 1.0, scores, none, none)
    False
    """
    slices, n_pairs = px.shape[0], ranks_x.size
    order_x, order_y = np.empty(px.shape, dtype=np.int64), np.empty(py.shape, dtype=np.int64)
    if not (_order_apart(px, x, order_x) and _order_apart(py, y, order_y)):
        return False
    ix, iy = np.empty((slices, n_pairs), dtype=np.int64), np.empty((slices, n_pairs), dtype=np.int64)
    for s in range(slices):
        for k in range(n_pairs):
            ix[s, k], iy[s, k] = order_x[s, ranks_x[k]], order_y[s, ranks_y[k]]
    pair_gradients(x, y, ix, iy, mass, p, out_scores, gx, gy)
    return True
