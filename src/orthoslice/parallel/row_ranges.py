"""Projected distances of clouds too large for one task: couplings are cut into ranges, and rows go to each.

The cost of a coupling by order is a sum over ranges of mass, as in :mod:`orthoslice.parallel.ranges`. But pairs
are priced in space, so that a range gets points, and the order of tied points matters. In memory, projections that
rounding may have put apart are a tie, a chain of such is one tie, and the points of a tie are in lexicographic
order (:func:`orthoslice.orders.tied_order`). A tie may be longer than a range. So the marks, at which clouds are
cut, are points, and where a point lies among them is told by its tie first and by its coordinates second:

1. *Look.* Some points drawn at random are candidates. Every chunk tells what it has so close to their projections
   that it may tie with them; together this tells where their ties end. Candidates whose tie remains open are no
   marks.
2. *Count.* Every chunk counts what it has between marks, and equal to each: integers, so their sums are exact.
3. *Exchange.* A range gets all points between the last mark that is surely not above its lower end and the first
   one that is surely not below its upper end. Ties that no mark is in are there as a whole or not at all. It puts
   the points in order and cuts off what belongs to its neighbours: it knows how much mass comes before.

Marks that were drawn badly make ranges longer, never wrong. Points equal to a mark are not sent: their mass is
known from the count.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple, NoReturn

import numpy as np

from orthoslice.arrays import Stream, lexsort_rows
from orthoslice.cloud import Cloud
from orthoslice.coupling import coupling_bytes, total_mass
from orthoslice.directions.base import SteadyDirections
from orthoslice.directions.drawing import Blocks
from orthoslice.orders import order_points, ready_for_ties, roundings
from orthoslice.parallel.chunks import LazyCloud, Reading, visit_chunks
from orthoslice.parallel.exchange import Cluster, Lines, Table
from orthoslice.parallel.ranges import Units, units_of
from orthoslice.passes import Passes, Task
from orthoslice.request import Request
from orthoslice.threads import single_threaded_blas

# Marks for each range, and points drawn for each mark: ranges are about an eighth longer than they have to be.
_MARKS, _DRAWN = 16, 4

# How often to look for the ends of ties, further each time, and in how many reaches of a candidate at first.
_LOOKS, _FIRST_LOOK = 3, 8

# How many times longer than its share a range may become.
_LONGEST = 2

# Copies of its points that a range makes: as they came, together, and in order.
_COPIES = 3

# Directions that are looked at and counted in one pass over the chunks.
_COUNTED = 8

_NOTHING = (False, False, False, False)


class Marks(NamedTuple):
    """Points that the order of a cloud on a direction is cut at, and the ties that they are in, all in order."""

    points: Table
    """`(marks, dim)`"""
    tie: Table
    """Which tie each is in, `(marks,)`."""
    low: Table
    """The least projection of each tie, `(ties,)`."""
    high: Table

    def ties_of(self, values: Table) -> tuple[Table, Table]:
        """How many ties begin before each projection or with it, and whether it is in the last of these."""
        begun = np.searchsorted(self.low, values, side="right")
        return begun, values <= np.append(self.high, np.nan)[begun - 1]

    def places(self, points: Table, values: Table) -> Table:
        """Where points lie: 2 k - 1 if equal to the k-th mark, counted from 1, and 2 k between it and the next.

        Examples
        --------
        >>> points, ends = np.array([[5.0, 0.0], [5.0, 2.0], [7.0, 0.0]]), np.array([5.0, 7.0])
        >>> marks = Marks(points, np.array([0, 0, 1]), ends, ends)
        >>> points = np.array([[4.0, 9.0], [5.0, 0.0], [5.0, 1.0], [5.0, 3.0], [6.0, 0.0], [7.0, 0.0]])
        >>> marks.places(points, points[:, 0]).tolist()
        [0, 1, 2, 4, 4, 5]
        """
        begun, inside = self.ties_of(values)
        place = 2 * np.searchsorted(self.tie, begun, side="left")
        tied, n_marks = np.flatnonzero(inside), len(self.tie)
        ties = np.concatenate([self.tie, begun[tied] - 1])
        keys = np.column_stack([ties, np.concatenate([self.points, points[tied]])])
        # Marks come first, and so before points that are equal to them.
        order = lexsort_rows(keys[None])[0]
        passed = np.cumsum(order < n_marks)[order >= n_marks]
        order = order[order >= n_marks]
        # Where none is passed, the last mark stands in, which is not equal either.
        equal = (keys[order] == keys[:n_marks][passed - 1]).all(axis=1)
        place[tied[order - n_marks]] = 2 * passed - equal
        return np.asarray(place)

    def between(self, low: int, high: int) -> Marks:
        """Those from one to another, counted from 1, and their ties."""
        own = slice(max(low - 1, 0), high)
        ties, tie = np.unique(self.tie[own], return_inverse=True)
        return Marks(self.points[own], tie, self.low[ties], self.high[ties])


class Search(NamedTuple):
    """Projections of candidates, and the ends of their ties as far as they are known."""

    value: Table
    half: Table
    """How far is looked to both sides."""
    low: Table
    """NaN while it is not known."""
    high: Table

    @property
    def is_open(self) -> Table:
        return np.isnan(self.low)

    def windows(self) -> tuple[Table, Table]:
        """Where to look, as disjoint intervals in order."""
        if not self.is_open.any():
            return self.value[:0], self.value[:0]
        value, half = self.value[self.is_open], self.half[self.is_open]
        order = np.argsort(value - half)
        low, high = (value - half)[order], np.maximum.accumulate((value + half)[order])
        apart = low[1:] > high[:-1]
        return low[np.append(True, apart)], high[np.append(apart, True)]

    def looked(self, near: Table, reach: Table) -> Search:
        """What is known once all is told that may tie with something in the windows, in order, with its reach.

        Who was not told is further from the windows than twice its reach: it ties with nobody who is in a window
        with all of its own reach. So a tie that is has no member that was not told.
        """
        if not len(near):
            return self
        first = np.flatnonzero(np.append(True, np.diff(near) > reach[:-1] + reach[1:]))
        low, high = near[first], near[np.append(first[1:], len(near)) - 1]
        tie = np.searchsorted(low, self.value, side="right") - 1
        above = np.maximum.reduceat(near + reach, first)[tie] - self.value
        below = self.value - np.minimum.reduceat(near - reach, first)[tie]
        far = np.maximum(above, below)
        closed = self.is_open & (far <= self.half)
        return Search(
            self.value,
            np.where(self.is_open & ~closed, 2 * far, self.half),
            np.where(closed, low[tie], self.low),
            np.where(closed, high[tie], self.high),
        )

    def marks(self, sample: Table, values: Table, step: int) -> Marks:
        """Every so many points of the sample in the ties that are known, one at least of each."""
        low, index = np.unique(self.low[~self.is_open], return_index=True)
        ties = Marks(sample[:0], np.zeros(0, dtype=np.int64), low, self.high[~self.is_open][index])
        begun, inside = ties.ties_of(values)
        keys = np.column_stack([begun - 1, sample])[inside]
        keys = keys[lexsort_rows(keys[None])[0]]
        tie = keys[:, 0].astype(np.int64)
        kept = (np.arange(len(tie)) - np.searchsorted(tie, tie, side="left")) % step == 0
        keys, tie = keys[kept], tie[kept]
        new = np.append(True, (keys[1:] != keys[:-1]).any(axis=1))[: len(keys)]
        return Marks(keys[new, 1:].astype(sample.dtype), tie[new], ties.low, ties.high)


class Side(NamedTuple):
    """What a range gets of a cloud: all from one mark to another, counted from 1; before the first is 0."""

    low: int
    high: int
    below: int
    """The mass below the lower mark."""
    at: Table
    """The mass at each of the marks."""


class Range(NamedTuple):
    """A range of mass on a direction, and what it gets of both clouds."""

    row: int
    first: int
    stop: int
    sides: tuple[Side, Side]


class RowRanges(NamedTuple):
    """Two clouds in chunks whose couplings are cut into ranges."""

    request: Request
    stream: Stream
    clouds: tuple[LazyCloud, LazyCloud]
    units: tuple[Units, Units]
    cluster: Cluster
    n_ranges: int
    samples: list[Table]
    """Points of both clouds that were drawn at random, as chunks make them."""

    @classmethod
    def of(cls, request: Request, stream: Stream, x: LazyCloud, y: LazyCloud, cluster: Cluster) -> RowRanges:
        """As many ranges as it takes for each to have room in the memory of a task."""
        n_ranges = min(-(-(x.n + y.n) * _point_bytes(x, y) // request.memory), x.n, y.n)
        rng, size = np.random.default_rng(0), _MARKS * _DRAWN * n_ranges
        # All points count alike, whatever their weights: each takes the same room.
        plain = [replace(c, weight_chunks=None) for c in (x, y)]
        visits = visit_chunks(plain, [[rng.integers(0, c.n, size)] for c in plain])
        samples = []
        for cloud, visit in zip(plain, visits, strict=True):
            points, origin = visit.points[0].astype(cloud.dtype), cloud.reading.origin
            samples.append(points if origin is None else points - origin)
        return cls(request, stream, (x, y), units_of(x, y), cluster, n_ranges, samples)

    @property
    def rows_at_once(self) -> int:
        """Directions of a task: their projections take no more memory than points do."""
        return min(self.clouds[0].dim, _COUNTED)

    @property
    def ranges_at_once(self) -> int:
        """As many as are worked on at once, of no more directions than a chunk has room to send itself on."""
        x, y = self.clouds
        chunk = max(*x.sizes, *y.sizes) * x.dim * x.dtype.itemsize
        return min(self.cluster.n_slots, self.n_ranges * max(1, self.request.memory // (2 * chunk)))

    def scores(self, task: Task) -> Table:
        """Scores of the directions of a task, `(rows,)`."""
        dim = self.clouds[0].dim
        blocks = Blocks(self.request.sampler, self.stream, *task[:3], dim, np.dtype(np.float64))
        # Told to all: who draws them anew elsewhere may round them differently.
        theta = Lines(blocks, slice(task.row, task.row + task.n_rows)).project(np.eye(dim))
        marks = self._find_marks(theta)
        counted = self._on_chunks(_count_chunk, theta, marks)
        tables = [[sum(parts) for parts in zip(*own, strict=True)] for own in counted]
        ranges = [r for row, both in enumerate(zip(*tables, strict=True)) for r in self._cut(row, both)]
        costs, totals = np.zeros(len(theta)), np.zeros(len(theta))
        for first in range(0, len(ranges), self.ranges_at_once):
            wave = ranges[first : first + self.ranges_at_once]
            for share, cost in zip(wave, self._priced(task, theta, marks, wave), strict=True):
                costs[share.row] += cost
                totals[share.row] += share.stop - share.first
        return costs / totals

    def _on_chunks(self, work: Any, theta: Table, told: Sequence[Any]) -> list[list[Any]]:
        """What `work` makes of every chunk, told of its cloud what is its."""
        return list(self.cluster.compute(*self._delayed(work, theta, told)))

    def _delayed(self, work: Any, theta: Table, told: Sequence[Any], nout: int | None = None) -> list[list[Any]]:
        import dask

        do, lists = dask.delayed(work, pure=False, nout=nout), []
        for cloud, unit, own in zip(self.clouds, self.units, told, strict=True):
            known = dask.delayed((cloud.reading, unit, theta, own), pure=False, traverse=False)
            lists.append([do(chunk, weights, known) for chunk, weights in cloud.pairs])
        return lists

    def _find_marks(self, theta: Table) -> list[list[Marks]]:
        """Marks of both clouds on every direction."""
        values = [_project(theta, sample) for sample in self.samples]
        searches = []
        for own, sample in zip(values, self.samples, strict=True):
            reach = roundings(sample)
            searches.append([_candidates(row, reach) for row in own])
        for _ in range(_LOOKS):
            told = self._on_chunks(_look_at_chunk, theta, [[s.windows() for s in own] for own in searches])
            for own, parts in zip(searches, told, strict=True):
                for row, found in enumerate(zip(*parts, strict=True)):
                    near, reach = (np.concatenate(a) for a in zip(*found, strict=True))
                    own[row] = own[row].looked(*_distinct(near, reach))
            if not any(search.is_open.any() for own in searches for search in own):
                break
        return [
            [search.marks(sample, row, _DRAWN) for search, row in zip(own, rows, strict=True)]
            for own, sample, rows in zip(searches, self.samples, values, strict=True)
        ]

    def _cut(self, row: int, tables: Sequence[Table]) -> list[Range]:
        """Ranges of a direction to which about as many points are sent each, from what lies where."""
        ends, sent = zip(*(np.cumsum(np.pad(t, ((0, 0), (1, 0))), axis=1) for t in tables), strict=True)
        # Rounded weights may leave one cloud a few units of 2**-62 more.
        total = min(int(own[-1]) for own in ends)
        grid = np.unique(np.concatenate(ends))
        passed = sum(np.interp(grid, own, points) for own, points in zip(ends, sent, strict=True))
        parts = passed[-1] * np.arange(1, self.n_ranges) / self.n_ranges
        cuts = [0, *(min(int(cut), total) for cut in np.interp(parts, passed, grid)), total]
        ranges = []
        for first, stop in itertools.pairwise(cuts):
            if first == stop:
                continue
            sides, length = [], 0
            for own, points in zip(ends, sent, strict=True):
                below, upto = np.append(0, own[1::2]), np.append(own[0::2], own[-1])
                low = int(np.searchsorted(below, first, side="right")) - 1
                high = max(low, int(np.searchsorted(upto, stop, side="left")))
                sides.append(Side(low, high, int(below[low]), (upto - below)[1:-1][max(low - 1, 0) : high]))
                length += int(points[2 * high - 1] - points[2 * low]) if low < high else 0
            if length * _point_bytes(*self.clouds) > _LONGEST * self.request.memory:
                _refuse_crowds()
            ranges.append(Range(row, first, stop, (sides[0], sides[1])))
        return ranges

    def _priced(self, task: Task, theta: Table, marks: list[list[Marks]], wave: list[Range]) -> list[float]:
        import dask

        told = [(own, side, wave) for side, own in enumerate(marks)]
        sent = self._delayed(_send_chunk, theta, told, nout=len(wave))
        price = dask.delayed(_price, pure=False)
        work = []
        for k, share in enumerate(wave):
            known = [own[share.row].between(side.low, side.high) for own, side in zip(marks, share.sides, strict=True)]
            own = task._replace(row=task.row + share.row, n_rows=1)
            told = dask.delayed((self.request, self.stream, own, theta[[share.row]], share, known), pure=False, traverse=False)
            work.append(price(told, *([piece[k] for piece in pieces] for pieces in sent)))
        return list(self.cluster.compute(*work))


def _candidates(values: Table, reach: Table) -> Search:
    """Quantiles of a sample, to be looked at."""
    known, most = _distinct(values, reach)
    picked = np.unique(np.sort(values)[::_DRAWN])
    nothing = np.full(len(picked), np.nan)
    return Search(picked, _FIRST_LOOK * most[np.searchsorted(known, picked)], nothing, nothing)


def _distinct(values: Table, reach: Table) -> tuple[Table, Table]:
    """Numbers in order, each once, and the largest reach of those that are equal."""
    order = np.argsort(values, kind="stable")
    values = values[order]
    first = np.flatnonzero(np.append(True, values[1:] != values[:-1])[: len(values)])
    return values[first], np.maximum.reduceat(reach[order], first) if len(first) else reach[:0]


def _project(theta: Table, points: Table) -> Table:
    """Projections `(rows, n)` in float64, the same for the same point wherever it lies."""
    rows: Table = SteadyDirections(theta).project(points, slice(None))
    return rows


def _point_bytes(x: LazyCloud, y: LazyCloud) -> int:
    """What a point takes in the memory of the range that it is sent to."""
    return _COPIES * x.dim * x.dtype.itemsize + coupling_bytes(x, y) // (x.n + y.n)


class _Chunk(NamedTuple):
    """What is read of a chunk: points that have mass."""

    points: Table
    masses: Table
    values: Table
    """`(rows, n)`"""


def _read(chunk: Any, weights: Any, reading: Reading, unit: Units, theta: Table) -> _Chunk:
    points = reading.points(chunk)
    masses = unit.masses(len(points), weights)
    if not masses.all():
        points, masses = points[masses > 0], masses[masses > 0]
    return _Chunk(points, masses, _project(theta, points))


def _look_at_chunk(chunk: Any, weights: Any, told: tuple[Any, ...]) -> list[tuple[Table, Table]]:
    """Projections that may tie with something in the windows of each direction, and their reach."""
    reading, unit, theta, windows = told
    points, _, rows = _read(chunk, weights, reading, unit, theta)
    reach, found = roundings(points), []
    for values, (low, high) in zip(rows, windows, strict=True):
        at = np.searchsorted(low, values + 2 * reach, side="right") - 1
        near = np.append(high, np.nan)[at] >= values - 2 * reach
        found.append(_distinct(values[near], reach[near]))
        # Sums of `dim` products that are equal but for rounding differ in so many ways at most.
        if len(found[-1][0]) > 8 * (points.shape[1] + 8) * max(1, len(low)):
            _refuse_crowds()
    return found


def _count_chunk(chunk: Any, weights: Any, told: tuple[Any, ...]) -> list[Table]:
    """Masses at all places of each direction, and how many points are to be sent from there, `(2, places)`."""
    reading, unit, theta, marks = told
    points, masses, rows = _read(chunk, weights, reading, unit, theta)
    tables = []
    for values, own in zip(rows, marks, strict=True):
        place, table = own.places(points, values), np.zeros((2, 2 * len(own.tie) + 1), dtype=np.int64)
        np.add.at(table[0], place, masses)
        table[1] = np.bincount(place, minlength=table.shape[1])
        # Marks stand for all that is equal to them.
        table[1, 1::2] = 0
        tables.append(table)
    return tables


def _send_chunk(chunk: Any, weights: Any, told: tuple[Any, ...]) -> tuple[tuple[Table, Table], ...]:
    """What every range of a wave gets of a chunk: points and their masses."""
    reading, unit, theta, (marks, side, wave) = told
    points, masses, rows = _read(chunk, weights, reading, unit, theta)
    places, pieces = {}, []
    for share in wave:
        row, (low, high, *_) = share.row, share.sides[side]
        if row not in places:
            places[row] = marks[row].places(points, rows[row])
        place = places[row]
        own = (place >= 2 * low) & (place <= 2 * high - 2) & (place % 2 == 0)
        pieces.append((points[own], masses[own]))
    return tuple(pieces)


def _price(told: tuple[Any, ...], *sent: list[tuple[Table, Table]]) -> float:
    """The cost of a range, times its mass."""
    request, stream, task, theta, share, marks = told
    x, y = (
        _in_order(share, side, theta, own, pieces)
        for side, own, pieces in zip(share.sides, marks, sent, strict=True)
    )
    total = float(total_mass(x.points))
    if x.n == y.n == share.stop - share.first:
        # All weigh 1, and are matched by rank.
        x, y, total = replace(x, weights=None), replace(y, weights=None), float(x.n)
    with single_threaded_blas():
        table, _ = Passes(request, x, y, stream, _NOTHING, lambda _: None).run_task(task)
    return float(table[0]) * total


def _in_order(share: Range, side: Side, theta: Table, marks: Marks, pieces: list[tuple[Table, Table]]) -> Cloud:
    """The points of a range in their order, with how much of the mass of each is in the range."""
    points = np.concatenate([marks.points, *(rows for rows, _ in pieces)])
    masses = np.concatenate([side.at, *(own for _, own in pieces)])
    lexicographic, cloud = ready_for_ties(Cloud(points))
    (values,), reach = _project(theta, cloud.points), cloud.rounding
    begun, inside = marks.ties_of(values)
    # The rest of a mark's tie may be elsewhere, and its links with it. It is a tie with nobody else.
    values, reach = np.where(inside, np.append(marks.low, np.nan)[begun - 1], values), np.where(inside, 0, reach)
    order = lexicographic[order_points(values[None], replace(cloud, rounding=reach))[0]]
    ends = side.below + np.cumsum(masses[order])
    inside = np.minimum(ends, share.stop) - np.maximum(ends - masses[order], share.first)
    kept = inside > 0
    points, masses = points[order[kept]], inside[kept]
    # Put in order already: no projection shall tell them apart.
    known = np.full(len(points), np.inf)
    return Cloud(points, masses / float(total_mass(points)), masses=masses, rounding=known)


def _refuse_crowds() -> NoReturn:
    raise ValueError(
        "`memory` must hold both clouds where many points are so close to each other, beside their distance from "
        "the origin, that float64 does not tell the order of their projections; a range of them does not fit. "
        "Pass a larger `memory`, or points without outliers, whose rounding is less."
    )
