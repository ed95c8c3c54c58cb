"""Costs on the line and orders of rows of float32 tensors on an NVIDIA GPU.

Every kernel stands beside a plain reference: `orthoslice.costs.lines.sorted_scores` and `sorted_slopes`, and
`torch.sort(stable=True)` for the orders. Rows are flattened: `px (slices, n)`, `py (slices, m)`.
"""

from __future__ import annotations

import functools
import math
from typing import NamedTuple

from orthoslice.backend.array_types import Tensor
from orthoslice.backend.kernels.cuda import BUCKET, Kernel, Launch, Program, bind, empty, most_shared_bytes
from orthoslice.backend.kernels.cuda.merge import Matched, SortedRows, merge_rows

# Threads of a block and numbers a thread, by capacity.
_SHORT = ((64, 4), (64, 8), (64, 16), (128, 16), (256, 16), (512, 16), (1024, 16))
SHAPES_WITH_PLACES = ((64, 4), (32, 16), (32, 32), (64, 32), (128, 32), (512, 16), (1024, 16))

# Of long rows: the shape of a block that deals them out or sorts a bucket, and cells between the borders.
_BUCKET_SHAPE = (512, 16)
_SAMPLE_SHAPE = (1024, 12)
_RULED = 2048

# Of rows of at most _MOST_SHARES shares, of _SHARE numbers on average by a sample, a block sorts a share. Every
# share means reading the row again.
_SHARE, _SHARE_SAMPLE, _MOST_SHARES = 5120, 2048, 6

# Coordinates that a block moves to the origin.
_MOVED = 1 << 13

# What a block takes of rows that are sorted. More would spread the slopes of too many rows over the cache.
_RANKS_A_PART = 2048

FEW_COORDINATES = 8
"""Up to how many of them :func:`project_few` and :func:`gather_few` take."""

# Slopes that a block puts in order of place, and how many such ranges a row may have: each reads the whole row.
_PLACE_THREADS, _PLACES_ON_CHIP, _MOST_RANGES = 1024, 24_000, 6
_PLACES = Program("places", (("THREADS", _PLACE_THREADS),))

MOST_CENTRED = 8192
"""Coordinates up to which the kernel that projects moves clouds to the origin: it has their centre on chip."""

# Tiles of products. Of projections: directions, points, coordinates at a time. Of gradients: points and
# coordinates, directions at a time.
_THREADS, _DIRECTIONS, _PROJECTED, _DEPTH, _SIDE, _GATHERED = 256, 64, 128, 16, 32, 64
_PLAIN = Program(
    "plain",
    (
        ("THREADS", _THREADS),
        ("DIRECTIONS", _DIRECTIONS),
        ("PROJECTED", _PROJECTED),
        ("DEPTH", _DEPTH),
        ("CENTRED", MOST_CENTRED),
        ("SIDE", _SIDE),
        ("GATHERED", _GATHERED),
    ),
)
# Two stages each: one is filled while the other is used. A gradient ends with the sums of groups of threads.
_PROJECT_BYTES = 4 * 2 * _DEPTH * (_DIRECTIONS + 4 + _PROJECTED + 4)
_GATHER_BYTES = 4 * max(2 * 2 * _GATHERED * _SIDE, 16 * _THREADS)

_MATCH_ROWS = Kernel("match_rows", 6, "iiifd")
_SORT_ROWS = Kernel("sort_rows", 3, "i")
_SORT_SHARES = Kernel("sort_shares", 3, "ii")
_PICK_BORDERS = Kernel("pick_borders", 4, "ii")
_DEAL_TILES = Kernel("deal_tiles", 9, "iiii")
_START_BUCKETS = Kernel("start_buckets", 4, "ii")
_SORT_BUCKETS = Kernel("sort_buckets", 7, "iii")
_MATCH_SORTED = Kernel("match_sorted", 7, "qifd")
_MATCH_PLACES = Kernel("match_places", 7, "iifd")
_GATHER_FEW = Kernel("gather_few", 3, "iiii")
_PROJECT_FEW = Kernel("project_few", 5, "iiii")
_PROJECT = Kernel("project", 6, "iiiii")
_FINISH_STEP = Kernel("finish_step", 7, "iiiiiid")
_ADD_UP = Kernel("add_up", 3, "id")
_MOVE_CLOUDS = Kernel("move_clouds", 4, "iiiii")
_FAR_CENTRE = Kernel("far_centre", 2, "ii")
_CHECK_ROWS = Kernel("check_rows", 2, "iff")


