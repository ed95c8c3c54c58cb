"""Walks over the directions of a layout, for uses of projections other than scoring two clouds."""

from __future__ import annotations

import bisect
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from orthoslice.backend.arrays import DType, Key
from orthoslice.directions import Sampler
from orthoslice.directions.base import Directions
from orthoslice.directions.drawing import Blocks, draw_blocks
from orthoslice.directions.layout import Layout

# A short block is cut from a whole one if that uses at least this many rows for each row left unused: drawing
# is a small part of the work.
_WORTH_PADDING = 4


class Task(NamedTuple):
    """Rows `row .. row + n_rows` of `n_blocks` blocks of `block_rows` rows, of which `drawn_rows` are used."""

    block: int
    n_blocks: int
    block_rows: int
    drawn_rows: int
    row: int
    n_rows: int


def cut_units(
    layout: Layout, first_unit: int, stop_unit: int, chunk: int, extends: bool = True
) -> Iterator[Task]:
    """Cut units into passes of at most `chunk` rows, or of one row where not even that fits.

    A pass has blocks of one size. If the sampler `extends` blocks, a shorter one may be cut from a whole one.
    """
    sizes, changes, last_unit = layout.block_rows, layout.size_changes, layout.n_units
    u = first_unit
    while u < stop_unit:
        block = u * layout.unit_blocks
        size = int(sizes[block])
        count = 1
        if layout.unit_blocks == 1:
            change = changes[bisect.bisect_right(changes, block)]
            at_once = max(1, chunk // size)
            count = min(at_once, stop_unit - u, change - u)
            if extends and u + count == change < stop_unit and count < at_once:
                unused = size - int(sizes[change])
                # A shorter block is drawn whole with the others if few of its rows go unused.
                count += 0 <= unused * _WORTH_PADDING <= count * size
        rows = layout.rows_between(u, u + count)
        stop = layout.n_blocks if u + count == last_unit else block + count * layout.unit_blocks
        # Parts of a pass are of one size, or nearly: 32 + 32 rows, not 63 + 1.
        part = -(-rows // -(-rows // chunk))
        for row in range(0, rows, part):
            yield Task(block, stop - block, size, rows, row, min(part, rows - row))
        u += count


def cut_share(tasks: Iterable[Task], first: int, stop: int) -> Iterator[Task]:
    """The parts of consecutive tasks in rows `first .. stop`, counted over the rows of all tasks.

    Examples
    --------
    >>> [(task.row, task.n_rows) for task in cut_share([Task(0, 1, 8, 8, 0, 4), Task(0, 1, 8, 8, 4, 4)], 3, 6)]
    [(3, 1), (4, 2)]
    """
    place = 0
    for task in tasks:
        start, end = max(first, place), min(stop, place + task.n_rows)
        if start < end:
            yield task._replace(row=task.row + start - place, n_rows=end - start)
        place += task.n_rows


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
    sampler: Sampler, layout: Layout, key: Key, dim: int, dtype: DType, most_rows: int
) -> Iterator[Piece]:
    """All directions in order, at most `most_rows` at a time; a block is drawn once, when it is reached.

    They are those that the distances use for the same seed.

    Examples
    --------
    >>> import numpy as np
    >>> from orthoslice.directions.layout import whole_blocks
    >>> from orthoslice.directions import Orthogonal
    >>> key = Key.from_seed(0, np.zeros(1))
    >>> pieces = sweep_directions(Orthogonal(), Layout(whole_blocks(10, 4)), key, 4, np.dtype(np.float64), 3)
    >>> [(piece.first, piece.n_rows) for piece in pieces]
    [(0, 2), (2, 2), (4, 2), (6, 2), (8, 2)]
    """
    drawn, last = None, None
    for first, rows, blocks in sweep_blocks(sampler, layout, key, dim, dtype, most_rows):
        if drawn is None or blocks is not last:
            drawn, last = draw_blocks(blocks), blocks
        yield Piece(first, rows, drawn)


def sweep_blocks(
    sampler: Sampler, layout: Layout, key: Key, dim: int, dtype: DType, most_rows: int
) -> Iterator[tuple[int, slice, Blocks]]:
    """As :func:`sweep_directions`, but undrawn: the number of the first row, and which rows of which blocks."""
    if sampler.weights(layout.longest_block, dim) is not None:
        raise ValueError(f"`directions` must count alike here; those of {sampler!r} have weights.")
    wanted, blocks, first = None, None, 0
    for task in cut_units(layout, 0, layout.n_units, most_rows, sampler.extends):
        if blocks is None or wanted != task[:4]:
            wanted, blocks = task[:4], Blocks(sampler, key, *task[:3], dim, dtype)
        yield first, slice(task.row, task.row + task.n_rows), blocks
        first += task.n_rows
