"""Costs on the line and orders of rows of float32 tensors on an NVIDIA GPU.

Every kernel stands beside a plain reference: `orthoslice.lines.sorted_scores` and `sorted_slopes`, and
`torch.sort(stable=True)` for the orders. Rows are flattened: `px (slices, n)`, `py (slices, m)`.
"""

from __future__ import annotations

import functools
from typing import Any, NamedTuple

from orthoslice.kernels.cuda import BUCKET, Kernel, Program, empty, most_shared_bytes

# Threads of a block and numbers a thread, by capacity.
_SHORT = ((64, 4), (64, 8), (64, 16), (128, 16), (256, 16), (512, 16), (1024, 16))
_SHORT_WITH_PLACES = ((64, 4), (32, 16), (32, 32), (64, 32), (128, 32), (512, 16), (1024, 16))

# Of long rows: the shape of a block that deals them out or sorts a bucket, and cells between the borders.
_BUCKET_SHAPE = (512, 16)
_RULED = 1024

# What a block takes of rows that are sorted. More would spread the slopes of too many rows over the cache.
_RANKS_A_PART = 2048

# Tiles of products. Of projections: directions, points, coordinates at a time. Of gradients: points and
# coordinates, directions at a time.
_THREADS, _DIRECTIONS, _PROJECTED, _DEPTH, _SIDE, _GATHERED = 256, 64, 128, 16, 64, 32
_PLAIN = Program(
    "plain",
    (
        ("THREADS", _THREADS),
        ("DIRECTIONS", _DIRECTIONS),
        ("PROJECTED", _PROJECTED),
        ("DEPTH", _DEPTH),
        ("SIDE", _SIDE),
        ("GATHERED", _GATHERED),
    ),
)
_PROJECT_BYTES = 4 * _DEPTH * (_DIRECTIONS + 4 + _PROJECTED + 4)
_GATHER_BYTES = 4 * 2 * _GATHERED * _SIDE

_MATCH_ROWS = Kernel("match_rows", "PPPiifdPPP")
_SORT_ROWS = Kernel("sort_rows", "PiPP")
_PICK_BORDERS = Kernel("pick_borders", "PiiPP")
_DEAL_TILES = Kernel("deal_tiles", "PiiiPPPPP")
_START_BUCKETS = Kernel("start_buckets", "PPi")
_SORT_BUCKETS = Kernel("sort_buckets", "PPPii")
_MATCH_SORTED = Kernel("match_sorted", "PPPPqqifdPPP")
_PROJECT = Kernel("project", "PPPiiiiPP")
_FINISH_STEP = Kernel("finish_step", "PPPiiiiPPPP")
_ADD_UP = Kernel("add_up", "PiPP")
_FAR_CENTRE = Kernel("far_centre", "PiiP")


class Shape(NamedTuple):
    """Of a block: its threads, how many numbers each holds, and whether those have places."""

    threads: int
    items: int
    places: bool

    @property
    def capacity(self) -> int:
        """How many numbers a block sorts on chip."""
        return self.threads * self.items

    def launch(
        self, source: str, kernel: Kernel, like: Any, grid: int, *arguments: Any, extra_words: int = 0
    ) -> None:
        program, words = _compiled_for(source, self)
        kernel.launch(program, like, grid, self.threads, 4 * (words + extra_words), *arguments)


