"""A direction too long for one task: its quantiles are cut into ranges, and each range is priced by itself.

Couplings by order match equal shares of mass, so the cost of a direction is a sum over ranges of mass, the same
ones in both clouds. What lies in a range is found exactly:

1. *Count.* Some points drawn at random, projected, are the marks. Every chunk counts what it has below and up
   to each mark: integers, so their sums are exact. One pass over the chunks counts on all directions. Ranges
   are cut so that they get about as many points each, whatever these weigh.
2. *Send.* A range gets all that lies strictly between two marks, the last one that is surely not above its
   lower end and the first one that is surely not below its upper end. It sorts that, and cuts off what belongs
   to its neighbours: it knows how much mass comes before. For this the chunks are read again, for every few
   directions.

Where all points of a cloud weigh the same, chunks are not sorted for that: they are put in rough order, and
only numbers that are close to the end of a range are sorted (:mod:`orthoslice.costs.pieces`).

Marks that were drawn badly make ranges longer, never wrong. Points equal to a mark are not sent, their mass is
known from the count; a value that many points have is a mark nearly for certain, so ties make ranges shorter.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple, cast

import numpy as np

from orthoslice.backend.arrays import NO_GRADIENTS, HostArray
from orthoslice.backend.kernels.rough_order import rough_bounds
from orthoslice.clouds.masses import rounded_masses, total_mass
from orthoslice.clouds.ready import ReadyCloud
from orthoslice.costs.pieces import RowInPieces, mark_counts, order_roughly, piece_cost
from orthoslice.costs.segments import sort_segments
from orthoslice.costs.weighted import weighted_slopes
from orthoslice.couplings.orders import stable_order
from orthoslice.directions.base import Directions
from orthoslice.parallel.chunk_passes import visit_chunks
from orthoslice.parallel.chunks import LazyCloud
from orthoslice.parallel.reading import Reading, shape_only, weights_of
from orthoslice.parallel.shuffle import Cluster, Lines

# _MARKS marks a range and _DRAWN points a mark: ranges are about an eighth longer than they have to be.
_MARKS, _DRAWN = 16, 64
DRAWN_POINTS = _MARKS * _DRAWN

# Points that are projected and counted at a time, as a core's cache holds them.
_COUNTED = 1 << 14


class Units(NamedTuple):
    """What a point of a cloud weighs, in integers."""

    each: int | None
    """The mass of every point; None where masses differ."""
    share: float | None = None
    """1 / n, the weight of every point of a cloud without weights, where `each` is None."""
    whole: float = 1.0
    """What all weights sum to: 1, but for their rounding."""

    def masses(self, n: int, weights: object) -> HostArray:
        """The integer masses of the points of a chunk."""
        if self.each is not None:
            return np.full(n, self.each, dtype=np.int64)
        shares = np.full(n, self.share) if weights is None else weights_of("weights", weights)
        return cast(HostArray, rounded_masses(shares / self.whole * float(total_mass(shares))))

    def weighed(self, points: HostArray, weights: object) -> tuple[HostArray, HostArray]:
        """The points of a chunk that have mass, and their integer masses."""
        masses = self.masses(len(points), weights)
        return (points, masses) if masses.all() else (points[masses > 0], masses[masses > 0])


def units_of(x: LazyCloud, y: LazyCloud) -> tuple[Units, Units]:
    """Units in which both clouds have the same mass: exactly if neither has weights, else to rounding."""
    if x.weights is None and y.weights is None:
        shared = math.gcd(x.n, y.n)
        if x.n // shared * y.n <= total_mass(np.zeros(1)):
            return Units(y.n // shared), Units(x.n // shared)
    wholes = [1.0 if c.weight_chunks is None else math.fsum(c.chunk_weights) for c in (x, y)]
    return Units(None, 1 / x.n, wholes[0]), Units(None, 1 / y.n, wholes[1])


class Cut(NamedTuple):
    """What a range gets of a cloud: all between two marks, which points of known mass are equal to."""

    low: float
    below: int
    """The mass below the lower mark."""
    at_low: int
    high: float
    at_high: int


class Share(NamedTuple):
    """A range of mass, and what it gets of both clouds."""

    first: int
    stop: int
    cuts: tuple[Cut, Cut]


def range_costs(
    x: LazyCloud,
    y: LazyCloud,
    p: float,
    lines: Sequence[Lines],
    n_ranges: int,
    samples: tuple[HostArray, HostArray],
    cluster: Cluster,
) -> Iterator[HostArray]:
    """Costs on the line for the rows of each of `lines`, in turn, every direction cut into `n_ranges`.

    All are counted at once; the pieces of one entry are sent at once. `samples` are :data:`DRAWN_POINTS` points
    a range of both clouds: see :func:`draw_samples`.
    """
    # Steady: counting and sending must find the same projections, even on different processors.
    lines = tuple(one._replace(steady=True) for one in lines)
    marks = [_marks(sample, lines) for sample in samples]
    units = units_of(x, y)
    counts = _count(x, y, lines, marks, units, cluster)
    rows = range(sum(_n_rows(one) for one in lines))
    shares = [_shares([m[row] for m in marks], [c[row] for c in counts], n_ranges) for row in rows]
    ends = np.cumsum([0, *(_n_rows(one) for one in lines)])
    for one, (first, stop) in zip(lines, itertools.pairwise(ends), strict=True):
        yield _price_rows(x, y, p, one, shares[first:stop], units, cluster)


def _price_rows(
    x: LazyCloud,
    y: LazyCloud,
    p: float,
    lines: Lines,
    shares: list[list[Share]],
    units: tuple[Units, Units],
    cluster: Cluster,
) -> HostArray:
    """Costs on some rows of directions whose ranges are known."""
    import dask

    send = dask.delayed(_send, pure=False, nout=sum(map(len, shares)))
    told = dask.delayed((lines, shares), pure=False, traverse=False)
    sent = [
        [send(*pair, cloud.reading, told, side, unit) for pair in cloud.pairs]
        for side, (cloud, unit) in enumerate(zip((x, y), units, strict=True))
    ]
    price = dask.delayed(_price, pure=False)
    parts = [
        price(share, units, p, *([piece[k] for piece in own] for own in sent))
        for k, share in enumerate(itertools.chain(*shares))
    ]
    found = iter(cluster.compute(*parts))
    costs = [sum(itertools.islice(found, len(own))) / float(own[-1].stop) for own in shares]
    return np.array(costs)


def whole_costs(units: tuple[Units, Units], p: float, *sent: list[HostArray]) -> HostArray:
    """Costs on the line from all pieces `(slices, points)` of both clouds, which are in rough order.

    The points of a cloud weigh the same.
    """
    masses = [int(unit.each or 0) for unit in units]
    total = masses[0] * sum(piece.shape[1] for piece in sent[0])
    costs = []
    for row in range(len(sent[0][0])):
        sides = [
            RowInPieces([piece[row] for piece in own], mass) for own, mass in zip(sent, masses, strict=True)
        ]
        costs.append(piece_cost(*sides, total, p) / total)
    return np.array(costs)


def draw_samples(x: LazyCloud, y: LazyCloud, size: int) -> tuple[HostArray, HostArray]:
    """`size` random points of each cloud, from which marks are made.

    All points count alike, whatever their weights: each takes the same room.
    """
    rng = np.random.default_rng(0)
    plain = [replace(c, weight_chunks=None) for c in (x, y)]
    found = visit_chunks(plain, [[rng.integers(0, c.n, size)] for c in plain])
    return found[0].points[0].astype(x.dtype), found[1].points[0].astype(y.dtype)


def even_cuts(ends: Sequence[HostArray], sent: Sequence[HostArray], n_ranges: int) -> list[int]:
    """Where to cut the mass of a direction so that about the same number of points is sent to every range.

    For each cloud: the masses up to some places, and how many points would be sent from up to there.

    Examples
    --------
    The first 100 of 110 points have half of the mass of a cloud; points of the other weigh the same:

    >>> ends, sent = [np.array([0, 110, 220]), np.array([0, 220])], [np.array([0, 100, 110]), np.array([0, 99])]
    >>> even_cuts(ends, sent, 2)
    [0, 76, 220]
    """
    # Rounded weights may leave one cloud a few units of 2**-62 more.
    total = min(int(own[-1]) for own in ends)
    grid = np.unique(np.concatenate(ends))
    passed = sum(np.interp(grid, own, points) for own, points in zip(ends, sent, strict=True))
    parts = passed[-1] * np.arange(1, n_ranges) / n_ranges
    return [0, *(min(int(cut), total) for cut in np.interp(parts, passed, grid)), total]


def _n_rows(lines: Lines) -> int:
    return int(lines.rows.stop - lines.rows.start)


def _marks(sample: HostArray, lines: Sequence[Lines]) -> HostArray:
    """Marks on every row, `(rows, marks)` in order: quantiles of the sample, and both infinities."""
    rows = np.sort(np.concatenate([one.project(sample) for one in lines]), axis=1)
    inner = rows[:, ::_DRAWN]
    ends = np.full((len(rows), 1), np.inf, dtype=rows.dtype)
    return np.concatenate([-ends, inner, ends], axis=1)


def _count(
    x: LazyCloud,
    y: LazyCloud,
    lines: Sequence[Lines],
    marks: list[HostArray],
    units: tuple[Units, Units],
    cluster: Cluster,
) -> list[HostArray]:
    """Masses and points below and up to every mark, one table `(rows, 2, 2, marks)` a cloud."""
    import dask

    count = dask.delayed(_count_chunk, pure=False)
    told = dask.delayed(tuple(lines), pure=False, traverse=False)
    work = []
    for cloud, own, unit in zip((x, y), marks, units, strict=True):
        at = dask.delayed(own, pure=False)
        work.append([count(*pair, cloud.reading, told, at, unit) for pair in cloud.pairs])
    return [np.sum(found, axis=0) for found in cluster.compute(*work)]


def _count_chunk(
    chunk: object, weights: object, reading: Reading, lines: tuple[Lines, ...], marks: HostArray, unit: Units
) -> HostArray:
    points, start = reading.points(chunk), 0
    found = np.zeros((len(marks), 2, 2, marks.shape[1]), dtype=np.int64)
    # One entry at a time: together they may hold all directions.
    for one in lines:
        own = slice(start, start + _n_rows(one))
        start = own.stop
        if unit.each is not None:
            directions = one.draw()
            for k, row in zip(range(own.start, own.stop), range(one.rows.start, one.rows.stop), strict=True):
                found[k] = mark_counts(_row_in_parts(points, directions, row), marks[k])
                found[k, 0] *= unit.each
            continue
        rows, ends = _sorted(points, weights, one, unit)
        for k in range(len(rows)):
            for side, name in enumerate(("left", "right")):
                place = np.searchsorted(rows[k], marks[own][k], side=name)  # type: ignore[call-overload]
                found[own][k, :, side] = ends[k][place], place
    return found


def _row_in_parts(points: HostArray, directions: Directions, row: int) -> Iterator[HostArray]:
    """Projections on one direction, a few at a time."""
    for first in range(0, len(points), _COUNTED):
        yield cast(HostArray, directions.project(points[first : first + _COUNTED], slice(row, row + 1))[0])


def _sorted(points: HostArray, weights: object, lines: Lines, unit: Units) -> tuple[HostArray, HostArray]:
    """Sorted projections `(rows, n)` of a chunk's points with mass, and cumulative masses `(rows, n + 1)`."""
    points, masses = unit.weighed(points, weights)
    rows = lines.project(points)
    order = cast(HostArray, stable_order(rows))
    masses = masses[order]
    ends = np.zeros((len(rows), rows.shape[1] + 1), dtype=np.int64)
    np.cumsum(masses, axis=1, out=ends[:, 1:])
    return np.take_along_axis(rows, order, axis=1), ends


