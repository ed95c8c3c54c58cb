"""Walks over the directions of a layout, for those who do more with a projection than score two clouds."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from orthoslice.arrays import DType, Stream
from orthoslice.blocks import Layout
from orthoslice.directions import Sampler
from orthoslice.directions.base import Directions
from orthoslice.directions.drawing import Blocks, draw_blocks
from orthoslice.passes import cut_units


class Piece(NamedTuple):
    """Some consecutive rows of the directions."""

    first: int
    """The number of its first row among all."""
    rows: slice
    """Where its rows are in `directions`, which may hold more."""
    directions: Directions

    @property
    def n_rows(self) -> int:
        return int(self.rows.stop - self.rows.start)


def sweep_directions(
    sampler: Sampler, layout: Layout, stream: Stream, dim: int, dtype: DType, most_rows: int
) -> Iterator[Piece]:
    """All directions in order, at most `most_rows` at a time; a block is drawn once, when it is reached.

    They are those that the distances use for the same seed.

    Examples
    --------
    >>> import numpy as np
    >>> from orthoslice.directions import Orthogonal
    >>> stream = Stream.from_seed(0, np.zeros(1))
    >>> pieces = sweep_directions(Orthogonal(), Layout(10, 4), stream, 4, np.dtype(np.float64), 3)
    >>> [(piece.first, piece.n_rows) for piece in pieces]
    [(0, 2), (2, 2), (4, 2), (6, 2), (8, 2)]
    """
    drawn, key, first = None, None, 0
    for task in cut_units(layout, 0, layout.n_units, most_rows):
        if drawn is None or key != task[:3]:
            rows = min(layout.block_rows, task.drawn_rows)
            drawn = draw_blocks(Blocks(sampler, stream, task.block, task.n_blocks, rows, dim, dtype))
            key = task[:3]
        yield Piece(first, slice(task.row, task.row + task.n_rows), drawn)
        first += task.n_rows
