"""The sliced loss of clouds of a few times what a chip sorts, on an NVIDIA GPU, in few launches.

The reference is that of :mod:`.loss`.
"""

from __future__ import annotations

import functools

from orthoslice.backend.array_types import Tensor
from orthoslice.backend.kernels.cuda.rows import (
    adding,
    finishing,
    matching_sorted,
    parts_of,
    projecting,
    sorting_long_rows,
)


class MiddleStep:
    """The loss of clouds of `n` points against each other, for clouds that a chip does not sort in one go."""

    def __init__(self, device: int, n: int, dim: int, slices: int, p: float) -> None:
        parts = parts_of(n)
        self._project = projecting(device, slices, n, n, dim)
        self._sort = functools.partial(sorting_long_rows, device, 2 * slices, n)
        self._match = matching_sorted(device, slices, n, n, p, 1 / slices)
        self._add_up = adding(device, slices * parts)
        self._finish = {
            (of_x, of_y): finishing(device, slices, n * of_x, n * of_y, dim, parts=parts)
            for of_x, of_y in ((True, False), (False, True), (True, True))
        }
        self._n, self._dim = n, dim
        # Scores, of twice the width, to a multiple of 16 bytes; then projections of both clouds, and over them
        # their slopes; rows in order; and places.
        self._scores, self._rows = -(-slices * parts // 2) * 4, 2 * slices * n

    def __call__(
        self, x: Tensor, y: Tensor, theta: Tensor, step: Tensor | None, wanted: tuple[bool, bool]
    ) -> tuple[Tensor, Tensor | None]:
        """As :class:`.small.SmallStep`."""
        x, y, theta = x.contiguous(), y.contiguous(), theta.contiguous()
        of_x, of_y = wanted
        some = of_x or of_y
        sort, words = self._sort(some), self._scores + (3 if some else 2) * self._rows
        room = x.new_empty(words + sort.words)
        total = x.new_empty(())
        scores = room.data_ptr()
        size = 2 * self._rows
        rows = scores + 4 * self._scores
        keys, places = rows + 2 * size, rows + 4 * size
        self._project(x, y, theta, None, rows, rows + size)
        sort.run(scores + 4 * words, rows, keys, places if some else None)
        x_slopes, y_slopes = rows if of_x else 0, rows + size if of_y else 0
        self._match(keys, keys + size, places, places + size, scores, x_slopes, y_slopes)
        if not some:
            self._add_up(scores, total, step)
            return total, None
        gradient = x.new_empty((self._n * (of_x + of_y), self._dim))
        self._finish[wanted](x_slopes, y_slopes, theta, gradient, scores, total, step)
        return total, gradient