# Looked up at every call of small problems.
@functools.cache
def _compiled_for(source: str, shape: Shape) -> tuple[Program, int]:
    """A program, and the words of shared memory that its kernels sort in."""
    defines = [("THREADS", shape.threads), ("ITEMS", shape.items), ("PAIRS", int(shape.places))]
    if source == "buckets":
        defines.append(("RULED", _RULED))
    padded = shape.capacity + shape.capacity // 32 + 1
    # Keys and cells, each padded, and room to talk.
    return Program(source, tuple(defines)), 2 * padded + 5 * (shape.threads // 32) + 1


@functools.cache
def longest_on_chip(device: int) -> int:
    """How long a row may be to be sorted in one go: blocks of some GPUs have less shared memory than others."""
    shapes = (Shape(*pair, False) for pair in _SHORT)
    return max(s.capacity for s in shapes if 4 * _compiled_for("rows", s)[1] <= most_shared_bytes(device))


@functools.lru_cache(maxsize=4096)
def _shape(n: int, places: bool) -> Shape:
    shapes = (Shape(*pair, places) for pair in (_SHORT_WITH_PLACES if places else _SHORT))
    return next(s for s in shapes if s.capacity >= n)


def _launch_plain(kernel: Kernel, like: Any, grid: int, *arguments: Any, shared_bytes: int = 256) -> None:
    """Start a kernel that sorts nothing."""
    kernel.launch(_PLAIN, like, grid, _THREADS, shared_bytes, *arguments)


class Sorted(NamedTuple):
    """Rows in increasing order, and the place every number came from where that was asked for."""

    keys: Any
    places: Any


def sort_rows(rows: Any, places: bool) -> Sorted:
    """Sort every row of `rows (slices, n)`; equal numbers stay in order of their places."""
    rows = rows.contiguous()
    n = rows.shape[1]
    if n > longest_on_chip(rows.get_device()):
        return _sort_long_rows(rows, places)
    keys, order = empty(rows, rows.shape, "float32"), empty(rows, rows.shape, "int32") if places else None
    _shape(n, places).launch("rows", _SORT_ROWS, rows, rows.shape[0], rows, n, keys, order)
    return Sorted(keys, order)


def _sort_long_rows(rows: Any, places: bool) -> Sorted:
    slices, n = rows.shape
    buckets = -(-n // BUCKET)
    shape = Shape(*_BUCKET_SHAPE, places)
    tiles = -(-n // shape.capacity)
    borders = empty(rows, (slices, max(buckets - 1, 1)), "int32")
    reached = empty(rows, (slices, _RULED), "int32")
    cursors = rows.new_zeros((slices, buckets), dtype=borders.dtype)
    starts = empty(rows, (slices, buckets), "int32")
    keys, order = empty(rows, rows.shape, "float32"), empty(rows, rows.shape, "int32") if places else None
    shape._replace(places=False).launch(
        "buckets", _PICK_BORDERS, rows, slices, rows, n, buckets, borders, reached
    )

    def deal(*out: Any) -> None:
        # The ruler's table, and borders, counts and shifts of the buckets.
        extra_words = _RULED + 3 * buckets
        arguments = (rows, n, tiles, buckets, borders, reached, cursors, *out)
        shape.launch("buckets", _DEAL_TILES, rows, slices * tiles, *arguments, extra_words=extra_words)

    deal(None, None)
    shape.launch("buckets", _START_BUCKETS, rows, slices, cursors, starts, buckets)
    deal(keys, order)
    shape.launch("buckets", _SORT_BUCKETS, rows, slices * buckets, keys, order, starts, n, buckets)
    return Sorted(keys, order)


class Matched(NamedTuple):
    """Costs `(slices,)` in float64, and their derivatives by the projections where those were wanted."""

    scores: Any
    x_slopes: Any
    y_slopes: Any


def match_rows(px: Any, py: Any, p: float, factor: float, wanted: tuple[bool, bool]) -> Matched:
    """`factor` times the costs on the line of `px (slices, n)` and `py (slices, m)`, and wanted derivatives."""
    if px.shape == py.shape and px.shape[1] <= longest_on_chip(px.get_device()):
        rows = px.contiguous(), py.contiguous()
        return _match(px, *rows, None, (px.shape[0], 0), px.shape[1], p, factor, wanted)
    return match_sorted(sort_rows(px, wanted[0]), sort_rows(py, wanted[1]), p, factor, wanted)


def match_points(x: Any, y: Any, theta: Any, p: float, factor: float, wanted: tuple[bool, bool]) -> Matched:
    """The same for clouds `x (n, dim)` and `y (n, dim)` on `theta (slices, dim)`; no projection is stored."""
    clouds = x.contiguous(), y.contiguous()
    return _match(x, *clouds, theta.contiguous(), tuple(theta.shape), x.shape[0], p, factor, wanted)


def match_projected(x: Any, y: Any, theta: Any, p: float, factor: float, wanted: tuple[bool, bool]) -> Matched:
    """The same for more and larger clouds: both are projected in one launch, and matched in another."""
    n, slices = x.shape[0], theta.shape[0]
    both = x.new_empty((2, slices, n))
    # Addresses, not views: making those takes as long as a launch.
    rows = (both.data_ptr(), both.data_ptr() + 4 * slices * n)
    _launch_project(x, y, theta, *rows)
    return _match(both, *rows, None, (slices, 0), n, p, factor, wanted)


def _match(
    like: Any,
    x: Any,
    y: Any,
    theta: Any,
    sizes: tuple[int, int],
    n: int,
    p: float,
    factor: float,
    wanted: tuple[bool, bool],
) -> Matched:
    slices, dim = sizes
    scores = empty(like, (slices,), "float64")
    # One piece of memory for both: asking for it takes longer than cutting it.
    both = like.new_empty((2, slices, n)).unbind(0) if wanted[0] and wanted[1] else None
    slopes = both or [like.new_empty((slices, n)) if want else None for want in wanted]
    arguments = (x, y, theta, n, dim, p, factor, scores, *slopes)
    _shape(n, any(wanted)).launch("rows", _MATCH_ROWS, like, slices, *arguments)
    return Matched(scores, *slopes)


def match_sorted(x: Sorted, y: Sorted, p: float, factor: float, wanted: tuple[bool, bool]) -> Matched:
    """The same for rows that are sorted already; those whose derivatives are wanted know their places."""
    (slices, n), m = x.keys.shape, y.keys.shape[1]
    if n < m:
        scores, y_slopes, x_slopes = match_sorted(y, x, p, factor, wanted[::-1])
        return Matched(scores, x_slopes, y_slopes)
    parts = -(-n // _RANKS_A_PART)
    sums = empty(x.keys, (slices, parts), "float64")
    x_slopes = x.keys.new_empty((slices, n)) if wanted[0] else None
    # A point of the smaller cloud collects from several of the other.
    fill = y.keys.new_empty if n == m else y.keys.new_zeros
    y_slopes = fill((slices, m)) if wanted[1] else None
    arguments = (x.keys, y.keys, x.places, y.places, n, m, parts, p, factor, sums, x_slopes, y_slopes)
    _launch_plain(_MATCH_SORTED, x.keys, slices * parts, *arguments)
    return Matched(sums.sum(1) if parts > 1 else sums[:, 0], x_slopes, y_slopes)


def project_both(x: Any, y: Any, theta: Any) -> tuple[Any, Any]:
    """`theta x^T` and `theta y^T` in one launch; large products are better left to the library."""
    px, py = x.new_empty((theta.shape[0], x.shape[0])), x.new_empty((theta.shape[0], y.shape[0]))
    _launch_project(x, y, theta, px, py)
    return px, py


def _launch_project(x: Any, y: Any, theta: Any, px: Any, py: Any) -> None:
    (slices, dim), n, m = theta.shape, x.shape[0], y.shape[0]
    tiles = -(-slices // _DIRECTIONS) * (-(-n // _PROJECTED) - (-m // _PROJECTED))
    arguments = (x, y, theta, slices, n, m, dim, px, py)
    _launch_plain(_PROJECT, x, tiles, *arguments, shared_bytes=_PROJECT_BYTES)


def finish_step(matched: Matched, theta: Any, step: Any = None) -> tuple[Any, Any]:
    """:func:`add_up` of the scores, and the gradients by the points, `slopes^T theta`, in one launch.

    The gradients `(rows, dim)` are those by x where it has slopes, and below them those by y.
    """
    slices, dim = theta.shape
    sizes = [0 if slopes is None else slopes.shape[1] for slopes in matched[1:]]
    total, gradient = empty(theta, (), "float32"), theta.new_empty((sum(sizes), dim))
    tiles = -(-dim // _SIDE) * sum(-(-size // _SIDE) for size in sizes)
    arguments = (*matched[1:], theta, slices, *sizes, dim, gradient, matched.scores, total, step)
    _launch_plain(_FINISH_STEP, theta, tiles, *arguments, shared_bytes=_GATHER_BYTES)
    return total, gradient


def add_up(scores: Any, step: Any = None) -> Any:
    """The sum of `scores (slices,)` as a float32 scalar; on the way, an int64 `step` moves on by one."""
    out = empty(scores, (), "float32")
    _launch_plain(_ADD_UP, scores, 1, scores, scores.shape[0], out, step)
    return out


def far_centre(points: Any) -> Any:
    """Where a cloud `(n, dim)` sits in coordinates in which that is far from 0, `(dim,)`; 0 in the others."""
    points = points.contiguous()
    n, dim = points.shape
    centre = points.new_empty((dim,))
    room = 4 * 2 * _THREADS
    _launch_plain(_FAR_CENTRE, points, -(-dim // 32), points, n, dim, centre, shared_bytes=room)
    return centre
