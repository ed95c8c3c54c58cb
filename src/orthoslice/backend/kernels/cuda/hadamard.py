"""Projections on blocks of Walsh-Hadamard transforms, and their transpose, on an NVIDIA GPU.

The plain references are the implementations of that name in `orthoslice.backend.arrays.hadamard`.
"""

from __future__ import annotations

import functools
from typing import NamedTuple

from orthoslice.backend.array_types import Tensor
from orthoslice.backend.kernels.cuda import Kernel, Launch, Program, bind, empty, most_shared_bytes
from orthoslice.backend.kernels.row_span import RowSpan, as_span

LONGEST_TRANSFORM = 1 << 13
"""Columns of a point, at most: of more than these a chip would hold too few points at a time."""

# A thread has 2^_BITS columns of a point, so that few numbers change hands. Of at most _FEW_NUMBERS it has
# 2^_FEW_BITS, since more threads are done sooner. At most 2^_MOST_LANES points, a warp, are beside each other.
_BITS, _FEW_BITS, _FEW_NUMBERS, _MOST_LANES = 6, 4, 1 << 21, 5

# A tile of points takes at most this much shared memory, so that a multiprocessor has room for several.
_TILE_BYTES = 1 << 16

# The sum over blocks of directions is cut until there are about this many thread blocks: they fill a large GPU.
_ENOUGH_BLOCKS = 512

FLAGGED = 256
"""Coordinates that a flag stands for, of those that say where clouds are far from the origin."""


def _program(item_bytes: int, bits: int) -> Program:
    """Of many columns a thread, two thread blocks fit on a multiprocessor: one works while the other waits."""
    threads = _TILE_BYTES // item_bytes >> bits
    shape = ("THREADS", threads), ("RESIDENT", 2 if bits == _BITS else 1), ("OWN_BITS", bits)
    return Program("hadamard", (*shape, ("REAL_BYTES", item_bytes), ("FLAGGED", FLAGGED)))


_PROGRAMS = {(size, bits): _program(size, bits) for size in (4, 8) for bits in (_BITS, _FEW_BITS)}
_PROJECT = Kernel("project_on_blocks", 9, "iiiiiiiiid")
_CARRY_BACK = Kernel("carry_back_from_blocks", 11, "iiiiiiiiidii")


def room_refusal(device: int, dim: int, item_bytes: int) -> str | None:
    """Why points with `dim` columns do not fit on a chip, or None if they do."""
    if dim > LONGEST_TRANSFORM:
        return f"it takes at most {LONGEST_TRANSFORM} dimensions, not {dim}"
    # A point and a sum.
    return None if 2 * dim * item_bytes <= most_shared_bytes(device) else "it takes points that fit on a chip"


class BlockShape(NamedTuple):
    """What blocks of directions are like: so many rows of so many columns, whose type has `item_bytes`."""

    n_blocks: int
    block_rows: int
    rounds: int
    columns: int
    paired: bool
    item_bytes: int = 4
    bits: int = _BITS
    """A thread has 2^bits columns of a point. Other bits mean another order of sums, and other last digits."""

    def spread_out(self, n: int) -> BlockShape:
        """With more threads where a launch projects only a few points `n`."""
        few = n * self.columns * self.n_blocks <= _FEW_NUMBERS
        return self._replace(bits=_FEW_BITS) if few else self


