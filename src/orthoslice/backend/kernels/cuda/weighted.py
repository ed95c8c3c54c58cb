"""Costs on the line of weighted points on an NVIDIA GPU.

Weights become integers whose sums are exact. Rows are sorted with the mass up to every point, and those masses
are merged: by as many threads as there is work, whatever the weights. The reference is
`orthoslice.costs.weighted.weighted_slopes`.
"""

from __future__ import annotations

import functools
import math
from typing import NamedTuple

from orthoslice.backend.array_types import Tensor
from orthoslice.backend.kernels.cuda import Kernel, Program, bind, empty
from orthoslice.backend.kernels.cuda.merge import Matched, Place, SortedRows, add_masses, merge_rows, merging
from orthoslice.backend.kernels.cuda.rows import (
    SHAPES_WITH_PLACES,
    Shape,
    Sorted,
    Source,
    adding,
    compiled_for,
    finishing,
    longest_on_chip,
    projecting,
    shape_for,
    sorting_long_rows,
)

ALL_MASS = 1 << 62
"""What the masses of a cloud sum to, up to half a unit a point."""

# The weights of a cloud are added up by one block.
_ADDING = 1024
_MASSES = Program("masses", (("THREADS", _ADDING),))

_SCALE_WEIGHTS = Kernel("scale_weights", 3, "qqiidd")
_SORT_WEIGHTED = Kernel("sort_weighted", 12, "iiiiii")

_SORT_GIVEN, _SORT_CLOUDS = (Source("weighted", (("PROJECTS", projects),)) for projects in (0, 1))
_PROJECTING = SHAPES_WITH_PLACES[:3]
for _source, _shapes in ((_SORT_GIVEN, SHAPES_WITH_PLACES), (_SORT_CLOUDS, _PROJECTING)):
    for _pair in _shapes:
        compiled_for(_source, Shape(*_pair, True))

MOST_PROJECTED = math.prod(_PROJECTING[-1])
"""Points up to which the kernel that sorts weighted points also projects them."""


class ScaledWeights(NamedTuple):
    """Weights `(batch, n)`, `(batch, m)` of two clouds, in float32 or float64; None for points of equal mass.

    Row k has those of cloud `k % batch`.
    """

    x: Tensor | None
    y: Tensor | None
    scales: Tensor | None
    """Of every cloud of x, then of y: what its weights are multiplied by, and a factor of all its costs."""
    batch: int
    kinds: tuple[int, int]
    """How many bytes a weight of either cloud has; 0 where points weigh the same."""


EVEN = ScaledWeights(None, None, None, 1, (0, 0))
"""Points of equal mass on both sides."""


