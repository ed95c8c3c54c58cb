"""The lexicographic order of points on an NVIDIA GPU; the reference is one stable sort a coordinate."""

from __future__ import annotations

from orthoslice.backend.array_types import Tensor
from orthoslice.backend.kernels.cuda import Kernel, Launch, Program, bind, empty

_THREADS = 1024
_PROGRAM = Program("lexsort", (("THREADS", _THREADS),))
_ORDER = Kernel("lexicographic_order", 3, "ii")

LONGEST_CLOUD = 8192
"""More points than this are sorted elsewhere: a single block would be slow."""


def lexicographic_order(points: Tensor) -> Tensor:
    """The order of the points of every cloud of `points (clouds, n, dim)`, int64 `(clouds, n)`."""
    points = points.contiguous()
    clouds, n, dim = points.shape
    order = empty(points, (clouds, n), "int64")
    order_clouds = ordering(points.get_device(), clouds, n, dim)
    order_clouds(points, points.data_ptr() + 4 * n * dim, order)
    return order


def ordering(device: int, clouds: int, n: int, dim: int) -> Launch:
    """Takes the first cloud and the rest, which follow one another; then room for the orders, int64."""
    return bind(_ORDER, _PROGRAM, device, clouds, _THREADS, 8 * n, n, dim)
