"""Sorted rows of weighted points, or of unequal numbers of points, matched by merging masses up to points.

The same masses and keys give the same costs and slopes, bit by bit. The reference is
`orthoslice.costs.weighted.weighted_slopes`.
"""

from __future__ import annotations

import functools
from typing import NamedTuple, TypeAlias

from orthoslice.backend.array_types import Tensor
from orthoslice.backend.kernels.cuda import Kernel, Launch, Program, bind, empty

# Threads of a block, and pairs that each of them prices.
_THREADS, _PIECES = 128, 16
_TILE = _THREADS * _PIECES
# Ranks of a long row that a block adds up the masses of.
_RANKS = 2048

_MERGE = Program("merge", (("THREADS", _THREADS), ("PIECES", _PIECES), ("RANKS", _RANKS)))
# Masses and keys of a tile and its neighbours, and what warps leave each other; slopes are beside them.
_MERGE_BYTES = 8 * (4 * (_THREADS // 32) + 2) + 12 * (_TILE + 4)
_SLOPE_BYTES = 4 * (_TILE + 4)
_ADD_BYTES = 8 * (_THREADS // 32 + 1 + _RANKS + _RANKS // 32)
# What a part of a row leaves open to the next one.
_OPEN_BYTES = 24

_ADD_MASSES = Kernel("add_masses", 5, "iiiii")
_START_PARTS = Kernel("start_parts", 1, "i")
_MERGE_ROWS = Kernel("merge_rows", 13, "qqiiiifd")
_CARRY_OVER = Kernel("carry_over", 5, "iiii")


class Matched(NamedTuple):
    """Costs `(slices,)` in float64, and their derivatives by the projections where those were wanted."""

    scores: Tensor
    x_slopes: Tensor
    y_slopes: Tensor


Place: TypeAlias = Tensor | int | None
"""A tensor, or an address, or nothing."""


class SortedRows(NamedTuple):
    """Sorted rows of one cloud."""

    keys: Place
    places: Place
    mass: int
    """Of each point, where all points of the cloud weigh the same."""
    ends: Place = None
    """Otherwise the masses up to the points, as integers of 64 bits."""
    starts: Place = None
    """Of long rows the masses before every part, from which `ends` count then."""


def add_masses(
    keys: Tensor, places: Tensor, table: Tensor | None, scales: Tensor, is_double: bool, of_y: bool, batch: int
) -> SortedRows:
    """Sorted rows with the masses up to their points, from a table of weights `(batch, n)` of x or of y.

    Without a table there are weights in float32 in the room of the places. Scales are :func:`.scale_weights`'s.
    """
    (slices, n), device = keys.shape, keys.get_device()
    parts = -(-n // _RANKS)
    ends, starts = empty(keys, (slices, n), "int64"), empty(keys, (slices, parts), "int64")
    sizes = n, parts, int(is_double), int(of_y), batch
    add = bind(_ADD_MASSES, _MERGE, device, slices * parts, _THREADS, _ADD_BYTES, *sizes)
    add(places, table, scales, ends, starts)
    bind(_START_PARTS, _MERGE, device, slices, _THREADS, _ADD_BYTES, parts)(starts)
    return SortedRows(keys, places, 0, ends, starts)


class Merging:
    """The merge of sorted rows of one shape, (slices, n, m, batch), ready to be repeated.

    It works out `factor` times the costs on the line, which are sums of those of pairs times their masses, and
    with `with_slopes` their derivatives by the projections.
    """

    def __init__(
        self,
        device: int,
        shape: tuple[int, int, int, int],
        masses: tuple[int, int],
        p: float,
        factor: float,
        with_slopes: bool,
    ) -> None:
        slices, n, m, batch = shape
        self.parts = -(-(n + m) // _TILE)
        """In how many parts the cost of a row is given."""
        count, room = slices * self.parts, _MERGE_BYTES + _SLOPE_BYTES * with_slopes
        numbers = *masses, n, m, self.parts, batch, p, factor
        self._merge = bind(_MERGE_ROWS, _MERGE, device, count, _THREADS, room, *numbers)
        self._carry: Launch | None = None
        if with_slopes and self.parts > 1:
            self._carry = bind(
                _CARRY_OVER, _MERGE, device, -(-count // _THREADS), _THREADS, 0, n, m, self.parts, count
            )
        self.words = count * _OPEN_BYTES // 4 if self._carry else 0
        """Of 32 bits that it needs to work in."""

    def __call__(
        self, x: SortedRows, y: SortedRows, scales: Place, room: Place, sums: Place, *slopes: Place
    ) -> None:
        """Takes sorted rows, scales of weights if there are any, and room; then room for costs and slopes."""
        self._merge(
            x.keys, y.keys, x.ends, y.ends, x.starts, y.starts, x.places, y.places, scales, sums, *slopes, room
        )
        if self._carry is not None:
            self._carry(x.places, y.places, room, *slopes)


# Preparing a launch takes longer than a small problem itself, so launches are prepared once and kept.
merging = functools.lru_cache(maxsize=1024)(Merging)


def merge_rows(
    x: SortedRows,
    y: SortedRows,
    scales: Tensor | None,
    like: Tensor,
    shape: tuple[int, int, int, int],
    p: float,
    factor: float,
    wanted: tuple[bool, bool],
) -> Matched:
    """The same on the device of `like`, with room for the costs and the wanted derivatives."""
    merge = merging(like.get_device(), shape, (x.mass, y.mass), p, factor, any(wanted))
    sums = empty(like, (shape[0], merge.parts), "float64")
    slopes = [
        like.new_empty((shape[0], k)) if want else None for k, want in zip(shape[1:3], wanted, strict=True)
    ]
    merge(x, y, scales, like.new_empty(merge.words) if merge.words else None, sums, *slopes)
    return Matched(sums.sum(1) if merge.parts > 1 else sums[:, 0], *slopes)
