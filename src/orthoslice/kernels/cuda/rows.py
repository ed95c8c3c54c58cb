"""Costs on the line and orders of rows of float32 tensors on an NVIDIA GPU.

Every kernel stands beside a plain reference: `orthoslice.pricing.sorted_scores` and `sorted_slopes`, and
`torch.sort(stable=True)` for the orders. Rows are flattened: `px (slices, n)`, `py (slices, m)`.
"""

from __future__ import annotations

import functools
import sys
from typing import Any, NamedTuple

from orthoslice.kernels.cuda import DOUBLE, FLOAT, INT, LONG, POINTER, Kernel, Program

# Threads of a block and numbers a thread, by capacity.
_SHORT = ((64, 4), (64, 8), (64, 16), (128, 16), (256, 16), (512, 16), (1024, 16))
_SHORT_WITH_PLACES = ((64, 4), (64, 8), (128, 8), (128, 16), (512, 8), (512, 16), (512, 32))
LONGEST_ON_CHIP = 16384

# Buckets of long rows hold this many on average and fit as many as a block sorts: more than twice that.
_BUCKET = 3584
_BUCKET_SHAPE = (512, 16)

# What a block takes of rows that are sorted. More would spread the slopes of too many rows over the cache.
_RANKS_A_PART = 2048
_POINTS_A_BLOCK = 8

_MATCH_ROWS = Kernel("match_rows", (*(POINTER,) * 3, INT, INT, FLOAT, DOUBLE, *(POINTER,) * 3))
_SORT_ROWS = Kernel("sort_rows", (POINTER, INT, POINTER, POINTER))
_PICK_BORDERS = Kernel("pick_borders", (POINTER, INT, INT, POINTER))
_DEAL_TILES = Kernel("deal_tiles", (POINTER, INT, INT, INT, *(POINTER,) * 4))
_START_BUCKETS = Kernel("start_buckets", (POINTER, POINTER, INT))
_SORT_BUCKETS = Kernel("sort_buckets", (*(POINTER,) * 3, INT, INT))
_MATCH_SORTED = Kernel("match_sorted", (*(POINTER,) * 4, LONG, LONG, INT, FLOAT, DOUBLE, *(POINTER,) * 3))
_ADD_UP = Kernel("add_up", (POINTER, INT, POINTER, POINTER))
_GATHER_SLOPES = Kernel("gather_slopes", (*(POINTER,) * 3, *(INT,) * 4, POINTER, POINTER))


class Shape(NamedTuple):
    """Of a block: its threads, how many numbers each holds, and whether those have places."""

    threads: int
    items: int
    places: bool

    @property
    def capacity(self) -> int:
        """How many numbers a block sorts on chip."""
        return self.threads * self.items

    def launch(self, kernel: Kernel, like: Any, grid: int, *arguments: Any, extra_words: int = 0) -> None:
        kernel.launch(
            _program(self), like, grid, self.threads, 4 * (_shared_words(self) + extra_words), *arguments
        )


# Both are looked up at every call of small problems.
@functools.cache
def _program(shape: Shape) -> Program:
    return Program("rows", (("THREADS", shape.threads), ("ITEMS", shape.items), ("PAIRS", int(shape.places))))