class Shape(NamedTuple):
    """The threads of a block, how many numbers each of them holds, and whether numbers have places."""

    threads: int
    items: int
    places: bool

    @property
    def capacity(self) -> int:
        """How many numbers a block sorts on chip."""
        return self.threads * self.items

    @property
    def padded(self) -> int:
        """Words that `capacity` numbers take on chip."""
        return self.capacity + self.capacity // 32 + 1

    @property
    def digit_counts(self) -> int:
        """Words for how often the digits of numbers occur: 16 bits for each of 256, in every warp."""
        return self.threads // 32 * 128

    @property
    def words(self) -> int:
        """Words of shared memory that a block sorts in."""
        # Keys and cells, scratch for what the threads of a block do together, and counts of digits.
        scratch = 5 * (self.threads // 32) + 1
        return 2 * self.padded + scratch + self.digit_counts

    def bind(
        self, source: Source, kernel: Kernel, device: int, grid: int, *numbers: float, extra_words: int = 0
    ) -> Launch:
        words = self.words + extra_words
        return bind(kernel, compiled_for(source, self), device, grid, self.threads, 4 * words, *numbers)


class Source(NamedTuple):
    """A source whose kernels sort on chip, and what is defined for it beside the shape of a block."""

    name: str
    defines: tuple[tuple[str, int], ...] = ()


@functools.cache
def compiled_for(source: Source, shape: Shape) -> Program:
    sizes = (("THREADS", shape.threads), ("ITEMS", shape.items), ("PAIRS", int(shape.places)))
    return Program(source.name, sizes + source.defines)


_SORT = Source("sort")
_MATCH_GIVEN = Source("match", (("PROJECTS", 0),))
_MATCH_CLOUDS = Source("match", (("PROJECTS", 1),))
_SHARES = Source("shares", (("SAMPLE", _SHARE_SAMPLE), ("RESIDING", 1024)))
_BUCKETS = Source("buckets", (("RULED", _RULED), ("DEALING", 1024), ("SORTING", 1024)))

# All programs are made here, so that what is compiled first can have the others compiled in the background.
for _places in (True, False):
    for _pair in SHAPES_WITH_PLACES if _places else _SHORT:
        for _source in (_SORT, _MATCH_GIVEN, _MATCH_CLOUDS):
            compiled_for(_source, Shape(*_pair, _places))
    for _source in (_SHARES, _BUCKETS):
        compiled_for(_source, Shape(*_BUCKET_SHAPE, _places))
compiled_for(_BUCKETS, Shape(*_SAMPLE_SHAPE, False))


@functools.cache
def longest_on_chip(device: int) -> int:
    """How long a row may be to be sorted in one go: blocks of some GPUs have less shared memory than others."""
    shapes = (Shape(*pair, False) for pair in _SHORT)
    return max(s.capacity for s in shapes if 4 * s.words <= most_shared_bytes(device))


def shape_for(n: int, places: bool) -> Shape:
    shapes = (Shape(*pair, places) for pair in (SHAPES_WITH_PLACES if places else _SHORT))
    return next(s for s in shapes if s.capacity >= n)


def numbers_a_thread(n: int) -> int:
    """How many numbers of a row on chip a thread holds, where they have places."""
    return shape_for(n, places=True).items


def _bind_plain(kernel: Kernel, device: int, grid: int, *numbers: float, shared_bytes: int = 256) -> Launch:
    """A kernel that sorts nothing."""
    return bind(kernel, _PLAIN, device, grid, _THREADS, shared_bytes, *numbers)


class Sorted(NamedTuple):
    """Rows in increasing order, and the place every number came from where that was asked for."""

    keys: Tensor
    places: Tensor


def sort_rows(rows: Tensor, places: bool) -> Sorted:
    """Sort every row of `rows (slices, n)`; equal numbers stay in order of their places."""
    rows = rows.contiguous()
    slices, n = rows.shape
    device = rows.get_device()
    keys, order = empty(rows, rows.shape, "float32"), empty(rows, rows.shape, "int32") if places else None
    sort = sorting_long_rows if n > longest_on_chip(device) else sorting
    sort(device, slices, n, places)(rows, keys, order)
    return Sorted(keys, order)


class LongSort:
    """Sorts `slices` rows of n numbers that do not fit on a chip."""

    words: int
    """Of working memory."""

    def __init__(self, device: int, slices: int, n: int, places: bool, brings_words: bool = False) -> None:
        shape, shares = Shape(*_BUCKET_SHAPE, places), max(2, -(-n // _SHARE))
        self._share, self.words = None, 0
        if shares <= _MOST_SHARES and not brings_words:
            self._share = shape.bind(_SHARES, _SORT_SHARES, device, slices * shares, n, shares)
            return
        buckets, tiles, slot = -(-n // BUCKET), -(-n // shape.capacity), shape.capacity
        words, sizes = _words_to_deal(shape, buckets), (n, tiles, buckets, slot)
        # The larger the sample, the less buckets differ in size.
        samples = Shape(*_SAMPLE_SHAPE, False), Shape(*_BUCKET_SHAPE, False)
        pick = next(s for s in samples if 4 * s.words <= most_shared_bytes(device))
        self._pick = pick.bind(_BUCKETS, _PICK_BORDERS, device, slices, n, buckets)
        self._deal = shape.bind(_BUCKETS, _DEAL_TILES, device, slices * tiles, *sizes, extra_words=words)
        self._start = shape.bind(_BUCKETS, _START_BUCKETS, device, slices, tiles, buckets)
        self._sort = shape.bind(_BUCKETS, _SORT_BUCKETS, device, slices * buckets, n, buckets, slot)
        # Borders, and whether the row is tied; the ruler's table; counts of buckets, which are two a border,
        # and where they begin; and with places counts of every tile, without them slots.
        per_tile = 2 * buckets * tiles if places else slot * buckets
        per_row = (buckets, _RULED, 2 * buckets, 2 * buckets, per_tile)
        self._offsets = [4 * slices * sum(per_row[:k]) for k in range(len(per_row))]
        self.words = slices * sum(per_row)

    def __call__(self, rows: Tensor, keys: Tensor, order: Tensor, along: Tensor | None = None) -> None:
        """Takes contiguous rows; then room for them in order, and for their places or None.

        With words `along (n,)` of 32 bits, numbers bring the word of their place instead of it, in the room for
        places; then `brings_words` must have been said.
        """
        # One allocation for all: allocating takes longer than splitting.
        room = empty(rows, (self.words,), "int32") if self.words else None
        self.run(0 if room is None else room.data_ptr(), rows, keys, order, along)

    def run(
        self,
        room: int,
        rows: Tensor | int,
        keys: Tensor | int,
        order: Tensor | int,
        along: Tensor | None = None,
    ) -> None:
        """The same, with room for `words`."""
        if self._share is not None:
            self._share(rows, keys, order)
            return
        borders, reached, cursors, starts, last = (room + offset for offset in self._offsets)
        self._pick(rows, borders, reached, cursors)
        if order is None:
            self._deal(rows, borders, reached, cursors, None, starts, None, last, None)
            self._start(borders, cursors, None, starts)
            self._sort(keys, None, borders, starts, None, rows, last)
        else:
            self._deal(rows, borders, reached, cursors, last, starts, None, None, None)
            self._start(borders, cursors, last, starts)
            self._deal(rows, borders, reached, cursors, last, starts, along, keys, order)
            self._sort(keys, order, borders, starts, along, None, None)


@functools.lru_cache(maxsize=256)
def sorting_long_rows(device: int, slices: int, n: int, places: bool, brings_words: bool = False) -> LongSort:
    """As :func:`sorting`, for rows that do not fit on a chip; their numbers in order must be wanted."""
    return LongSort(device, slices, n, places, brings_words)


def _words_to_deal(shape: Shape, buckets: int) -> int:
    """Words of shared memory beyond those for sorting: shifts of buckets, and what overflows of the rest.

    Borders and table use the room of the later keys, counts of buckets that of the later digit counts.
    """
    beyond_keys = max(0, _RULED + buckets - 2 * shape.padded)
    return 2 * buckets + beyond_keys + max(0, 2 * buckets - shape.digit_counts)


def match_rows(px: Tensor, py: Tensor, p: float, factor: float, wanted: tuple[bool, bool]) -> Matched:
    """`factor` times the costs on the line of `px (slices, n)` and `py (slices, m)`, and wanted derivatives."""
    if px.shape == py.shape and px.shape[1] <= longest_on_chip(px.get_device()):
        px, py = px.contiguous(), py.contiguous()
        slices, n = px.shape
        out = _new_matched(px, slices, n, wanted)
        matching(px.get_device(), slices, n, 0, p, factor, 1, wanted[0] or wanted[1])(px, py, None, *out)
        return out
    return match_sorted(sort_rows(px, wanted[0]), sort_rows(py, wanted[1]), p, factor, wanted)


def match_points(
    x: Tensor, y: Tensor, theta: Tensor, p: float, factor: float, wanted: tuple[bool, bool]
) -> Matched:
    """The same for clouds `x (n, dim)` and `y (n, dim)` on `theta (slices, dim)`; no projection is stored."""
    x, y, theta = x.contiguous(), y.contiguous(), theta.contiguous()
    (slices, dim), n = theta.shape, x.shape[0]
    out = _new_matched(x, slices, n, wanted)
    matching(x.get_device(), slices, n, dim, p, factor, 1, wanted[0] or wanted[1])(x, y, theta, *out)
    return out


def match_projected(
    x: Tensor, y: Tensor, theta: Tensor, p: float, factor: float, wanted: tuple[bool, bool]
) -> Matched:
    """The same for more and larger clouds: both are projected in one launch, and matched in another."""
    (slices, dim), n, device = theta.shape, x.shape[0], x.get_device()
    both = x.new_empty(2 * slices * n)
    # Addresses, not views: making those takes as long as a launch.
    rows = both.data_ptr(), both.data_ptr() + 4 * slices * n
    projecting(device, slices, n, n, dim)(x, y, theta, None, *rows)
    out = _new_matched(x, slices, n, wanted)
    matching(device, slices, n, 0, p, factor, 1, wanted[0] or wanted[1])(*rows, None, *out)
    return out


def _new_matched(like: Tensor, slices: int, n: int, wanted: tuple[bool, bool]) -> Matched:
    scores = empty(like, (slices,), "float64")
    # One allocation for both: allocating takes longer than splitting.
    if wanted[0] and wanted[1]:
        return Matched(scores, *like.new_empty((2, slices, n)).unbind(0))
    return Matched(scores, *(like.new_empty((slices, n)) if want else None for want in wanted))


# Preparing a launch takes longer than a small problem itself, so launches are prepared once and kept.
@functools.lru_cache(maxsize=1024)
def matching(
    device: int, slices: int, n: int, dim: int, p: float, factor: float, clouds: int, with_slopes: bool
) -> Launch:
    """Takes x, y and theta, or rows and None where `dim` is 0; then scores and slopes, by (slice, cloud)."""
    source = _MATCH_CLOUDS if dim else _MATCH_GIVEN
    # The centre of the clouds, at a multiple of 16 bytes.
    room = dim + 3 if dim else 0
    shape = shape_for(n, with_slopes)
    return shape.bind(source, _MATCH_ROWS, device, slices * clouds, n, dim, slices, p, factor, extra_words=room)


@functools.lru_cache(maxsize=1024)
def sorting(device: int, slices: int, n: int, places: bool) -> Launch:
    """Takes rows; then room for them in order, or None, and for their places."""
    return shape_for(n, places).bind(_SORT, _SORT_ROWS, device, slices, n)


@functools.lru_cache(maxsize=1024)
def projecting(device: int, slices: int, n: int, m: int, dim: int, clouds: int = 1) -> Launch:
    """Takes x, y, theta, and None or the order (2, n) to read them in; then room for both projections."""
    tiles = clouds * -(-slices // _DIRECTIONS) * (-(-n // _PROJECTED) - (-m // _PROJECTED))
    centre_bytes = 4 * -(-dim // _DEPTH) * _DEPTH if dim <= MOST_CENTRED else 0
    sizes, room = (slices, n, m, dim, clouds), _PROJECT_BYTES + centre_bytes
    return _bind_plain(_PROJECT, device, tiles, *sizes, shared_bytes=room)


@functools.lru_cache(maxsize=1024)
def finishing(
    device: int, slices: int, n: int, m: int, dim: int, clouds: int = 1, share: float = 1.0, parts: int = 1
) -> Launch:
    """Takes slopes of n and m points, and theta; then room for the gradients; then scores, total and step.

    Every score is in `parts`.
    """
    tiles = clouds * -(-dim // _SIDE) * (-(-n // _SIDE) - (-m // _SIDE))
    sizes = slices, n, m, dim, clouds, parts, share
    return _bind_plain(_FINISH_STEP, device, tiles, *sizes, shared_bytes=_GATHER_BYTES)


@functools.lru_cache(maxsize=1024)
def adding(device: int, slices: int, clouds: int = 1, share: float = 1.0) -> Launch:
    """Takes scores `(slices, clouds)`, and room for `share` times the sum over slices; then the step."""
    return _bind_plain(_ADD_UP, device, clouds, slices, share)


def matching_sorted(
    device: int, slices: int, n: int, p: float, factor: float, wanted: tuple[bool, bool]
) -> tuple[Launch, int]:
    """Takes sorted rows x and y, and their places; then room for costs and for wanted slopes, or None.

    Also returns in how many parts the costs are.
    """
    ranges = -(-n // _PLACES_ON_CHIP)
    if any(wanted) and ranges <= _MOST_RANGES:
        parts = ranges * sum(wanted)
        room = 4 * (5 * (_PLACE_THREADS // 32) + 1 + -(-n // ranges))
        shape = device, slices * parts, _PLACE_THREADS, room
        return bind(_MATCH_PLACES, _PLACES, *shape, n, parts, p, factor), parts
    parts = -(-n // _RANKS_A_PART)
    return _bind_plain(_MATCH_SORTED, device, slices * parts, n, parts, p, factor), parts


def match_sorted(x: Sorted, y: Sorted, p: float, factor: float, wanted: tuple[bool, bool]) -> Matched:
    """As :func:`match_rows`, for sorted rows; a side whose derivatives are wanted must have its places."""
    (slices, n), m = x.keys.shape, y.keys.shape[1]
    if n != m:
        # In units of 1 / (n m) each point of x weighs m, and each of y weighs n.
        own_x, own_y = SortedRows(x.keys, x.places, m), SortedRows(y.keys, y.places, n)
        return merge_rows(own_x, own_y, None, x.keys, (slices, n, m, 1), p, factor / (n * m), wanted)
    launch, parts = matching_sorted(x.keys.get_device(), slices, n, p, factor, wanted)
    sums = empty(x.keys, (slices, parts), "float64")
    x_slopes = x.keys.new_empty((slices, n)) if wanted[0] else None
    y_slopes = y.keys.new_empty((slices, m)) if wanted[1] else None
    launch(x.keys, y.keys, x.places, y.places, sums, x_slopes, y_slopes)
    return Matched(sums.sum(1) if parts > 1 else sums[:, 0], x_slopes, y_slopes)


def finish_step(
    matched: Matched, theta: Tensor, step: Tensor | None = None, share: float = 1.0
) -> tuple[Tensor, Tensor]:
    """:func:`add_up` of the scores, and `share` of the gradients by points, `slopes^T theta`, in one launch.

    The gradients `(rows, dim)` are those by x where it has slopes, and below them those by y.
    """
    scores, x_slopes, y_slopes = matched
    n, m = (0 if slopes is None else slopes.shape[1] for slopes in (x_slopes, y_slopes))
    slices, dim = theta.shape
    total, gradient = theta.new_empty(()), theta.new_empty((n + m, dim))
    finish = finishing(theta.get_device(), slices, n, m, dim, 1, share)
    finish(x_slopes, y_slopes, theta, gradient, scores, total, step)
    return total, gradient


def add_up(scores: Tensor, step: Tensor | None = None, share: float = 1.0) -> Tensor:
    """`share` of the sum of `scores (slices, ...)`, in float32; on the way, an int64 `step` moves on by one."""
    out = empty(scores, tuple(scores.shape[1:]), "float32")
    adding(scores.get_device(), scores.shape[0], out.numel(), share)(scores, out, step)
    return out


def move_clouds(x: Tensor, y: Tensor, like: Tensor) -> tuple[Tensor, Tensor]:
    """Copies of contiguous clouds `(n, dim)`, `(m, dim)`, moved to the origin where `like` is far from it."""
    (n, dim), m = x.shape, y.shape[0]
    out = x.new_empty((n + m, dim))
    lines = -(-_MOVED // dim)
    sizes = n, m, like.shape[0], dim, lines
    _bind_plain(_MOVE_CLOUDS, x.get_device(), -(-n // lines) - (-m // lines), *sizes)(x, y, like, out)
    return out[:n], out[n:]


def project_few(clouds: tuple[Tensor, ...], theta: Tensor) -> Tensor:
    """Projections `(clouds, slices, n)` of one or two clouds `(n, dim)` of at most `FEW_COORDINATES`."""
    (n, dim), slices, size = clouds[0].shape, theta.shape[0], len(clouds)
    out = theta.new_empty((size, slices, n))
    blocks = -(-slices // _DIRECTIONS) * size * -(-n // (4 * _THREADS))
    sizes, room = (slices, n, n * (size - 1), dim), 4 * FEW_COORDINATES * _DIRECTIONS
    launch = _bind_plain(_PROJECT_FEW, theta.get_device(), blocks, *sizes, shared_bytes=room)
    launch(clouds[0], clouds[-1], theta, out[0], out[-1])
    return out


def gather_few(gradient: Tensor, slopes: Tensor, theta: Tensor, *, is_first: bool) -> None:
    """Write or add `slopes (slices, n)` times `theta (slices, dim)`, of few coordinates, to `gradient`."""
    (slices, n), dim, room = slopes.shape, theta.shape[1], 4 * FEW_COORDINATES * _DIRECTIONS
    numbers = slices, n, dim, int(is_first)
    launch = _bind_plain(_GATHER_FEW, theta.get_device(), -(-n // _THREADS), *numbers, shared_bytes=room)
    launch(slopes, theta, gradient)


def far_centre(points: Tensor) -> Tensor:
    """Where clouds `(..., n, dim)` sit in coordinates in which that is far from 0, `(..., dim)`; else 0."""
    points = points.contiguous()
    *batch, n, dim = points.shape
    centre = points.new_empty((*batch, dim))
    blocks, room = math.prod(batch) * -(-dim // 32), 4 * 2 * _THREADS
    _bind_plain(_FAR_CENTRE, points.get_device(), blocks, n, dim, shared_bytes=room)(points, centre)
    return centre


def check_rows(theta: Tensor, tolerance: float, rounding: float) -> Tensor:
    """Rows `(slices, dim)` made of unit length if they are so up to `tolerance`, and NaN if they are not."""
    slices, dim = theta.shape
    out = theta.new_empty(theta.shape)
    _checking(theta.get_device(), slices, dim, tolerance, rounding)(theta.contiguous(), out)
    return out


@functools.lru_cache(maxsize=1024)
def _checking(device: int, slices: int, dim: int, tolerance: float, rounding: float) -> Launch:
    numbers = dim, tolerance, rounding
    return _bind_plain(_CHECK_ROWS, device, slices, *numbers, shared_bytes=8 * _THREADS)
