"""Directions drawn on an NVIDIA GPU in one or two launches, without synchronising with the host.

The references are the samplers themselves: `IID.draw` and `Orthogonal.draw` of folded keys.
"""

from __future__ import annotations

import functools
import sys

from orthoslice.backend.array_types import Tensor
from orthoslice.backend.kernels.cuda import (
    Kernel,
    Launch,
    Program,
    bind,
    current_stream,
    empty,
    most_shared_bytes,
)

# Threads of blocks that draw, and of those that make rows orthonormal: of one matrix each, or of tiles of all.
_DRAWERS, _THREADS, _TILE_THREADS = 128, 512, 256
# Rows made orthonormal at once, the rows of small tables in shared memory, and the rows of a tile.
_PANEL, _SMALL, _TILE = 16, 20, 64
_PROGRAM = Program(
    "directions", (("DRAWERS", _DRAWERS), ("THREADS", _THREADS), ("PANEL", _PANEL), ("SMALL", _SMALL))
)
_TILED = Program("tiled", (("THREADS", _TILE_THREADS), ("PANEL", _PANEL), ("SMALL", _SMALL), ("TILE", _TILE)))
# Two tiles beside each other, the factor of a panel and what belongs to it, the squares of the rows of a tile,
# whether to go on, and the number of a job.
_TILE_BYTES = 8 * (_TILE * (2 * _TILE + 4) + _PANEL * (_SMALL + 2) + _TILE + 2)

# A job has at most _MOST_COLUMNS columns of a tile; a multiprocessor runs _RESIDENT thread blocks at a time.
_MOST_COLUMNS, _RESIDENT = 128, 2

# Directions of at most _MOST_AHEAD steps are drawn at once. Where one thread block makes each matrix, any GPU
# works on _SPREAD of them at a time.
_MOST_AHEAD, _SPREAD = 8, 64

# Where all thread blocks share the work: at most _MOST_SHARED matrices are made at once, and those of several
# steps take about _MOST_BYTES of working memory at most.
_MOST_SHARED, _MOST_BYTES = 16, 200_000_000

_DRAW_NORMALS = Kernel("draw_normals", 7, "iiiiiiiii")
_DRAW_UNIT_ROWS = Kernel("draw_unit_rows", 5, "iii")
_ORTHONORMALISE = Kernel("orthonormalise", 7, "iiiii")
_ORTHONORMALISE_TILES = Kernel("orthonormalise_tiles", 10, "iiiiiiii")


def room_refusal(device: int, rows: int | None, dim: int) -> str | None:
    """Why one unit row, which is what `rows=None` means, does not fit on a chip, or None if it does.

    Orthonormal rows need not fit.
    """
    if rows is not None or _unit_row_bytes(dim) <= most_shared_bytes(device):
        return None
    return "it takes rows that fit on a chip"


