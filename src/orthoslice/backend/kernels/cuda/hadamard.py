"""Projections on blocks of Walsh-Hadamard transforms, and their transpose, on an NVIDIA GPU.

The plain references are the implementations of that name in `orthoslice.backend.arrays.hadamard`.
"""

from __future__ import annotations

from typing import NamedTuple

from orthoslice.backend.array_types import Tensor
from orthoslice.backend.kernels.cuda import Kernel, Program, bind, most_shared_bytes
from orthoslice.backend.kernels.row_span import RowSpan, as_span

LONGEST_TRANSFORM = 1 << 13
"""Columns of a point, at most: of more than these a chip would hold too few points at a time."""

# A thread has 2^_BITS columns of a point, and at most 2^_MOST_LANES points, a warp, are beside each other.
_BITS, _MOST_LANES = 6, 5

# A tile of points takes at most this much shared memory, so that a multiprocessor has room for several.
_TILE_BYTES = 1 << 16

# The sum over blocks of directions is cut until there are about this many thread blocks: they fill a large GPU.
_ENOUGH_BLOCKS = 512

_PROGRAMS = {
    size: Program("hadamard", (("THREADS", _TILE_BYTES // size >> _BITS), ("REAL_BYTES", size)))
    for size in (4, 8)
}
_PROJECT = Kernel("project_on_blocks", 5, "iiiiiiiid")
_CARRY_BACK = Kernel("carry_back_from_blocks", 5, "iiiiiiiidii")


def room_refusal(device: int, dim: int, item_bytes: int) -> str | None:
    """Why points with `dim` columns do not fit on a chip, or None if they do."""
    if dim > LONGEST_TRANSFORM:
        return f"it takes at most {LONGEST_TRANSFORM} dimensions, not {dim}"
    # A point and a sum.
    return None if 2 * dim * item_bytes <= most_shared_bytes(device) else "it takes points that fit on a chip"


class _Tiles(NamedTuple):
    """How points are dealt to thread blocks: the number of tiles, and the threads and bytes of each."""

    n_tiles: int
    threads: int
    n_bytes: int
    log_dim: int
    log_lanes: int

    @classmethod
    def of(cls, n: int, signs: Tensor, held: int) -> _Tiles:
        """The tiles of `n` points, for thread blocks that hold `held` tiles."""
        log_dim, size = signs.shape[-1].bit_length() - 1, signs.element_size()
        log_columns = max(log_dim, _BITS)
        room = min(_TILE_BYTES, most_shared_bytes(signs.get_device()) // held)
        log_lanes = min(_MOST_LANES, (room // size).bit_length() - 1 - log_columns)
        points, items = 1 << log_columns + log_lanes - log_dim, 1 << log_columns + log_lanes
        return cls(-(-n // points), items >> _BITS, size * items, log_dim, log_lanes)


def _numbers(n: int, dim: int, tiles: _Tiles, span: RowSpan, signs: Tensor, paired: bool) -> tuple[int, ...]:
    """What both kernels are told after their addresses."""
    ambient, rounds = signs.shape[-1], signs.shape[1]
    shape = tiles.log_dim, tiles.log_lanes
    return n, dim, tiles.n_tiles, span.block_rows, rounds, paired, *shape, ambient**-0.5


def project_on_span(points: Tensor, signs: Tensor, parts: list[tuple[int, slice]], paired: bool) -> Tensor:
    """Project `points (n, dim_user)` on rows of blocks with `signs (blocks, rounds, dim)`: `(rows, n)`."""
    (n, dim), span = points.shape, as_span(parts)
    assert span is not None
    out = points.new_empty((span.n_rows, n))
    tiles, program = _Tiles.of(n, signs, 1), _PROGRAMS[signs.element_size()]
    shape = tiles.n_tiles * span.n_blocks, tiles.threads, tiles.n_bytes
    numbers = _numbers(n, dim, tiles, span, signs, paired)
    project = bind(_PROJECT, program, points.get_device(), *shape, *numbers)
    project(points.contiguous(), signs[span.first_block :].contiguous(), out, span.first_row, span.n_rows)
    return out


def carry_back_from_span(
    slopes: Tensor, signs: Tensor, parts: list[tuple[int, slice]], dim: int, paired: bool
) -> Tensor:
    """The transpose of :func:`project_on_span`: from `slopes (rows, n)` to `(n, dim)`; always summed alike."""
    n, span = slopes.shape[1], as_span(parts)
    assert span is not None
    # One for the points, and one for the sum over several blocks.
    tiles, program = _Tiles.of(n, signs, min(2, span.n_blocks)), _PROGRAMS[signs.element_size()]
    split_blocks = -(-span.n_blocks // max(1, min(span.n_blocks, _ENOUGH_BLOCKS // tiles.n_tiles)))
    n_splits = -(-span.n_blocks // split_blocks)
    out = slopes.new_empty((n_splits, n, dim))
    shape = tiles.n_tiles * n_splits, tiles.threads, tiles.n_bytes * min(2, split_blocks)
    numbers = *_numbers(n, dim, tiles, span, signs, paired), span.n_blocks, split_blocks
    carry_back = bind(_CARRY_BACK, program, slopes.get_device(), *shape, *numbers)
    carry_back(slopes.contiguous(), signs[span.first_block :].contiguous(), out, span.first_row, span.n_rows)
    return out[0] if n_splits == 1 else out.sum(dim=0)
