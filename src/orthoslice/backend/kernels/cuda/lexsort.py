"""The lexicographic order of points on an NVIDIA GPU; the reference is one stable sort a coordinate."""

from __future__ import annotations

import functools

from orthoslice.backend.array_types import Tensor
from orthoslice.backend.kernels.cuda import Kernel, Program, bind, empty

# Threads of a block, and points that it sorts.
_THREADS, _TILE = 1024, 2048
_PROGRAM = Program("lexsort", (("THREADS", _THREADS), ("TILE", _TILE)))
_SORT_TILES = Kernel("sort_tiles", 3, "iii")
_MERGE_RUNS = Kernel("merge_runs", 4, "iiiii")


def lexicographic_order(points: Tensor) -> Tensor:
    """The order of the points of every cloud of `points (clouds, n, dim)`, int64 `(clouds, n)`."""
    points = points.contiguous()
    clouds, n, dim = points.shape
    # Orders, and room for as many.
    room = empty(points, (2, clouds, n), "int64")
    order_clouds = ordering(points.get_device(), clouds, n, dim)
    order_clouds(points, points.data_ptr() + 4 * n * dim, room.data_ptr())
    return room[0]


class Ordering:
    """Lexicographic orders of clouds `(clouds, n, dim)`."""

    def __init__(self, device: int, clouds: int, n: int, dim: int) -> None:
        tiles, parts = -(-n // _TILE), -(-n // _THREADS)
        lengths = [_TILE << k for k in range((tiles - 1).bit_length())]
        sizes, self._bytes = (n, dim, parts), 8 * clouds * n
        self._sort = bind(_SORT_TILES, _PROGRAM, device, clouds * tiles, _THREADS, 8 * _TILE, n, dim, tiles)
        self._merges = [
            bind(
                _MERGE_RUNS,
                _PROGRAM,
                device,
                clouds * parts,
                _THREADS,
                0,
                *sizes,
                length,
                length == lengths[-1],
            )
            for length in lengths
        ]

    def __call__(self, first: Tensor, rest: Tensor, room: int) -> None:
        """Takes the first cloud and the rest, which follow one another; then room for twice the orders, int64.

        The orders come first.
        """
        places = room, room + self._bytes
        now = len(self._merges) % 2
        self._sort(first, rest, places[now])
        for merge in self._merges:
            merge(first, rest, places[now], places[1 - now])
            now = 1 - now


@functools.lru_cache(maxsize=256)
def ordering(device: int, clouds: int, n: int, dim: int) -> Ordering:
    """An :class:`Ordering`, kept for the next time."""
    return Ordering(device, clouds, n, dim)
