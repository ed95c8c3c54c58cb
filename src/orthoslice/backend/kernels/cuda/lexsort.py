"""The lexicographic order of points on an NVIDIA GPU; the reference is one stable sort a coordinate."""

from __future__ import annotations

import functools

from orthoslice.backend.array_types import Tensor
from orthoslice.backend.kernels.cuda import Kernel, Program, bind, empty

# Threads of a block, points that it sorts, and bytes of a point in an order.
_THREADS, _TILE, _BYTES = 512, 1024, 16
_PROGRAM = Program("lexsort", (("THREADS", _THREADS), ("TILE", _TILE)))
_SORT_TILES = Kernel("sort_tiles", 4, "iii")
_MERGE_RUNS = Kernel("merge_runs", 5, "iiii")


def lexicographic_order(points: Tensor) -> Tensor:
    """The order of the points of every cloud of `points (clouds, n, dim)`, int64 `(clouds, n)`."""
    points = points.contiguous()
    clouds, n, dim = points.shape
    order_clouds = ordering(points.get_device(), clouds, n, dim)
    order, room = empty(points, (clouds, n), "int64"), points.new_empty(order_clouds.words)
    order_clouds(points, points.data_ptr() + 4 * n * dim, order, room)
    return order


class Ordering:
    """Lexicographic orders of clouds `(clouds, n, dim)`."""

    def __init__(self, device: int, clouds: int, n: int, dim: int) -> None:
        tiles, parts = -(-n // _TILE), -(-n // _THREADS)
        self._bytes = _BYTES * clouds * n
        self._sort = bind(
            _SORT_TILES, _PROGRAM, device, clouds * tiles, _THREADS, _BYTES * _TILE, n, dim, tiles
        )
        self._merges = [
            bind(_MERGE_RUNS, _PROGRAM, device, clouds * parts, _THREADS, 0, n, dim, parts, _TILE << k)
            for k in range((tiles - 1).bit_length())
        ]
        self.words = 2 * self._bytes // 4 if self._merges else 0
        """Of working memory."""

    def __call__(self, first: Tensor, rest: Tensor, order: Tensor, room: Tensor) -> None:
        """Takes the first cloud and the rest, which follow one another; room for orders, and for work."""
        now = room.data_ptr()
        following = now + self._bytes
        self._sort(first, rest, now, None if self._merges else order)
        for merge in self._merges:
            merge(first, rest, now, following, order if merge is self._merges[-1] else None)
            now, following = following, now


@functools.lru_cache(maxsize=256)
def ordering(device: int, clouds: int, n: int, dim: int) -> Ordering:
    """An :class:`Ordering`, kept for the next time."""
    return Ordering(device, clouds, n, dim)
