"""Projected distances of clouds too large for one task: couplings are cut into ranges, and rows go to each.

The cost of a coupling by order is a sum over ranges of mass, as in :mod:`orthoslice.parallel.ranges`. But
pairs are priced in space: a range gets points, n times `dim` numbers a direction, and the order of tied
points matters. A tie may be longer than a range. So clouds are cut at marks that are points, and where a
point lies among them is told by its tie first and by its coordinates second
(:mod:`orthoslice.parallel.cut_marks`):

1. *Search.* Some points drawn at random are candidates. Every chunk tells what it has so close to their
   projections that it may tie with them; all this together tells where their ties end. Candidates whose tie
   remains open are no marks.
2. *Count.* Every chunk counts what it has between marks, and equal to each: integers, so their sums are
   exact.
3. *Send.* A range gets all points between the last mark that is surely not above its lower end and the
   first one that is surely not below its upper end. Ties that no mark is in lie there as a whole or not at
   all. It puts the points in order, as in memory, and cuts off what belongs to its neighbours: it knows how
   much mass comes before. Any score prices what is left.

Marks that were drawn badly make ranges longer, never wrong. Points equal to a mark are not sent: their mass
is known from the count.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple, NoReturn, cast

import numpy as np

from orthoslice.backend.arrays import NO_GRADIENTS, HostArray, Key
from orthoslice.backend.threads import single_threaded_blas
from orthoslice.clouds.canonical import roundings
from orthoslice.clouds.masses import total_mass
from orthoslice.clouds.ready import ReadyCloud
from orthoslice.couplings.coupling import coupling_bytes
from orthoslice.directions.base import SteadyDirections
from orthoslice.directions.drawing import Blocks
from orthoslice.directions.walks import Task
from orthoslice.estimates.passes import Passes
from orthoslice.estimates.request import Request
from orthoslice.parallel.chunks import LazyCloud
from orthoslice.parallel.cut_marks import Marks, Search, candidates, distinct, order_on_line
from orthoslice.parallel.ranges import Units, draw_samples, even_cuts, units_of
from orthoslice.parallel.reading import Reading
from orthoslice.parallel.shuffle import Cluster, Lines

# _MARKS marks a range and _DRAWN points a mark: ranges are about an eighth longer than they have to be.
_MARKS, _DRAWN = 16, 4

# Passes that search for the ends of ties, with wider windows each time.
_SEARCHES = 3

# How many times longer than its share a range may become.
_LONGEST = 2

# A range makes _COPIES copies of its points (as received, joined, in two orders), with _BESIDE bytes a point
# for masses and places. That is more than measured in 3 to 64 dimensions, since ranges exceed their share.
_COPIES, _BESIDE = 4, 32

# Directions whose ties are searched, and whose masses are counted, in one pass over the chunks.
_COUNTED = 8

# Coordinates that are projected at a time.
_CACHED_ITEMS = 1 << 16


class Portion(NamedTuple):
    """What a range gets of a cloud: all from one mark to another, or from or to the end."""

    marks: Marks
    at: HostArray
    """The mass at each of them."""
    below: int
    """The mass below the first of them, or 0."""
    is_first: bool
    """Whether the range gets all that is below them."""
    is_last: bool

    def chosen(self, points: HostArray, values: HostArray) -> HostArray:
        """Which points are sent."""
        low = -np.inf if self.is_first else self.marks.low[0]
        high = np.inf if self.is_last else self.marks.high[-1]
        near = np.flatnonzero((values >= low) & (values <= high))
        place, last = self.marks.places(points[near], values[near]), 2 * len(self.at)
        inside = (place % 2 == 0) & (self.is_first | (place > 0)) & (self.is_last | (place < last))
        chosen: HostArray = near[inside]
        return chosen


class Range(NamedTuple):
    """A range of mass on a direction, and what it gets of both clouds."""

    row: int
    first: int
    stop: int
    sides: tuple[Portion, Portion]


class RowRanges(NamedTuple):
    """Two clouds in chunks whose couplings are cut into ranges."""

    request: Request
    key: Key
    clouds: tuple[LazyCloud, LazyCloud]
    units: tuple[Units, Units]
    cluster: Cluster
    n_ranges: int
    samples: tuple[HostArray, HostArray]
    """Points of both clouds that were drawn at random, as chunks make them."""

    @classmethod
    def of(cls, request: Request, key: Key, x: LazyCloud, y: LazyCloud, cluster: Cluster) -> RowRanges:
        """As many ranges as it takes for each to have room in the memory of a task."""
        n_ranges = min(-(-(x.n + y.n) * _point_bytes(x, y) // request.memory), x.n + y.n)
        samples = draw_samples(x, y, _MARKS * _DRAWN * n_ranges)
        return cls(request, key, (x, y), units_of(x, y), cluster, n_ranges, samples)

    @property
    def rows_at_once(self) -> int:
        """Directions of a task: their projections take no more memory than points do."""
        return min(self.clouds[0].dim, _COUNTED)

    @property
    def ranges_at_once(self) -> int:
        """Ranges of a wave: at most one a slot, and of no more directions than a chunk can be copied for."""
        x, y = self.clouds
        chunk = max(*x.sizes, *y.sizes) * x.dim * x.dtype.itemsize
        directions: int = max(1, self.request.memory // (2 * chunk))
        return min(self.cluster.n_slots, self.n_ranges * directions)

    def scores(self, task: Task) -> HostArray:
        """Scores of the directions of a task, `(rows,)`."""
        dim = self.clouds[0].dim
        blocks = Blocks(self.request.sampler, self.key, *task[:3], dim, np.dtype(np.float64))
        # Sent to all workers: drawn again on another processor, they might be rounded differently.
        theta = Lines(blocks, slice(task.row, task.row + task.n_rows)).project(np.eye(dim))
        marks = self._find_marks(theta)
        counted = self._on_chunks(_count_chunk, theta, marks)
        tables = [[sum(parts) for parts in zip(*own, strict=True)] for own in counted]
        ranges = [
            share
            for row, (x, y) in enumerate(zip(*tables, strict=True))
            for share in self._cut(row, (x, y), (marks[0][row], marks[1][row]))
        ]
        costs, totals = np.zeros(len(theta)), np.zeros(len(theta))
        for first in range(0, len(ranges), self.ranges_at_once):
            wave = ranges[first : first + self.ranges_at_once]
            for share, cost in zip(wave, self._priced(task, theta, wave), strict=True):
                costs[share.row] += cost
                totals[share.row] += share.stop - share.first
        return costs / totals

    def _on_chunks(self, work: object, theta: HostArray, told: Sequence[Any]) -> list[list[Any]]:
        """What `work` makes of every chunk; for the chunks of cloud k it also gets `told[k]`."""
        return list(self.cluster.compute(*self._delayed(work, theta, told)))

    def _delayed(
        self, work: object, theta: HostArray, told: Sequence[Any], nout: int | None = None
    ) -> list[list[Any]]:
        import dask

        do, lists = dask.delayed(work, pure=False, nout=nout), []
        for cloud, unit, own in zip(self.clouds, self.units, told, strict=True):
            known = dask.delayed((cloud.reading, unit, theta, own), pure=False, traverse=False)
            lists.append([do(chunk, weights, known) for chunk, weights in cloud.pairs])
        return lists

    def _find_marks(self, theta: HostArray) -> list[list[Marks]]:
        """Marks of both clouds on every direction."""
        values = [_project(theta, sample) for sample in self.samples]
        searches: list[list[Search]] = []
        for rows, sample in zip(values, self.samples, strict=True):
            reach = cast(HostArray, roundings(sample))
            searches.append([candidates(row, reach, _DRAWN) for row in rows])
        for _ in range(_SEARCHES):
            told = self._on_chunks(_near_windows, theta, [[s.windows() for s in own] for own in searches])
            for own, parts in zip(searches, told, strict=True):
                for row, found in enumerate(zip(*parts, strict=True)):
                    near, reach = (np.concatenate(a) for a in zip(*found, strict=True))
                    own[row] = own[row].narrowed(*distinct(near, reach))
            if not any(search.is_open.any() for own in searches for search in own):
                break
        return [
            [search.marks(sample, row, _DRAWN) for search, row in zip(own, rows, strict=True)]
            for own, sample, rows in zip(searches, self.samples, values, strict=True)
        ]

    def _cut(self, row: int, tables: tuple[HostArray, HostArray], marks: tuple[Marks, Marks]) -> list[Range]:
        """Ranges of a direction, each sent about as many points; `tables` count masses and points by place."""
        ends, sent = zip(*(np.cumsum(np.pad(t, ((0, 0), (1, 0))), axis=1) for t in tables), strict=True)
        ranges = []
        for first, stop in itertools.pairwise(even_cuts(ends, sent, self.n_ranges)):
            if first == stop:
                continue
            sides, length = [], 0
            for own, points, among in zip(ends, sent, marks, strict=True):
                below, upto = np.append(0, own[1::2]), np.append(own[0::2], own[-1])
                low = int(np.searchsorted(below, first, side="right")) - 1
                high = max(low, int(np.searchsorted(upto, stop, side="left")))
                # The first and the last of `below` and `upto` are the ends of the line, not marks.
                known = slice(max(low - 1, 0), high)
                at = (upto - below)[1:-1][known]
                sides.append(Portion(among.some(known), at, int(below[low]), low == 0, high > len(among.tie)))
                length += int(points[2 * high - 1] - points[2 * low]) if low < high else 0
            if length * _point_bytes(*self.clouds) > _LONGEST * self.request.memory:
                _refuse_crowds()
            ranges.append(Range(row, first, stop, (sides[0], sides[1])))
        return ranges

    def _priced(self, task: Task, theta: HostArray, wave: list[Range]) -> list[float]:
        """What the ranges of a wave cost, times their masses."""
        import dask

        rows = slice(wave[0].row, wave[-1].row + 1)
        told = [[(share.row - rows.start, share.sides[side]) for share in wave] for side in range(2)]
        sent = self._delayed(_send_chunk, theta[rows], told, nout=len(wave))
        price, work = dask.delayed(_price, pure=False), []
        for k, share in enumerate(wave):
            own = task._replace(row=task.row + share.row, n_rows=1)
            about = (self.request, self.key, own, theta[[share.row]], share)
            pieces = [[piece[k] for piece in of_cloud] for of_cloud in sent]
            work.append(price(dask.delayed(about, pure=False, traverse=False), *pieces))
        return list(self.cluster.compute(*work))


def _project(theta: HostArray, points: HostArray) -> HostArray:
    """Projections `(rows, n)` in float64, the same for the same point wherever it lies."""
    # As many at a time as a cache holds: they are gone through once a coordinate.
    lines, step = SteadyDirections(theta), max(1, _CACHED_ITEMS // points.shape[1])
    parts = [points[first : first + step] for first in range(0, max(1, len(points)), step)]
    return np.concatenate([lines.project(part, slice(None)) for part in parts], axis=1)


def _point_bytes(x: LazyCloud, y: LazyCloud) -> int:
    """What a point takes in the memory of the range that it is sent to."""
    row: int = x.dim * x.dtype.itemsize
    return _COPIES * row + _BESIDE + coupling_bytes(x, y) // (x.n + y.n)


class _Chunk(NamedTuple):
    """What is read of a chunk: points that have mass."""

    points: HostArray
    masses: HostArray
    values: HostArray
    """`(rows, n)`"""


def _read(chunk: object, weights: object, reading: Reading, unit: Units, theta: HostArray) -> _Chunk:
    points, masses = unit.weighed(reading.points(chunk), weights)
    return _Chunk(points, masses, _project(theta, points))


def _near_windows(chunk: object, weights: object, told: tuple[Any, ...]) -> list[tuple[HostArray, HostArray]]:
    """Projections that may tie with something in the windows of each direction, and their reach."""
    reading, unit, theta, windows = told
    points, _, rows = _read(chunk, weights, reading, unit, theta)
    reach, found = cast(HostArray, roundings(points)), []
    for values, (low, high) in zip(rows, windows, strict=True):
        at = np.searchsorted(low, values + 2 * reach, side="right") - 1
        near = np.append(high, np.nan)[at] >= values - 2 * reach
        found.append(distinct(values[near], reach[near]))
        # Sums of `dim` products that are equal but for rounding have at most 8 (dim + 8) values a window.
        if len(found[-1][0]) > 8 * (points.shape[1] + 8) * max(1, len(low)):
            _refuse_crowds()
    return found


def _count_chunk(chunk: object, weights: object, told: tuple[Any, ...]) -> list[HostArray]:
    """Masses at all places of each direction, and how many points are to be sent from there, `(2, places)`."""
    reading, unit, theta, marks = told
    points, masses, rows = _read(chunk, weights, reading, unit, theta)
    tables = []
    for values, own in zip(rows, marks, strict=True):
        place, table = own.places(points, values), np.zeros((2, 2 * len(own.tie) + 1), dtype=np.int64)
        np.add.at(table[0], place, masses)
        table[1] = np.bincount(place, minlength=table.shape[1])
        # Points equal to a mark are not sent: the mark stands for them.
        table[1, 1::2] = 0
        tables.append(table)
    return tables


def _send_chunk(
    chunk: object, weights: object, told: tuple[Any, ...]
) -> tuple[tuple[HostArray, HostArray], ...]:
    """What every range of a wave gets of a chunk: points and their masses."""
    reading, unit, theta, wave = told
    points, masses, rows = _read(chunk, weights, reading, unit, theta)
    chosen = [side.chosen(points, rows[row]) for row, side in wave]
    return tuple((points[own], masses[own]) for own in chosen)


def _price(about: tuple[Any, ...], *sent: list[tuple[HostArray, HostArray]]) -> float:
    """What a range costs, times its mass."""
    request, key, task, theta, share = about
    sides = zip(share.sides, sent, strict=True)
    x, y = (_in_order(share, side, theta, pieces) for side, pieces in sides)
    total = float(total_mass(x.points))
    if x.n == y.n == share.stop - share.first:
        # All weigh 1, and are matched by rank.
        x, y, total = replace(x, weights=None), replace(y, weights=None), float(x.n)
    with single_threaded_blas():
        table, _ = Passes(request, x, y, key, NO_GRADIENTS, lambda _: None).run_task(task)
    return float(table[0]) * total


def _in_order(
    share: Range, side: Portion, theta: HostArray, pieces: list[tuple[HostArray, HostArray]]
) -> ReadyCloud:
    """The points of a range in their order, with how much of the mass of each is in the range."""
    marks = side.marks
    points = np.concatenate([marks.points, *(rows for rows, _ in pieces)])
    masses = np.concatenate([side.at, *(own for _, own in pieces)])
    (values,), reach = _project(theta, points), cast(HostArray, roundings(points))
    begun, tied = marks.ties_of(values)
    # Points that link a mark's tie may be in other ranges: its points get one value, and tie with no others.
    values[tied], reach[tied] = marks.low[begun[tied] - 1], 0.0
    order = order_on_line(points, values, reach)
    ends = side.below + np.cumsum(masses[order])
    inside = np.minimum(ends, share.stop) - np.maximum(ends - masses[order], share.first)
    points, masses = points[order[inside > 0]], inside[inside > 0]
    # Already in order: an infinite rounding makes them one tie, which keeps its order.
    known = np.full(len(points), np.inf)
    return ReadyCloud(points, masses / float(total_mass(points)), masses=masses, rounding=known)


def _refuse_crowds() -> NoReturn:
    raise ValueError(
        "`memory` must hold both clouds for a projected distance of points so close together, compared with "
        "their distance from the origin, that their order on a line is lost in the rounding of float64; got "
        "less. Pass a larger `memory`, or ask for `sliced_wasserstein`, which needs no order of ties."
    )
