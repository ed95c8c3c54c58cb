"""Walks over the directions of a layout, for uses of projections other than scoring two clouds."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from orthoslice.backend.arrays import DType, Stream
from orthoslice.directions import Sampler
from orthoslice.directions.base import Directions
from orthoslice.directions.drawing import Blocks, draw_blocks
from orthoslice.directions.layout import Layout
from orthoslice.estimates.passes import cut_units


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
    >>> from orthoslice.directions.layout import whole_blocks
    >>> from orthoslice.directions import Orthogonal
    >>> stream = Stream.from_seed(0, np.zeros(1))
    >>> pieces = sweep_directions(Orthogonal(), Layout(whole_blocks(10, 4)), stream, 4, np.dtype(np.float64), 3)
    >>> [(piece.first, piece.n_rows) for piece in pieces]
    [(0, 2), (2, 2), (4, 2), (6, 2), (8, 2)]
    """
    drawn, last = None, None
    for first, rows, blocks in sweep_blocks(sampler, layout, stream, dim, dtype, most_rows):
        if drawn is None or blocks is not last:
            drawn, last = draw_blocks(blocks), blocks
        yield Piece(first, rows, drawn)


def sweep_blocks(
    sampler: Sampler, layout: Layout, stream: Stream, dim: int, dtype: DType, most_rows: int
) -> Iterator[tuple[int, slice, Blocks]]:
    """As :func:`sweep_directions`, to be drawn elsewhere: the first row, and which rows of which blocks."""
    if sampler.weights(layout.longest_block, dim) is not None:
        raise ValueError(f"`directions` must count alike here; those of {sampler!r} have weights.")
    key, blocks, first = None, None, 0
    for task in cut_units(layout, 0, layout.n_units, most_rows, sampler.extends):
        if blocks is None or key != task[:4]:
            key, blocks = task[:4], Blocks(sampler, stream, *task[:3], dim, dtype)
        yield first, slice(task.row, task.row + task.n_rows), blocks
        first += task.n_rows