@functools.cache
def _shared_words(shape: Shape) -> int:
    """Entries and cells, each padded, and room to talk."""
    return 2 * (shape.capacity + shape.capacity // 32 + 1) + 5 * (shape.threads // 32) + 1


@functools.cache
def _shape(n: int, places: bool) -> Shape:
    shapes = (Shape(*pair, places) for pair in (_SHORT_WITH_PLACES if places else _SHORT))
    return next(s for s in shapes if s.capacity >= n)


# For kernels that sort nothing.
_PLAIN = Shape(256, 1, False)


class Sorted(NamedTuple):
    """Rows in increasing order, and the place every number came from where that was asked for."""

    keys: Any
    places: Any


def _empty(like: Any, shape: tuple[int, ...], kind: str) -> Any:
    return like.new_empty(shape, dtype=getattr(sys.modules["torch"], kind))


def sort_rows(rows: Any, places: bool) -> Sorted:
    """Sort every row of `rows (slices, n)`; equal numbers stay in order of their places."""
    rows = rows.contiguous()
    n = rows.shape[1]
    if n > LONGEST_ON_CHIP:
        return _sort_long_rows(rows, places)
    keys, order = _empty(rows, rows.shape, "float32"), _empty(rows, rows.shape, "int32") if places else None
    _shape(n, places).launch(_SORT_ROWS, rows, rows.shape[0], rows, n, keys, order)
    return Sorted(keys, order)


def _sort_long_rows(rows: Any, places: bool) -> Sorted:
    slices, n = rows.shape
    buckets = -(-n // _BUCKET)
    shape = Shape(*_BUCKET_SHAPE, places)
    tiles = -(-n // shape.capacity)
    borders = _empty(rows, (slices, max(buckets - 1, 1)), "int32")
    cursors = rows.new_zeros((slices, buckets), dtype=borders.dtype)
    starts = _empty(rows, (slices, buckets), "int32")
    keys, order = _empty(rows, rows.shape, "float32"), _empty(rows, rows.shape, "int32") if places else None
    shape._replace(places=False).launch(_PICK_BORDERS, rows, slices, rows, n, buckets, borders)

    def deal(*out: Any) -> None:
        # Borders, counts, starts and bases of the buckets.
        extra_words = 4 * buckets
        arguments = (rows, n, tiles, buckets, borders, cursors, *out)
        shape.launch(_DEAL_TILES, rows, slices * tiles, *arguments, extra_words=extra_words)

    deal(None, None)
    _PLAIN.launch(_START_BUCKETS, rows, slices, cursors, starts, buckets)
    deal(keys, order)
    shape.launch(_SORT_BUCKETS, rows, slices * buckets, keys, order, starts, n, buckets)
    return Sorted(keys, order)


class Matched(NamedTuple):
    """Costs `(slices,)` in float64, and their derivatives by the projections where those were wanted."""

    scores: Any
    x_slopes: Any
    y_slopes: Any


def match_rows(px: Any, py: Any, p: float, factor: float, wanted: tuple[bool, bool]) -> Matched:
    """`factor` times the costs on the line of `px (slices, n)` and `py (slices, m)`, and wanted derivatives."""
    if px.shape == py.shape and px.shape[1] <= LONGEST_ON_CHIP:
        return _match(px.contiguous(), py.contiguous(), None, px.shape[1], p, factor, wanted)
    return match_sorted(sort_rows(px, wanted[0]), sort_rows(py, wanted[1]), p, factor, wanted)


def match_points(x: Any, y: Any, theta: Any, p: float, factor: float, wanted: tuple[bool, bool]) -> Matched:
    """The same for clouds `x (n, dim)` and `y (n, dim)` on `theta (slices, dim)`; no projection is stored."""
    return _match(_aligned(x), _aligned(y), theta.contiguous(), x.shape[0], p, factor, wanted)


def _aligned(points: Any) -> Any:
    """Contiguous points at an address from which four numbers can be loaded at once."""
    points = points.contiguous()
    return points.clone() if points.data_ptr() % 16 else points


def _match(x: Any, y: Any, theta: Any, n: int, p: float, factor: float, wanted: tuple[bool, bool]) -> Matched:
    slices, dim = (x.shape[0], 0) if theta is None else theta.shape
    scores = _empty(x, (slices,), "float64")
    slopes = [x.new_empty((slices, n)) if want else None for want in wanted]
    arguments = (x, y, theta, n, dim, p, factor, scores, *slopes)
    _shape(n, any(wanted)).launch(_MATCH_ROWS, x, slices, *arguments)
    return Matched(scores, *slopes)


def match_sorted(x: Sorted, y: Sorted, p: float, factor: float, wanted: tuple[bool, bool]) -> Matched:
    """The same for rows that are sorted already; those whose derivatives are wanted know their places."""
    (slices, n), m = x.keys.shape, y.keys.shape[1]
    if n < m:
        scores, y_slopes, x_slopes = match_sorted(y, x, p, factor, wanted[::-1])
        return Matched(scores, x_slopes, y_slopes)
    parts = -(-n // _RANKS_A_PART)
    sums = _empty(x.keys, (slices, parts), "float64")
    x_slopes = x.keys.new_empty((slices, n)) if wanted[0] else None
    # A point of the smaller cloud collects from several of the other.
    fill = y.keys.new_empty if n == m else y.keys.new_zeros
    y_slopes = fill((slices, m)) if wanted[1] else None
    arguments = (x.keys, y.keys, x.places, y.places, n, m, parts, p, factor, sums, x_slopes, y_slopes)
    _PLAIN.launch(_MATCH_SORTED, x.keys, slices * parts, *arguments)
    return Matched(sums.sum(1), x_slopes, y_slopes)


def gather_slopes(matched: Matched, theta: Any) -> tuple[Any, Any]:
    """`slopes^T theta` of both clouds, `(n, dim)` and `(m, dim)`, in one launch; None where slopes are None."""
    theta = theta.contiguous()
    slices, dim = theta.shape
    sizes = [0 if slopes is None else slopes.shape[1] for slopes in matched[1:]]
    gradients = [theta.new_empty((size, dim)) if size else None for size in sizes]
    tiles = sum(-(-size // _POINTS_A_BLOCK) for size in sizes)
    arguments = (*matched[1:], theta, slices, *sizes, dim, *gradients)
    _PLAIN.launch(_GATHER_SLOPES, theta, tiles, *arguments)
    return gradients[0], gradients[1]


def add_up(scores: Any, step: Any = None) -> Any:
    """The sum of `scores (slices,)` as a float32 scalar; on the way, an int64 `step` moves on by one."""
    out = _empty(scores, (), "float32")
    _PLAIN.launch(_ADD_UP, scores, 1, scores, scores.shape[0], out, step)
    return out
