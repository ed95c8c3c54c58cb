"""All pairs of two clouds on an NVIDIA GPU, in tiles that stay on chip, and rounds of auctions by short lists.

Points are given by columns, `(dim, n)`, where n is a multiple of :data:`TILE`. What fills the last tile of y
has the price :data:`PADDING`. The plain references are in `orthoslice.exact.on_device`.
"""

from __future__ import annotations

from typing import NamedTuple

from orthoslice.backend.array_types import Tensor
from orthoslice.backend.kernels.cuda import Kernel, Program, bind, empty, most_shared_bytes

TILE = 128
"""Points of y in a tile: numbers of rows and of columns are multiples of it."""

PADDING = 1e20
"""The price of columns that are none: no real one is as dear, and squares and quotients of it fit a float32."""

_THREADS = 256
# Bytes of a number, rows of a thread, and whether minima are soft.
_KINDS = {(4, False): 8, (4, True): 8, (8, False): 4}
_SWEEPS = {
    (size, is_soft, is_squared): Program(
        "sweep",
        (
            *(("THREADS", _THREADS), ("REAL_BYTES", size), ("ROWS", rows), ("COLUMNS", 8)),
            *(("SOFT", int(is_soft)), ("SQUARED", int(is_squared))),
        ),
    )
    for (size, is_soft), rows in _KINDS.items()
    for is_squared in (False, True)
}
_SWEEP = {size: Kernel("sweep", 7, "iiiiii" + 2 * letter) for size, letter in ((4, "f"), (8, "d"))}
_DEPTH = 16
_BY_PART, _BY_TILE, _BY_PLACE = range(3)
# Blocks that keep a large GPU busy.
_BLOCKS = 1056

# By threads of a block: each warp has a row on chip, and where that is long, there is room for one of them.
_NEAR = {threads: Program("near", (("THREADS", threads), ("GROUP", TILE))) for threads in (128, 32)}
_NEAREST = Kernel("nearest_columns", 11, "qqiiid")

_BID_THREADS, _LAST_THREADS = 256, 1024
_BIDS = Program("bids", (("THREADS", _BID_THREADS),))
_LAST_BIDS = Program("bids", (("THREADS", _LAST_THREADS),))
_STEPS = tuple(Kernel(name, 14, "iiii") for name in ("make_bids", "claim_columns", "award_columns"))
_PLAY = Kernel("play_rounds", 14, "iii")

FEW_BIDDERS = 4096
"""Up to this many rows a single block plays the rounds."""


class Tiles(NamedTuple):
    """Which `tiles` of y every tile of x is held against: those from one of the places `starts` to the next.

    int32 and int64. Rows of x that lie in no tile of their own are in the last one.
    """

    tiles: Tensor
    starts: Tensor


