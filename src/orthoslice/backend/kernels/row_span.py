"""Rows of blocks that follow each other: they need no table to be found."""

from __future__ import annotations

from typing import Any, NamedTuple


class RowSpan(NamedTuple):
    """Consecutive rows of consecutive blocks, each of `block_rows` rows."""

    first_block: int
    n_blocks: int
    block_rows: int
    first_row: int
    n_rows: int


def as_span(parts: list[tuple[int, Any]]) -> RowSpan | None:
    """The parts as one span, or None where their rows do not follow each other.

    Examples
    --------
    >>> as_span([(2, slice(3, 8)), (3, slice(0, 8)), (4, slice(0, 1))])
    RowSpan(first_block=2, n_blocks=3, block_rows=8, first_row=3, n_rows=14)
    >>> as_span([(2, slice(3, 8)), (4, slice(0, 8))])
    """
    (first_block, first), block_rows = parts[0], parts[0][1].stop
    for k, (block, rows) in enumerate(parts):
        starts_right = k == 0 or rows.start == 0
        stops_right = k == len(parts) - 1 or rows.stop == block_rows
        if block != first_block + k or not (starts_right and stops_right and rows.stop <= block_rows):
            return None
    n_rows = sum(rows.stop - rows.start for _, rows in parts)
    return RowSpan(first_block, len(parts), block_rows, first.start, n_rows)