def _unit_row_bytes(dim: int) -> int:
    return 8 * (dim + 1 + _DRAWERS // 32)


def _on_chip_bytes(rows: int, dim: int) -> int:
    """Shared memory that a block of `rows` orthonormal rows takes while it is made."""
    padded, columns = -(-rows // _PANEL) * _PANEL, -(-dim // 8) * 8
    width = -(-columns // 16) * 16 + 4
    tables = (_THREADS // 128 + 1) * _PANEL * _SMALL
    return 8 * (padded * (width + _SMALL) + tables + 2 * _PANEL + 1)


def unit_rows(
    key: tuple[Tensor, Tensor], step: Tensor | None, steps: int, first: int, count: int, dim: int, purpose: int
) -> Tensor:
    """Rows `first .. first + count` of independent directions, float32 `(count, dim)`."""
    out = empty(key[0], (count, dim), "float32")
    shape = count, _DRAWERS, _unit_row_bytes(dim)
    draw = bind(_DRAW_UNIT_ROWS, _PROGRAM, out.get_device(), *shape, steps, purpose, dim)
    draw(*key, step, out, first)
    return out


def orthonormal_rows(
    key: tuple[Tensor, Tensor],
    step: Tensor | None,
    steps: int,
    first: int,
    rows: int,
    total: int,
    dim: int,
    purpose: int,
) -> Tensor:
    """The first `total` rows of orthonormal blocks of `rows` rows from block `first` on, float32."""
    work = _work(key[0].get_device(), 1, total, rows, dim)
    room, out = work.room(key[0]), empty(key[0], (total, dim), "float32")
    work.drawing(steps, purpose)(*key, step, None, room, room.data_ptr() + work.counters, first)
    work.orthonormalise(room, out, key, step, None, None)
    return out


def orthonormalise(gaussian: Tensor, total: int) -> Tensor:
    """The first `total` rows of blocks `(blocks, rows, dim)` of float64, made orthonormal, in float32."""
    blocks, rows, dim = gaussian.shape
    work = _work(gaussian.get_device(), 1, total, rows, dim)
    room, out = work.room(gaussian).zero_(), empty(gaussian, (total, dim), "float32")
    table = room[: blocks * work.tall * work.wide].view(blocks, work.tall, work.wide)
    table[:, :rows, :dim] = gaussian
    work.orthonormalise(room, out, (None, None), None, None, None)
    return out


class Work:
    """Orthonormal blocks of `rows` rows that are made at once: `total` rows for each of `ahead` steps.

    On chip, a block is made by one thread block in its shared memory; otherwise all thread blocks share the
    work, and tables of Gaussian numbers, `tall` rows and `wide` columns, end in zeros. The working memory has
    `bytes`, with counters from byte `counters` on.
    """

    def __init__(self, device: int, ahead: int, total: int, rows: int, dim: int, on_chip: bool) -> None:
        blocks, panels = -(-total // rows), -(-rows // _TILE)
        numbers: tuple[int, ...] = (ahead, blocks, rows, dim, total)
        matrices = ahead * blocks
        self.tall, self.wide = rows, dim
        self._n_counters = 0
        if on_chip:
            self._parts: tuple[int, ...] = (0,)
            self.counters = self.bytes = 8 * matrices * rows * dim
            shape = matrices, _THREADS, _on_chip_bytes(rows, dim)
            self._orthonormalise = bind(_ORTHONORMALISE, _PROGRAM, device, *shape, *numbers)
        else:
            self.tall, self.wide = panels * _TILE, -(-dim // 16) * 16
            # Jobs of about equal size.
            span = -(-self.wide // (16 * -(-self.wide // _MOST_COLUMNS))) * 16
            # Counters of different matrices stand in lines of 128 bytes of their own.
            apart = -(-(3 * panels + 1) // 32) * 32
            self._n_counters = (1 + matrices) * apart
            tile, chunks = 8 * matrices * _TILE * _TILE, -(-self.wide // span)
            sizes = 8 * matrices * self.tall * self.wide, tile * (panels + 1) * chunks, tile * panels * 2
            # Tables, products, inverses and counters follow each other.
            self.counters = sum(sizes)
            self._parts = (0, sizes[0], sum(sizes[:2]), self.counters)
            self.bytes = self.counters + -(-self._n_counters // 2) * 8
            grid = _RESIDENT * _multiprocessors(device)
            shape = grid, _TILE_THREADS, _TILE_BYTES
            numbers += span, apart, grid
            self._orthonormalise = bind(_ORTHONORMALISE_TILES, _TILED, device, *shape, *numbers)
        self._device, self._shape = device, (ahead, blocks, rows, dim, self.tall, self.wide)

    def room(self, like: Tensor) -> Tensor:
        """Working memory beside a tensor."""
        return empty(like, (self.bytes // 8,), "float64")

    def drawing(self, steps: int, purpose: int) -> Launch:
        """Takes a key's words, the step, what is held, the working memory, its counters and the first block."""
        ahead, blocks, *_ = self._shape
        grid = -(-ahead * blocks * self.tall * ((self.wide + 1) // 2) // _DRAWERS)
        numbers = steps, purpose, *self._shape, self._n_counters
        return bind(_DRAW_NORMALS, _PROGRAM, self._device, grid, _DRAWERS, 0, *numbers)

    def orthonormalise(
        self,
        room: Tensor,
        out: Tensor,
        key: tuple[Tensor, Tensor],
        step: Tensor | None,
        held: Tensor | None,
        now: Tensor | None,
    ) -> None:
        """Make the drawn rows orthonormal, in float32, and hold them; hand out those of this step as `now`."""
        start = room.data_ptr()
        self._orthonormalise(*[start + part for part in self._parts], out, *key, step, held, now)


def _work(device: int, ahead: int, total: int, rows: int, dim: int) -> Work:
    on_chip = _on_chip_bytes(rows, dim) <= most_shared_bytes(device)
    return _kept_work(device, ahead, total, rows, dim, on_chip)


_kept_work = functools.lru_cache(maxsize=256)(Work)


@functools.cache
def _multiprocessors(device: int) -> int:
    """How many multiprocessors a GPU has; 1 in host memory, where thread blocks run one after the other."""
    if device < 0:
        return 1
    return int(sys.modules["torch"].cuda.get_device_properties(device).multi_processor_count)


def steps_ahead(device: int, rows: int, total: int, dim: int) -> int:
    """For how many steps `total` rows in blocks of `rows` are drawn at once."""
    blocks = -(-total // rows)
    if _on_chip_bytes(rows, dim) <= most_shared_bytes(device):
        return max(1, min(_MOST_AHEAD, _SPREAD // blocks))
    # Tables in double precision, and about as much beside them.
    return max(1, min(_MOST_SHARED // blocks, _MOST_BYTES // (16 * blocks * rows * dim)))


class DrawnAhead:
    """Orthonormal rows for a training run: :func:`orthonormal_rows` of its steps, from block 0 on.

    One block keeps only a part of a GPU busy, so that the blocks of several steps take hardly longer than
    those of one. They are held until their step. The device, which counts the steps, checks which are held.
    """

    def __init__(self, step: Tensor, steps: int, rows: int, total: int, dim: int, purpose: int) -> None:
        device = step.get_device()
        self._stream = current_stream(device)
        ahead = steps_ahead(device, rows, total, dim)
        self._work = _work(device, ahead, total, rows, dim)
        self._draw = self._work.drawing(steps, purpose)
        # -1 matches no key: words are not negative. Filled on the device: a copy would make the host wait.
        self._held = step.new_full((4,), -1)
        self._held[3] = 0
        self._kept = empty(step, (ahead, total, dim), "float32")
        self._now = empty(step, (total, dim), "float32")

    def is_in_order(self) -> bool:
        """Whether the current CUDA stream is that of earlier calls: another could overwrite what they read."""
        return current_stream(self._now.get_device()) == self._stream

    def __call__(self, key: tuple[Tensor, Tensor], step: Tensor | None) -> Tensor:
        """The directions of a step, float32 `(total, dim)`, which the next call overwrites."""
        room = self._work.room(step)
        self._draw(*key, step, self._held, room, room.data_ptr() + self._work.counters, 0)
        self._work.orthonormalise(room, self._kept, key, step, self._held, self._now)
        return self._now