def _swept(
    x: Tensor,
    y: Tensor,
    price: Tensor,
    p: float,
    kind: int,
    near: Tiles | None,
    groups: int = 0,
    sharpness: float = 0.0,
) -> tuple[Tensor, Tensor]:
    is_soft, size = sharpness > 0, x.element_size()
    (dim, n), m = x.shape, y.shape[1]
    tall = 16 * _KINDS[size, is_soft]
    parts = min(max(1, _BLOCKS // (n // tall)), m // TILE)
    groups = groups or parts
    # Tiles that are left out have nothing.
    least = x.new_full((n, groups), PADDING) if kind == _BY_TILE and near else x.new_empty((n, groups))
    sums = x.new_empty((n, groups)) if is_soft else None
    shared = 2 * _DEPTH * (tall + TILE) * size
    numbers = n, m, dim, parts, groups, kind, float(p), sharpness
    program, grid = _SWEEPS[size, is_soft, p == 2], n // tall * parts
    launch = bind(_SWEEP[size], program, x.get_device(), grid, _THREADS, shared, *numbers)
    launch(x, y, price, least, sums, *(near or (None, None)))
    return least, least if sums is None else sums


def tile_minima(x: Tensor, y: Tensor, price: Tensor, p: float, near: Tiles | None = None) -> Tensor:
    """The least |x - y|^p + price of every point of x in every tile of y, `(n, tiles)`."""
    return _swept(x, y, price, p, _BY_TILE, near, y.shape[1] // TILE)[0]


def minima_of(x: Tensor, y: Tensor, price: Tensor, p: float, near: Tiles, count: int) -> Tensor:
    """The least |x - y|^p + price of every point of x in each of `count` tiles that it has, `(n, count)`."""
    return _swept(x, y, price, p, _BY_PLACE, near, count)[0]


def least_totals(x: Tensor, y: Tensor, price: Tensor, p: float, near: Tiles | None = None) -> Tensor:
    """The least |x - y|^p + price of every point of x, `(n,)`, in the type of the points."""
    return _swept(x, y, price, p, _BY_PART, near)[0].amin(dim=1)


def soft_totals(x: Tensor, y: Tensor, price: Tensor, p: float, eps: float, near: Tiles | None = None) -> Tensor:
    """``-log(sum(exp(-(|x - y|^p + price) / eps)))`` of every point of x, `(n,)`."""
    largest, sums = _swept(x, y, price, p, _BY_PART, near, sharpness=1 / eps)
    top = largest.amax(dim=1, keepdim=True)
    total = (sums * (largest - top).exp()).sum(dim=1).log()
    return -(total + top[:, 0])


class Lists(NamedTuple):
    """For every row its cheapest `columns (n, size)`, int32; what they cost, `near (n, size)`; what others do.

    No other column of a row costs less than `bound (n,)` with its price. Costs are float64.
    """

    columns: Tensor
    near: Tensor
    bound: Tensor


def make_lists(
    columns: tuple[Tensor, Tensor, Tensor],
    points: tuple[Tensor, Tensor],
    rows: Tensor,
    groups: Tensor,
    limit: Tensor,
    p: float,
    lists: Lists,
) -> None:
    """Make the lists of some rows anew.

    Parameters
    ----------
    columns
        Points of x and y by columns, float32, and prices.
    points
        Points of x and y by rows, float64.
    rows
        Which rows, int64.
    groups, limit
        The tiles `(rows, size)` in which these have their cheapest columns, int64, and the largest of their
        minima, `(rows,)`.
    p
        The power.
    lists
        Where they are written.
    """
    (dim, n), m, size = columns[0].shape, columns[1].shape[1], groups.shape[1]
    device, numbers = rows.get_device(), (n, m, len(rows), dim, size, float(p))
    threads = next(t for t in _NEAR if t == 32 or _near_bytes(t, size, dim) <= most_shared_bytes(device))
    grid = -(-len(rows) // (threads // 32)), threads, _near_bytes(threads, size, dim)
    bind(_NEAREST, _NEAR[threads], device, *grid, *numbers)(*columns, *points, rows, groups, limit, *lists)


def _near_bytes(threads: int, size: int, dim: int) -> int:
    return 4 * threads // 32 * (2 * size * TILE + dim)


def lists_refusal(device: int, size: int, dim: int) -> str | None:
    """Why no lists of this size can be made of points with `dim` coordinates, or None if they can."""
    fits = _near_bytes(32, size, dim) <= most_shared_bytes(device)
    return None if fits else f"points with {dim} coordinates do not fit on a chip"


class Hall(NamedTuple):
    """What an auction is about: prices, who has which column, who bids, and scratch memory.

    `counts` are the rows in the two queues and the stale ones; `eps (1,)` is the least raise.
    """

    price: Tensor
    owner: Tensor
    column: Tensor
    highest: Tensor
    keenest: Tensor
    bid: Tensor
    wanted: Tensor
    queue: Tensor
    stale: Tensor
    counts: Tensor
    eps: Tensor


def new_hall(price: Tensor, owner: Tensor, column: Tensor, eps: float) -> Hall:
    n, m = len(column), len(owner)
    return Hall(
        price,
        owner,
        column,
        owner.new_zeros(m, dtype=empty(owner, (0,), "int64").dtype),
        owner.new_full((m,), n),
        price.new_empty(n),
        owner.new_empty(n),
        owner.new_empty((2, n)),
        owner.new_empty(n),
        owner.new_zeros(3),
        price.new_full((1,), eps),
    )


def play(lists: Lists, hall: Hall, rounds: int, count: int) -> None:
    """An even number of rounds, of the `count` rows of the first queue; those that are left are there again."""
    columns, near, bound = lists
    n, size = columns.shape
    device, where = columns.get_device(), (near, columns, bound, *hall)
    if count <= FEW_BIDDERS:
        bind(_PLAY, _LAST_BIDS, device, 1, _LAST_THREADS, 0, n, size, rounds)(*where)
        return
    grid = min(-(-count // _BID_THREADS), _BLOCKS)
    for turn in range(rounds):
        for step in _STEPS:
            bind(step, _BIDS, device, grid, _BID_THREADS, 0, n, size, grid, turn % 2)(*where)