def _roughly_sorted(points: HostArray, lines: Lines, shares: list[list[Share]], side: int) -> HostArray:
    """Projections of a chunk `(rows, n)` in rough order, but sorted where ranges are cut.

    A binary search for the end of a range finds its place there.
    """
    rows: HostArray = np.ascontiguousarray(lines.project(points))
    order_roughly(rows)
    for row, own in zip(rows, shares, strict=True):
        cuts = [share.cuts[side] for share in own]
        ends = np.array([[cut.low, cut.high] for cut in cuts], dtype=row.dtype).ravel()
        lows, highs = rough_bounds(ends[np.isfinite(ends)])
        for first, stop in zip(np.searchsorted(row, lows), np.searchsorted(row, highs), strict=True):
            sort_segments(row[None, first:stop], np.array([0, stop - first]))
    return rows


def _shares(marks: list[HostArray], counts: list[HostArray], n_ranges: int) -> list[Share]:
    """The ranges of a direction, from both clouds' marks and the masses and points below and up to them."""
    # Below and up to the first mark, below and up to the second, and so on.
    ends, numbers = zip(*(np.moveaxis(count, 1, 2).reshape(2, -1) for count in counts), strict=True)
    shares = []
    for first, stop in itertools.pairwise(even_cuts(ends, numbers, n_ranges)):
        if first == stop:
            continue
        cuts = []
        for own, ((below, upto), _) in zip(marks, counts, strict=True):
            low = int(np.searchsorted(below, first, side="right")) - 1
            high = max(low, int(np.searchsorted(upto, stop, side="left")))
            at_low, at_high = (int(upto[k] - below[k]) for k in (low, high))
            cuts.append(Cut(float(own[low]), int(below[low]), at_low, float(own[high]), at_high))
        shares.append(Share(first, stop, (cuts[0], cuts[1])))
    return shares