def scale_weights(
    x_weights: Tensor | None, y_weights: Tensor | None, tolerances: tuple[float, float], like: Tensor
) -> ScaledWeights:
    """Weights `(..., n)` and `(..., m)` made ready, on the device of `like`.

    Negative ones, and those whose sum is further from 1 than the cloud's tolerance, make every cost NaN.
    """
    tables = [None if w is None else w.contiguous() for w in (x_weights, y_weights)]
    n, m = (1 if w is None else w.shape[-1] for w in tables)
    batch = max(w.numel() // w.shape[-1] for w in tables if w is not None)
    scales = empty(like, (2 * batch, 2), "float64")
    kinds = tuple(0 if w is None else w.itemsize for w in tables)
    numbers = n, m, _doubles(kinds), batch, *tolerances
    scale = bind(_SCALE_WEIGHTS, _MASSES, like.get_device(), 2 * batch, _ADDING, 8 * _ADDING // 32, *numbers)
    scale(*tables, scales)
    return ScaledWeights(tables[0], tables[1], scales, batch, (kinds[0], kinds[1]))


def _doubles(kinds: tuple[int, ...]) -> int:
    """In two bits, which weights are in double precision."""
    return (kinds[0] == 8) + 2 * (kinds[1] == 8)


def match_weighted(
    px: Tensor, py: Tensor, weights: ScaledWeights, p: float, factor: float, wanted: tuple[bool, bool]
) -> Matched:
    """`factor` times the costs on the line of weighted `px (slices, n)` and `py (slices, m)`.

    And the wanted derivatives by the projections.
    """
    px, py = px.contiguous(), py.contiguous()
    (slices, n), m = px.shape, py.shape[1]
    if max(n, m) <= longest_on_chip(px.get_device()):
        shape = slices, n, m, weights.batch
        match = matching_on_chip(px.get_device(), shape, weights.kinds, p, factor, wanted)
        sums = empty(px, (slices, match.parts), "float64")
        slopes = [px.new_empty(q.shape) if want else None for q, want in zip((px, py), wanted, strict=True)]
        room = px.new_empty(match.words)
        match(px, py, None, weights, room.data_ptr(), sums, *slopes)
        return Matched(sums.sum(1) if match.parts > 1 else sums[:, 0], *slopes)
    x, y = (sort_long(rows, weights, k, wanted[k]) for k, rows in enumerate((px, py)))
    return match_long(x, y, weights, p, factor, wanted)


def match_long(
    x: Sorted, y: Sorted, weights: ScaledWeights, p: float, factor: float, wanted: tuple[bool, bool]
) -> Matched:
    """The same for rows that :func:`sort_long` has sorted."""
    own_x, own_y = (_add_up(rows, weights, k, wanted[k]) for k, rows in enumerate((x, y)))
    shape = *x.keys.shape, y.keys.shape[1], weights.batch
    return merge_rows(own_x, own_y, weights.scales, x.keys, shape, p, factor / ALL_MASS, wanted)


class MatchOnChip:
    """As :func:`match_weighted`, for rows of one shape, (slices, n, m, batch), that fit on a chip.

    `kinds` are those of the weights. With a `dim` it takes clouds in so many dimensions, and directions.
    """

    def __init__(
        self,
        device: int,
        shape: tuple[int, int, int, int],
        kinds: tuple[int, int],
        p: float,
        factor: float,
        wanted: tuple[bool, bool],
        dim: int = 0,
    ) -> None:
        slices, n, m, batch = shape
        source, numbers = _SORT_CLOUDS if dim else _SORT_GIVEN, (slices, n, m, dim, _doubles(kinds), batch)
        # The centre of the clouds, at a multiple of 16 bytes.
        room = dim + 3 if dim else 0
        of_block = shape_for(max(n, m), True)
        self._sort = of_block.bind(source, _SORT_WEIGHTED, device, 2 * slices, *numbers, extra_words=room)
        # Where all points weigh the same, small numbers are exact.
        whole = ALL_MASS if any(kinds) else n * m
        self._masses = whole // n, whole // m
        self._merge = merging(device, shape, self._masses, p, factor / whole, any(wanted))
        self.parts = self._merge.parts
        """In how many parts the cost of a row is given."""
        # What the merge needs, masses where there are weights, then keys, and places where slopes are wanted.
        words = [2 * (kind > 0) for kind in kinds], (1, 1), wanted
        counts = [slices * size * width for both in words for size, width in zip((n, m), both, strict=True)]
        first = self._merge.words
        self._offsets = [4 * (first + sum(counts[:k])) if counts[k] else None for k in range(6)]
        self.words = first + sum(counts)
        """Of 32 bits that it needs to work in, at a multiple of 8 bytes."""

    def __call__(
        self,
        x: Place,
        y: Place,
        theta: Place,
        weights: ScaledWeights,
        room: int,
        sums: Place,
        *slopes: Place,
    ) -> None:
        """Takes contiguous rows and None, or clouds and directions; then room for costs and wanted slopes.

        `room` is the address of what it works in.
        """
        at = [None if offset is None else room + offset for offset in self._offsets]
        x_ends, y_ends, x_keys, y_keys, x_places, y_places = at
        tables = weights.x, weights.y, weights.scales
        self._sort(x, y, theta, *tables, x_keys, y_keys, x_ends, y_ends, x_places, y_places)
        own_x = SortedRows(x_keys, x_places, self._masses[0], x_ends)
        own_y = SortedRows(y_keys, y_places, self._masses[1], y_ends)
        self._merge(own_x, own_y, weights.scales, room, sums, *slopes)


# Preparing a launch takes longer than a small problem itself, so launches are prepared once and kept.
matching_on_chip = functools.lru_cache(maxsize=1024)(MatchOnChip)


class WeightedStep:
    """The loss of weighted or unequal clouds that a chip sorts in one go, ready to be repeated for one shape.

    With `inside`, every direction projects the clouds where it sorts them; otherwise that is a launch before.
    """

    def __init__(self, device: int, slices: int, n: int, m: int, dim: int, p: float, inside: bool) -> None:
        self._project = None if inside else projecting(device, slices, n, m, dim)
        self._match = functools.partial(matching_on_chip, device, (slices, n, m, 1))
        self._p, self._factor = p, 1 / slices
        self._inside = dim if inside else 0
        self._device, self._slices, self._n, self._m, self._dim = device, slices, n, m, dim

    def __call__(
        self,
        x: Tensor,
        y: Tensor,
        theta: Tensor,
        step: Tensor | None,
        wanted: tuple[bool, bool],
        weights: ScaledWeights = EVEN,
    ) -> tuple[Tensor, Tensor | None]:
        """The loss as a float32 scalar, and the wanted gradients, one below the other, or None.

        Adds 1 to an int64 `step` unless it is None.
        """
        x, y, theta = x.contiguous(), y.contiguous(), theta.contiguous()
        (of_x, of_y), slices = wanted, self._slices
        match = self._match(weights.kinds, self._p, self._factor, wanted, self._inside)
        # Scores, of twice the width, and what the match works in; then projections, and over them their slopes.
        scores = slices * match.parts
        room = x.new_empty(2 * scores + match.words + slices * (self._n + self._m))
        total = x.new_empty(())
        sums = room.data_ptr()
        work = sums + 8 * scores
        px = work + 4 * match.words
        py = px + 4 * slices * self._n
        x_slopes, y_slopes = px if of_x else 0, py if of_y else 0
        if self._project is None:
            match(x, y, theta, weights, work, sums, x_slopes, y_slopes)
        else:
            self._project(x, y, theta, None, px, py)
            match(px, py, None, weights, work, sums, x_slopes, y_slopes)
        if not (of_x or of_y):
            adding(self._device, scores)(sums, total, step)
            return total, None
        sizes = slices, self._n * of_x, self._m * of_y, self._dim
        gradient = x.new_empty((sizes[1] + sizes[2], self._dim))
        finish = finishing(self._device, *sizes, parts=match.parts)
        finish(x_slopes, y_slopes, theta, gradient, sums, total, step)
        return total, gradient


def sort_long(rows: Tensor, weights: ScaledWeights, side: int, wanted: bool) -> Sorted:
    """Sorted rows `(slices, n)` of points of x or of y, the side 0 or 1.

    With places if they are `wanted`. Otherwise weights in single precision go along with their points in the
    stead of places: then none is looked up.
    """
    slices, n = rows.shape
    table, along = weights[side], _goes_along(weights, side, wanted)
    keys = empty(rows, rows.shape, "float32")
    places = empty(rows, rows.shape, "int32") if wanted or table is not None else None
    sort = sorting_long_rows(rows.get_device(), slices, n, places is not None, along)
    sort(rows.contiguous(), keys, places, table if along else None)
    return Sorted(keys, places)


def _goes_along(weights: ScaledWeights, side: int, wanted: bool) -> bool:
    return not wanted and weights.kinds[side] == 4 and weights.batch == 1


def _add_up(rows: Sorted, weights: ScaledWeights, side: int, wanted: bool) -> SortedRows:
    """Sorted rows with the masses up to their points; places that are not wanted are freed."""
    keys, places = rows
    table = weights[side]
    if table is None:
        return SortedRows(keys, places, ALL_MASS // keys.shape[1])
    looked_up = None if _goes_along(weights, side, wanted) else table
    is_double = weights.kinds[side] == 8
    own = add_masses(keys, places, looked_up, weights.scales, is_double, side == 1, weights.batch)
    return own if wanted else own._replace(places=None)
