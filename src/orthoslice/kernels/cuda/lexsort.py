"""The lexicographic order of points on an NVIDIA GPU; the reference is one stable sort a coordinate."""

from __future__ import annotations

from typing import Any

from orthoslice.kernels.cuda import Kernel, Program, empty

_THREADS = 1024
_PROGRAM = Program("lexsort", (("THREADS", _THREADS),))
_ORDER = Kernel("lexicographic_order", "PiiP")

LONGEST_CLOUD = 8192
"""Of more points a single block would be slow, and a coordinate's sort is not what takes the time."""


def lexicographic_order(points: Any) -> Any:
    """The order of the points of every cloud of `points (clouds, n, dim)`, int64 `(clouds, n)`."""
    points = points.contiguous()
    clouds, n, dim = points.shape
    order = empty(points, (clouds, n), "int64")
    _ORDER.launch(_PROGRAM, points, clouds, _THREADS, 8 * n, points, n, dim, order)
    return order