def _send(
    chunk: object,
    weights: object,
    reading: Reading,
    told: tuple[Lines, list[list[Share]]],
    side: int,
    unit: Units,
) -> tuple[tuple[HostArray, HostArray | None], ...]:
    """What every range of every row gets of a chunk: numbers, and their masses where they differ.

    Numbers are in order where masses differ, and else in rough order.
    """
    lines, shares = told
    points, ends = reading.points(chunk), None
    if unit.each is not None:
        rows = _roughly_sorted(points, lines, shares, side)
    else:
        rows, ends = _sorted(points, weights, lines, unit)
    pieces = []
    for k, row in enumerate(rows):
        for share in shares[k]:
            cut = share.cuts[side]
            first = np.searchsorted(row, np.asarray(cut.low, dtype=row.dtype), side="right")
            stop = max(first, np.searchsorted(row, np.asarray(cut.high, dtype=row.dtype), side="left"))
            masses = None if ends is None else np.diff(ends[k][first : stop + 1])
            # A view: it is the sum of all pieces that memory must hold, and copies would come on top of it.
            pieces.append((row[first:stop], masses))
    return tuple(pieces)


def _price(
    share: Share, units: tuple[Units, Units], p: float, *sent: list[tuple[HostArray, HostArray | None]]
) -> float:
    """The cost of a range, times the mass of all."""
    if units[0].each is not None:
        sides = [_row_in_pieces(share, *own) for own in zip(share.cuts, sent, units, strict=True)]
        return float(piece_cost(*sides, share.stop - share.first, p))
    clouds, rows = [], []
    for cut, own in zip(share.cuts, sent, strict=True):
        values, masses = _weighed_ranks(share, cut, own)
        rows.append(values[None, :])
        clouds.append(ReadyCloud(shape_only((len(values), 1), values.dtype), masses=masses))
    scores, *_ = weighted_slopes(rows[0], rows[1], clouds[0], clouds[1], p, 1.0, False, NO_GRADIENTS)
    return float(scores[0]) * total_mass(rows[0])


