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

# At most 2^_MOST_LANES points, a warp, are beside each other.
_MOST_LANES = 5

# A thread has 2^bits columns of a point, where there are up to so many: as few as need only two windows. So
# there are many threads, and numbers change hands once a round.
_COLUMNS = {4: 1 << 7, 5: 1 << 9, 6: LONGEST_TRANSFORM}

# A tile of points takes at most this much shared memory, so that a multiprocessor has room for several.
_TILE_BYTES = 1 << 16

# Up to this many thread blocks draw their own factors.
_DRAWERS = 256

# The sum over blocks of directions is cut until there are about this many thread blocks: they fill a large GPU.
_ENOUGH_BLOCKS = 512

FLAGGED = 256
"""Coordinates of a flag that says whether clouds are far from the origin there; as many threads look."""


def _program(source: str, item_bytes: int, bits: int) -> Program:
    threads = min(_TILE_BYTES // item_bytes, _COLUMNS[bits] << _MOST_LANES) >> bits
    # One works while the others wait for memory.
    shape = ("THREADS", threads), ("RESIDENT", {4: 3, 5: 1, 6: 2}[bits]), ("OWN_BITS", bits)
    numbers = ("REAL_BYTES", item_bytes), ("FLAGGED", FLAGGED)
    return Program(source, (*shape, *numbers))


_PROGRAMS = {(size, bits): _program("hadamard", size, bits) for size in (4, 8) for bits in _COLUMNS}
_START_PROGRAM = _program("hadamard_start", 4, 4)
_START = Kernel("start_on_blocks", 8, "iiiiiiiii")
_PROJECT_DRAWN = Kernel("project_on_drawn_blocks", 11, "iiiiiiiiidiii")
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

    @property
    def bits(self) -> int:
        """See `_COLUMNS`. It depends on nothing else: the order of sums decides about last digits."""
        return next(bits for bits, most in _COLUMNS.items() if self.columns <= most)


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


def starting_on_blocks(
    device: int, n: int, dim: int, blocks: BlockShape, folded: tuple[int, int], n_counts: int
) -> Launch:
    """Takes a key's words and a step, or None; x, or None; room for factors, centre, flags and counters.

    `folded` is what the key is folded with beside the step, and beside the numbers of blocks.
    """
    across = blocks.columns // 2 if blocks.paired else blocks.columns
    grid = -(-max(blocks.n_blocks * blocks.rounds * across, dim, n_counts) // FLAGGED)
    of_blocks = blocks.n_blocks, blocks.rounds, blocks.columns.bit_length() - 1, blocks.paired
    return bind(_START, _START_PROGRAM, device, grid, FLAGGED, 256, *folded, *of_blocks, n, dim, n_counts)


def projecting_on_drawn_blocks(
    device: int, n: int, dim: int, blocks: BlockShape, folded: tuple[int, int], n_counts: int
) -> Launch | None:
    """The same and :func:`projecting_on_blocks` in one, of two clouds of `n` points; None if that is too many.

    Takes x and y; a key's words and a step; room for factors, both projections and counters; and which rows.
    """
    tiles = _Tiles.of(device, n, n, blocks, 1)
    grid = tiles.n_tiles * blocks.n_blocks
    if grid > _DRAWERS or tiles.program is not _PROGRAMS[4, 4]:
        return None
    shape = grid, tiles.threads, tiles.n_bytes + 4 * (blocks.rounds * blocks.columns + dim)
    numbers = *tiles.numbers(n, n, dim, blocks), *folded, n_counts
    return bind(_PROJECT_DRAWN, _START_PROGRAM, device, *shape, *numbers)


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
    return BlockShape(span.n_blocks, span.block_rows, rounds, columns, paired, signs.element_size())