class _Tiles(NamedTuple):
    """How points are dealt to thread blocks: the number of tiles, and the threads and bytes of each."""

    program: Program
    n_tiles: int
    threads: int
    n_bytes: int
    log_dim: int
    log_lanes: int

    @classmethod
    def of(cls, device: int, n: int, m: int, blocks: BlockShape, held: int) -> _Tiles:
        """The tiles of clouds of `n` and `m` points, for thread blocks that hold `held` tiles."""
        log_dim, size, bits = blocks.columns.bit_length() - 1, blocks.item_bytes, blocks.bits
        log_columns = max(log_dim, bits)
        room = min(_TILE_BYTES, most_shared_bytes(device) // held)
        log_lanes = min(_MOST_LANES, (room // size).bit_length() - 1 - log_columns)
        points, items = 1 << log_columns + log_lanes - log_dim, 1 << log_columns + log_lanes
        n_tiles = -(-n // points) - (-m // points)
        return cls(_PROGRAMS[size, bits], n_tiles, items >> bits, size * items, log_dim, log_lanes)

    def numbers(self, n: int, m: int, dim: int, blocks: BlockShape) -> tuple[float, ...]:
        """What both kernels are told after their addresses."""
        of_blocks = blocks.block_rows, blocks.rounds, blocks.paired
        return n, m, dim, self.n_tiles, *of_blocks, self.log_dim, self.log_lanes, blocks.columns**-0.5


@functools.lru_cache(maxsize=1024)
def projecting_on_blocks(device: int, n: int, m: int, dim: int, blocks: BlockShape) -> Launch:
    """Takes x and y; their centre and its flags, or None; factors; room for both projections; and which rows.

    Those are the number of the first row and how many there are. `y` may have no points.
    """
    tiles = _Tiles.of(device, n, m, blocks, 1)
    shape = tiles.n_tiles * blocks.n_blocks, tiles.threads, tiles.n_bytes
    return bind(_PROJECT, tiles.program, device, *shape, *tiles.numbers(n, m, dim, blocks))


class CarryingBack:
    """Carries slopes of clouds of `n` and `m` points, either of which may be none, back from blocks.

    Thread blocks share out the sum over blocks of directions where there are few points; there are `n_counts`
    counters, which must start from 0, and `n_parts` numbers of working memory.
    """

    def __init__(
        self, device: int, n: int, m: int, dim: int, blocks: BlockShape, with_scores: bool = False
    ) -> None:
        # One for the points, and one for the sum over several blocks.
        tiles = _Tiles.of(device, n, m, blocks, min(2, blocks.n_blocks))
        split_blocks = -(-blocks.n_blocks // max(1, min(blocks.n_blocks, _ENOUGH_BLOCKS // tiles.n_tiles)))
        n_splits = -(-blocks.n_blocks // split_blocks)
        shape = tiles.n_tiles * n_splits + with_scores, tiles.threads, tiles.n_bytes * min(2, split_blocks)
        numbers = *tiles.numbers(n, m, dim, blocks), blocks.n_blocks, split_blocks
        self.n_counts, self.n_parts = (tiles.n_tiles, n_splits * (n + m) * dim) if n_splits > 1 else (0, 0)
        self.launch = bind(_CARRY_BACK, tiles.program, device, *shape, *numbers)
        """Takes slopes by both; factors; room for gradients, working memory and counters; scores, or None, room
        for their sum, and the step; and which rows."""


carrying_back = functools.lru_cache(maxsize=1024)(CarryingBack)


def project_on_span(points: Tensor, signs: Tensor, parts: list[tuple[int, slice]], paired: bool) -> Tensor:
    """Project `points (n, dim_user)` on rows of blocks with `signs (blocks, rounds, dim)`: `(rows, n)`."""
    (n, dim), span = points.shape, as_span(parts)
    assert span is not None
    out, blocks = points.new_empty((span.n_rows, n)), _shape_of(span, signs, paired)
    project = projecting_on_blocks(points.get_device(), n, 0, dim, blocks)
    signs = signs[span.first_block :].contiguous()
    project(points.contiguous(), None, None, None, signs, out, None, span.first_row, span.n_rows)
    return out


def carry_back_from_span(
    slopes: Tensor, signs: Tensor, parts: list[tuple[int, slice]], dim: int, paired: bool
) -> Tensor:
    """The transpose of :func:`project_on_span`: from `slopes (rows, n)` to `(n, dim)`; always summed alike."""
    n, span = slopes.shape[1], as_span(parts)
    assert span is not None
    carrying = carrying_back(slopes.get_device(), n, 0, dim, _shape_of(span, signs, paired))
    out, room = slopes.new_empty((n, dim)), slopes.new_empty(carrying.n_parts)
    counts = empty(slopes, (carrying.n_counts,), "int32").zero_() if carrying.n_counts else None
    signs = signs[span.first_block :].contiguous()
    rows = span.first_row, span.n_rows
    carrying.launch(slopes.contiguous(), None, signs, out, room, counts, None, None, None, *rows)
    return out


def _shape_of(span: RowSpan, signs: Tensor, paired: bool) -> BlockShape:
    _, rounds, columns = signs.shape
    return BlockShape(span.n_blocks, span.block_rows, rounds, columns, paired, signs.element_size(), _BITS)