def _row_in_pieces(
    share: Share, cut: Cut, sent: list[tuple[HostArray, HostArray | None]], unit: Units
) -> RowInPieces:
    """What a range gets of a cloud whose points weigh the same."""
    assert unit.each is not None
    # Marks that are one and the same are counted once.
    at_high = cut.at_high if cut.low < cut.high else 0
    ends = (cut.low, cut.at_low // unit.each), (cut.high, at_high // unit.each)
    return RowInPieces([piece for piece, _ in sent], unit.each, share.first - cut.below, ends)


def _weighed_ranks(
    share: Share, cut: Cut, sent: list[tuple[HostArray, HostArray | None]]
) -> tuple[HostArray, HostArray]:
    """The numbers of a range in order, and how much of the mass of each is in the range."""
    values = np.concatenate([piece for piece, _ in sent])
    masses = np.concatenate([mass for _, mass in sent if mass is not None])
    order = stable_order(values[None, :])[0]
    # Marks that are one and the same are counted once.
    at_high = cut.at_high if cut.low < cut.high else 0
    values = np.concatenate([[cut.low], values[order], [cut.high]]).astype(values.dtype)
    masses = np.concatenate([[cut.at_low], masses[order], [at_high]])
    ends = cut.below + np.cumsum(masses)
    inside = np.minimum(ends, share.stop) - np.maximum(ends - masses, share.first)
    kept = inside > 0
    return values[kept], inside[kept]
