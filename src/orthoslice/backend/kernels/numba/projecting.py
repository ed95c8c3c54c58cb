"""Projections whose every digit is decided by the point and the direction alone.

The plain reference is that of `steady_product` in `orthoslice.directions.base`.
"""

from __future__ import annotations

import numpy as np

from orthoslice.backend.array_types import Floats
from orthoslice.backend.kernels.numba._compile import compiled

# Points at a time: they stay in a core's first cache for all coordinates and directions.
_POINTS = 1 << 8


@compiled
def _project(theta: Floats, points: Floats, rows: Floats) -> None:
    for first in range(0, points.shape[0], _POINTS):
        few = points[first : first + _POINTS]
        for s in range(theta.shape[0]):
            row = rows[s, first : first + _POINTS]
            factor, column = theta[s, 0], few[:, 0]
            for k in range(row.size):
                row[k] = factor * column[k]
            # One product after the other, and not fused with its sum: the same digits on every processor.
            for j in range(1, theta.shape[1]):
                factor, column = theta[s, j], few[:, j]
                for k in range(row.size):
                    row[k] += factor * column[k]


def project_points(theta: Floats, points: Floats) -> Floats:
    """Projections `(slices, n)` of `points (n, dim)` on `theta (slices, dim)`.

    Examples
    --------
    >>> project_points(np.array([[0.6, 0.8]]), np.array([[1.0, 0.0], [5.0, 10.0]])).tolist()
    [[0.6, 11.0]]
    """
    rows = np.empty((theta.shape[0], points.shape[0]), dtype=points.dtype)
    _project(np.ascontiguousarray(theta), np.ascontiguousarray(points), rows)
    return rows
