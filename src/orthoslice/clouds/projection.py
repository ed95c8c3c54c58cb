"""Step 3: points projected on directions. Nothing else makes projections of a cloud."""

from __future__ import annotations

from typing import Any, Protocol, cast

import numpy as np

from orthoslice.backend.array_types import Rows
from orthoslice.backend.arrays import Array, is_widened, namespace, wide_float
from orthoslice.clouds.mapped import MappedPoints, Points, is_file


class Projector(Protocol):
    """Directions, or what stands in for them, by whose interface points are read a few at a time."""

    def project(self, points: Any, rows: Rows) -> Any:
        """Numbers `(slices, ..., n)` of points `(..., n, dim)`, for some rows."""


def project(points: Points, directions: Projector, rows: Rows, *, widely: bool = False) -> Array:
    """Projections `(slices, ..., n)` of points `(..., n, dim)` on some rows of the directions.

    `rows` is a slice or indices. With `widely`, in `wide_float` where that is cheap (`is_widened`), which must
    be the type of the directions: where the order of projections matters, float32 has too few digits and
    exchanges neighbours.

    Examples
    --------
    >>> from orthoslice.directions.base import DenseDirections
    >>> project(np.array([[1.0, 2.0], [3.0, 4.0]]), DenseDirections(np.eye(2)), slice(0, 1)).tolist()
    [[1.0, 3.0]]
    """
    xp = namespace(points)
    dtype = wide_float(points) if widely and is_widened(points) else points.dtype
    if isinstance(points, MappedPoints):
        return points.project(directions, rows, dtype)
    if is_file(points):
        return MappedPoints(points).project(directions, rows, dtype)
    if dtype == points.dtype or not isinstance(points, np.ndarray):
        return cast(Array, directions.project(xp.astype(points, dtype, copy=False), rows))
    # Points are widened a few at a time, as those in a file are read.
    flat = MappedPoints(points.reshape(-1, points.shape[-1])).project(directions, rows, dtype)
    return flat.reshape(-1, *points.shape[:-1])
