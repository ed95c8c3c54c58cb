"""A direction too long for one task: its quantiles are cut into ranges, and each range is priced by itself.

Couplings by order match equal shares of mass, so the cost of a direction is a sum over ranges of mass, the same
ones in both clouds. What lies in a range is found exactly, in two passes over the chunks:

1. *Count.* Some points drawn at random, projected, are the marks. Every chunk counts what it has below and up
   to each mark: integers, so their sums are exact.
2. *Exchange.* A range gets all that lies strictly between two marks, the last one that is surely not above its
   lower end and the first one that is surely not below its upper end. It sorts that, and cuts off what belongs
   to its neighbours: it knows how much mass comes before.

Marks that were drawn badly make ranges longer, never wrong. Points equal to a mark are not sent, their mass is
known from the count; a value that many points have is a mark nearly for certain, so ties make ranges shorter.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from orthoslice.cloud import Cloud
from orthoslice.costs.segments import segment_costs, sort_segments
from orthoslice.costs.weighted import weighted_slopes
from orthoslice.coupling import total_mass, whole_masses
from orthoslice.orders import stable_order
from orthoslice.parallel.chunks import LazyCloud, Reading, shape_only, visit_chunks, weights_of
from orthoslice.parallel.exchange import Cluster, Lines, Table
from orthoslice.threads import single_threaded_blas

# Marks for each range, and points drawn for each mark: ranges are about an eighth longer than they have to be.
_MARKS, _DRAWN = 16, 64

_NOTHING = (False, False, False, False)


class Units(NamedTuple):
    """What a point of a cloud weighs, in integers."""

    each: int | None
    """Of every point; None where they differ."""
    share: float | None = None
    """The weight of every point, where they do not differ but are counted like those that do."""
    whole: float = 1.0
    """What all weights sum to: 1, but for their rounding."""

    def masses(self, n: int, weights: Any) -> Table:
        """The integer masses of the points of a chunk."""
        if self.each is not None:
            return np.full(n, self.each, dtype=np.int64)
        shares = np.full(n, self.share) if weights is None else weights_of("weights", weights)
        masses: Table = whole_masses(shares / self.whole * float(total_mass(shares)))
        return masses


def units_of(x: LazyCloud, y: LazyCloud) -> tuple[Units, Units]:
    """Units in which both clouds weigh the same, to the last one where neither has weights."""
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
    samples: tuple[Table, Table],
    cluster: Cluster,
) -> list[Table]:
    """Costs on the line for every row of `lines`, each direction cut into `n_ranges`.

    `samples` are points of both clouds that were drawn at random: see :func:`draw_samples`.
    """
    import dask

    # Points that are equal shall have equal projections, in whatever chunk they are.
    lines = tuple(one._replace(steady=True) for one in lines)
    marks = [_marks(sample, c.reading, lines, n_ranges) for sample, c in zip(samples, (x, y), strict=True)]
    units = units_of(x, y)
    counts = _count(x, y, lines, marks, units, cluster)
    n_rows = len(marks[0])
    shares = [_shares([m[row] for m in marks], [c[row] for c in counts], n_ranges) for row in range(n_rows)]
    send = dask.delayed(_send, pure=False, nout=n_rows * n_ranges)
    told = dask.delayed((lines, shares), pure=False, traverse=False)
    sent = [
        [send(chunk, weights, c.reading, told, side, unit) for chunk, weights in c.pairs]
        for side, (c, unit) in enumerate(zip((x, y), units, strict=True))
    ]
    price = dask.delayed(_price, pure=False)
    parts = [
        price(share, units, p, *([piece[row * n_ranges + k] for piece in own] for own in sent))
        for row in range(n_rows)
        for k, share in enumerate(shares[row])
    ]
    found = np.array(cluster.compute(*parts)).reshape(n_rows, n_ranges)
    totals = np.array([float(own[-1].stop) for own in shares])
    costs = found.sum(axis=1) / totals
    ends = np.cumsum([_n_rows(one) for one in lines])
    return np.split(costs, ends[:-1])


def draw_samples(x: LazyCloud, y: LazyCloud, n_ranges: int) -> tuple[Table, Table]:
    """Points of both clouds, drawn by their weights, from which marks are made."""
    rng = np.random.default_rng(0)
    size = _MARKS * _DRAWN * n_ranges
    places = [rng.integers(0, c.n, size) if c.weights is None else rng.random(size) for c in (x, y)]
    found = visit_chunks((x, y), [[own] for own in places])
    return found[0].points[0], found[1].points[0]


def _n_rows(lines: Lines) -> int:
    return int(lines.rows.stop - lines.rows.start)


def _marks(sample: Table, reading: Reading, lines: Sequence[Lines], n_ranges: int) -> Table:
    """Marks on every row, `(rows, marks)` in order: quantiles of the sample, and both infinities."""
    points = sample.astype(reading.dtype)
    points = points if reading.origin is None else points - reading.origin
    rows = np.sort(np.concatenate([one.project(points) for one in lines]), axis=1)
    inner = rows[:, :: max(1, rows.shape[1] // (_MARKS * n_ranges))]
    ends = np.full((len(rows), 1), np.inf, dtype=rows.dtype)
    return np.concatenate([-ends, inner, ends], axis=1)


def _count(
    x: LazyCloud,
    y: LazyCloud,
    lines: Sequence[Lines],
    marks: list[Table],
    units: tuple[Units, Units],
    cluster: Cluster,
) -> list[Table]:
    """Masses below and up to every mark, one table `(rows, 2, marks)` a cloud."""
    import dask

    count = dask.delayed(_count_chunk, pure=False)
    told = dask.delayed(tuple(lines), pure=False, traverse=False)
    work = []
    for cloud, own, unit in zip((x, y), marks, units, strict=True):
        at = dask.delayed(own, pure=False)
        work.append([count(*pair, cloud.reading, told, at, unit) for pair in cloud.pairs])
    return [np.sum(found, axis=0) for found in cluster.compute(*work)]


def _count_chunk(
    chunk: Any, weights: Any, reading: Reading, lines: tuple[Lines, ...], marks: Table, unit: Units
) -> Table:
    rows, ends = _sorted(chunk, weights, reading, lines, unit)
    found = np.empty((len(rows), 2, marks.shape[1]), dtype=np.int64)
    for k, row in enumerate(rows):
        for side, name in enumerate(("left", "right")):
            place = np.searchsorted(row, marks[k], side=name)  # type: ignore[call-overload]
            found[k, side] = place * unit.each if ends is None else ends[k][place]
    return found


def _sorted(
    chunk: Any, weights: Any, reading: Reading, lines: tuple[Lines, ...], unit: Units
) -> tuple[Table, Table | None]:
    """Projections of a chunk in order, `(rows, n)`, and the mass before each and in all where points differ."""
    with single_threaded_blas():
        points = reading.points(chunk)
        rows = np.concatenate([one.project(points) for one in lines])
    if unit.each is not None:
        sort_segments(rows, np.array([0, rows.shape[1]]))
        return rows, None
    order = stable_order(rows)
    masses = unit.masses(rows.shape[1], weights)[order]
    ends = np.zeros((len(rows), rows.shape[1] + 1), dtype=np.int64)
    np.cumsum(masses, axis=1, out=ends[:, 1:])
    return np.take_along_axis(rows, order, axis=1), ends


def _shares(marks: list[Table], counts: list[Table], n_ranges: int) -> list[Share]:
    """The ranges of a direction, from both clouds' marks and the masses below and up to them."""
    # Rounded weights may leave one cloud a few units of 2**-62 more.
    total = min(int(count[1, -1]) for count in counts)
    ends = [total * k // n_ranges for k in range(n_ranges + 1)]
    shares = []
    for first, stop in itertools.pairwise(ends):
        cuts = []
        for own, (below, upto) in zip(marks, counts, strict=True):
            low = int(np.searchsorted(below, first, side="right")) - 1
            high = max(low, int(np.searchsorted(upto, stop, side="left")))
            at_low, at_high = (int(upto[k] - below[k]) for k in (low, high))
            cuts.append(Cut(float(own[low]), int(below[low]), at_low, float(own[high]), at_high))
        shares.append(Share(first, stop, (cuts[0], cuts[1])))
    return shares


def _send(
    chunk: Any,
    weights: Any,
    reading: Reading,
    told: tuple[tuple[Lines, ...], list[list[Share]]],
    side: int,
    unit: Units,
) -> tuple[tuple[Table, Table | None], ...]:
    """What every range of every row gets of a chunk: numbers in order, and their masses where they differ."""
    lines, shares = told
    rows, ends = _sorted(chunk, weights, reading, lines, unit)
    pieces = []
    for k, row in enumerate(rows):
        for share in shares[k]:
            cut = share.cuts[side]
            first = np.searchsorted(row, np.asarray(cut.low, dtype=row.dtype), side="right")
            stop = max(first, np.searchsorted(row, np.asarray(cut.high, dtype=row.dtype), side="left"))
            # Copied: a view would keep the whole chunk.
            masses = None if ends is None else np.diff(ends[k][first : stop + 1])
            pieces.append((row[first:stop].copy(), masses))
    return tuple(pieces)


def _price(
    share: Share, units: tuple[Units, Units], p: float, *sent: list[tuple[Table, Table | None]]
) -> float:
    """The cost of a range, times the mass of all."""
    if units[0].each == units[1].each == 1:
        sides = [_ranks(share, cut, own) for cut, own in zip(share.cuts, sent, strict=True)]
        n = share.stop - share.first
        (cost,) = segment_costs(np.concatenate(sides)[None, :], np.array([0, n, 2 * n]), p)
        return n * float(cost)
    clouds, rows = [], []
    for cut, own, unit in zip(share.cuts, sent, units, strict=True):
        values, masses = _weighed_ranks(share, cut, own, unit)
        rows.append(values[None, :])
        clouds.append(Cloud(shape_only((len(values), 1), values.dtype), masses=masses))
    scores, *_ = weighted_slopes(rows[0], rows[1], clouds[0], clouds[1], p, 1.0, False, _NOTHING)
    return float(scores[0]) * total_mass(rows[0])


def _ranks(share: Share, cut: Cut, sent: list[tuple[Table, Table | None]]) -> Table:
    """The numbers of a range in order, where every point weighs 1: as many as the range is long."""
    values = np.concatenate([piece for piece, _ in sent])[None, :]
    sort_segments(values, np.array([0, values.size]))
    start = cut.below + cut.at_low
    lows = max(0, min(share.stop, start) - max(share.first, cut.below))
    inner = values[0, max(0, share.first - start) : max(0, share.stop - start)]
    highs = share.stop - share.first - lows - len(inner)
    return np.concatenate([np.full(lows, cut.low, values.dtype), inner, np.full(highs, cut.high, values.dtype)])


def _weighed_ranks(
    share: Share, cut: Cut, sent: list[tuple[Table, Table | None]], unit: Units
) -> tuple[Table, Table]:
    """The numbers of a range in order, and how much of the mass of each is in the range."""
    values = np.concatenate([piece for piece, _ in sent])
    if unit.each is None:
        masses = np.concatenate([mass for _, mass in sent if mass is not None])
    else:
        masses = np.full(len(values), unit.each, dtype=np.int64)
    order = stable_order(values[None, :])[0]
    # Marks that are one and the same are counted once.
    at_high = cut.at_high if cut.low < cut.high else 0
    values = np.concatenate([[cut.low], values[order], [cut.high]]).astype(values.dtype)
    masses = np.concatenate([[cut.at_low], masses[order], [at_high]])
    ends = cut.below + np.cumsum(masses)
    inside = np.minimum(ends, share.stop) - np.maximum(ends - masses, share.first)
    kept = inside > 0
    return values[kept], inside[kept]
