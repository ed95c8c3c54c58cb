r"""Points that pass by once: summaries of bounded size that merge, and distances from them with certain bounds.

**The summary.** On every direction numbers are rounded to whole multiples t of a fixed `resolution`, and
counted in bins of 2^s multiples: bin k holds t // 2^s = k. A bin keeps how many numbers it has and the sum of
their places in it, as integers. The level s is the least at which no more than a given number of bins are in
use. Finer bins lie within coarser ones, and more numbers never use fewer bins, so the level, the counts and the
sums depend on the numbers alone: not on their order, nor on how they were split and merged.

**The bounds.** Let bin i have the share w_i of the numbers, all between a_i and b_i, with the mean m_i. The
counts of both clouds say which bins the coupling by order pairs, and with which mass w_ij. Write c(z) = |z|^p.

*Above.* Couple bins like this, and numbers within a pair of bins at random. A convex function of a number
between a and b with mean m is on average at most what it is if the number is a or b, with chances that give
this mean. So W_p^p is at most the sum of w_ij times the mean of c over the four corners.

*Below.* c(x - y) >= c(z) + c'(z) (x - m_i - y + m_j) with z = m_i - m_j. Within bin i the mean of x - m_i is 0,
x grows from pair to pair, and c'(z) falls. The sum over the pairs of the bin is therefore least if x is a_i in
the first of its mass and b_i in the rest; and likewise for y. Where c' does not change over the pairs of a bin
nothing is lost.

Both bounds miss W_p^p by terms in the square of the width of bins, not in the width: means are known. For p = 1
they miss it only in bins that overlap. Rounding to the resolution moves W_p by at most half of it for each
cloud; that, and the rounding of projections far from the origin, is part of the bounds.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from orthoslice.arrays import RNG, resolve_rng
from orthoslice.arrays import Stream as Key
from orthoslice.blocks import Layout, statistics
from orthoslice.cloud import Cloud, make_clouds
from orthoslice.costs.lines import powered, powered_slope
from orthoslice.costs.pools import mean_shortening
from orthoslice.directions import Given, Sampler
from orthoslice.directions.base import Directions, check_count
from orthoslice.options import check_directions, check_n_directions, check_p, is_real
from orthoslice.passes import draw_lines
from orthoslice.request import plan_layout
from orthoslice.result import root
from orthoslice.scores import Sliced
from orthoslice.sweeps import sweep_blocks

Table: TypeAlias = np.ndarray[Any, Any]

# Bits of the lower of two words that a sum is kept in: sums of so many numbers of that size fit 64 bits.
_LOW_BITS = 24
_LOW = (1 << _LOW_BITS) - 1

# Numbers that are counted at a time: their sums are exact in float64.
_BATCH = 1 << 18

# Multiples of the resolution that 64 bits hold with room for sums.
_LARGEST = 1 << 61

BIN_BYTES = 32
"""A bin has its number, its count, and two words of a sum."""

# How far rounding may move a sum of costs: relative to the sum of their magnitudes.
_ROUNDING = 1e-12


class Bins(NamedTuple):
    """The numbers of one direction: bins in use, in order."""

    level: int
    key: Table
    counts: Table
    high: Table
    """The sum of places within the bin is `high * 2**24 + low`."""
    low: Table


_EMPTY = Bins(0, *(np.zeros(0, dtype=np.int64) for _ in range(4)))


@dataclass(frozen=True, eq=False)
class Summarised:
    """SW_p between the points of two streams, on their directions.

    Attributes
    ----------
    lower, upper
        Certain bounds of the mean over these directions of W_p^p: what :func:`orthoslice.sliced_wasserstein`
        with the same directions, `rng` and ``control=None`` gives for the points themselves lies between them.
    value, stderr
        The middle of both, and its standard error over the choice of directions.
    distance, distance_lower, distance_upper
        Their p-th roots.
    """

    p: float
    n_directions: int
    lower: float
    upper: float
    value: float
    stderr: float

    @property
    def distance(self) -> float:
        return float(root(np.asarray(self.value), self.p))

    @property
    def distance_lower(self) -> float:
        return float(root(np.asarray(self.lower), self.p))

    @property
    def distance_upper(self) -> float:
        return float(root(np.asarray(self.upper), self.p))

    def __repr__(self) -> str:
        return (
            f"Summarised(SW_{self.p:g} = {self.distance:.6g}, certainly from {self.distance_lower:.6g} to "
            f"{self.distance_upper:.6g} on these {self.n_directions} directions)"
        )


@dataclass(frozen=True, eq=False, repr=False)
class Stream:
    """A summary of points that pass by once, for sliced distances with certain bounds.

    Streams with the same options can be merged, in any order and however often: the numbers are the same as if
    all points had come to one. They are a few MB to send, and no point is kept.

    Parameters
    ----------
    dim
        Coordinates of a point.
    p
        The power of the distances to come, at least 1.
    directions, n_directions, rng
        As in :func:`orthoslice.sliced_wasserstein`, and with the same integer the same directions. Streams to
        be compared or merged need the same integer, so there is a default.
    resolution
        Numbers are rounded to multiples of this power of two. At most about a millionth of the distances that
        matter, and at least 2^-61 of the largest coordinates.
    bins
        The most bins to use on a direction, of 32 bytes each.

    Examples
    --------
    >>> import numpy as np, orthoslice as osl
    >>> rng = np.random.default_rng(0)
    >>> x, y = rng.normal(size=(5000, 3)), rng.normal(size=(4000, 3)) + 1
    >>> here, there, other = (osl.Stream(3, n_directions=8) for _ in range(3))
    >>> here.update(x[:1000])
    >>> there.update(x[1000:])
    >>> other.update(y)
    >>> found = here.merge(there).compare(other)
    >>> found
    Summarised(SW_2 = 1.12881, certainly from 1.12881 to 1.12881 on these 8 directions)
    >>> true = osl.sliced_wasserstein(x, y, n_directions=8, rng=0, control=None)
    >>> bool(found.lower <= true.value <= found.upper)
    True
    """

    dim: int
    p: float = 2
    directions: Any = "auto"
    n_directions: int | None = None
    rng: RNG = 0
    resolution: float = 2.0**-36
    bins: int = 30_000
    _bins: list[Bins] = field(default_factory=list, init=False)
    _n: list[int] = field(default_factory=lambda: [0], init=False)
    _reach: list[float] = field(default_factory=lambda: [0.0], init=False)
    """How far from the origin points are, at most."""

    def __post_init__(self) -> None:
        check_count("dim", self.dim)
        check_count("bins", self.bins, least=2)
        p = check_p(self.p)
        unit = self.resolution
        if not is_real(unit) or not (0 < unit < math.inf) or math.frexp(unit)[0] != 0.5:
            raise ValueError(f"`resolution` must be a power of two, such as 2**-36; got {unit!r}.")
        sampler = check_directions(self.directions, Cloud(np.zeros((1, self.dim))))
        count = check_n_directions(self.n_directions, sampler)
        sampler, layout = plan_layout(sampler, count, self.dim, Sliced(), p, adaptive=False)
        key, seed = resolve_rng(self.rng, np.zeros(1))
        for name, value in {
            "p": p,
            "directions": sampler,
            "n_directions": layout.n_directions,
            "rng": seed,
            "resolution": float(unit),
        }.items():
            object.__setattr__(self, name, value)
        object.__setattr__(self, "_plan", _Plan(sampler, layout, key, self.dim))
        self._bins.extend([_EMPTY] * layout.n_directions)

    @property
    def n(self) -> int:
        """How many points there were."""
        return self._n[0]

    @property
    def nbytes(self) -> int:
        """What the bins take, all directions together."""
        return sum(BIN_BYTES * len(bins.key) for bins in self._bins)

    def update(self, points: Any) -> None:
        """Add points `(n, dim)`; none is kept."""
        cloud, _ = make_clouds(points, points)
        table = np.asarray(cloud.points)
        if table.ndim != 2 or table.shape[1] != self.dim:
            raise ValueError(f"`points` must have shape (n, {self.dim}); got {table.shape}.")
        reach = float(np.abs(table).max()) * math.sqrt(self.dim)
        if reach >= _LARGEST * self.resolution:
            raise ValueError(
                f"`points` must be below {_LARGEST * self.resolution:.3g} for a resolution of "
                f"{self.resolution:.3g}; got coordinates up to {np.abs(table).max():.3g}. Pass a coarser "
                "`resolution`."
            )
        for first in range(0, len(table), _BATCH):
            piece = table[first : first + _BATCH].astype(np.float64)
            for row, rows in self._plan.project(piece):
                for k, numbers in enumerate(rows):
                    places = np.rint(numbers / self.resolution).astype(np.int64)
                    own = self._bins[row + k]
                    self._bins[row + k] = _joined([own, _counted(places, own.level)], self.bins)
        self._n[0] += len(table)
        self._reach[0] = max(self._reach[0], reach)

    def merge(self, *others: Stream) -> Stream:
        """A stream of all points of this one and of others."""
        for other in others:
            self._check_alike(other)
        merged = replace(self)
        streams = (self, *others)
        merged._n[0] = sum(stream.n for stream in streams)
        merged._reach[0] = max(stream._reach[0] for stream in streams)
        for row in range(len(self._bins)):
            merged._bins[row] = _joined([stream._bins[row] for stream in streams], self.bins)
        return merged

    def compare(self, other: Stream) -> Summarised:
        """SW_p between the points of two streams, with certain bounds."""
        self._check_alike(other)
        if not (self.n and other.n):
            raise ValueError("Streams must have seen points to be compared; one of them has not.")
        plan = self._plan
        # Half a unit for each of both, and the rounding of their projections: see `orders.ready_for_ties`.
        moved = self.resolution + (self.dim + 8) * 2.0**-53 * (self._reach[0] + other._reach[0])
        found = [
            line_bounds(_shape(one, self.resolution), _shape(two, self.resolution), self.p, moved)
            for one, two in zip(self._bins, other._bins, strict=True)
        ]
        bounds = np.array(found) / mean_shortening(self.dim, plan.sampler.ambient_dim(self.dim), self.p)
        lower, upper = bounds.mean(axis=0)
        middle = statistics(bounds.mean(axis=1), plan.layout)
        return Summarised(
            self.p,
            plan.layout.n_directions,
            float(lower),
            float(upper),
            float(middle.mean),
            float(middle.stderr),
        )

    _plan: _Plan = field(init=False)

    def _check_alike(self, other: Any) -> None:
        if not isinstance(other, Stream):
            raise TypeError(f"Streams go with streams; got {type(other).__name__}.")
        for name in ("dim", "p", "directions", "n_directions", "rng", "resolution", "bins"):
            own, given = getattr(self, name), getattr(other, name)
            if own != given and not (isinstance(own, Given) and _same_rows(own, given)):
                raise ValueError(f"Streams must have the same `{name}`; got {own!r} and {given!r}.")

    def __repr__(self) -> str:
        return (
            f"Stream({self.dim}: {self.n} points in {self.nbytes / 1e6:.3g} MB; "
            f"directions={self.directions!r}, n_directions={self.n_directions}, rng={self.rng})"
        )


def _same_rows(own: Given, given: Any) -> bool:
    return isinstance(given, Given) and np.array_equal(own.theta, given.theta)


class _Plan(NamedTuple):
    """Which directions there are."""

    sampler: Sampler
    layout: Layout
    key: Key
    dim: int

    def project(self, points: Table) -> list[tuple[int, Table]]:
        """Projections of some points, with the number of their first direction."""
        return [(first, directions.project(points, rows)) for first, rows, directions in self._drawn()]

    def _drawn(self) -> list[tuple[int, slice, Directions]]:
        return _drawn(self.sampler, self.layout, self.dim, *(int(word[0]) for word in self.key))


@functools.lru_cache(maxsize=16)
def _drawn(
    sampler: Sampler, layout: Layout, dim: int, high: int, low: int
) -> list[tuple[int, slice, Directions]]:
    """All directions, such as project a point alike wherever it stands: sites shall not differ in a digit."""
    key = Key(*(np.array([word], dtype=np.int32) for word in (high, low)))
    sweep = sweep_blocks(sampler, layout, key, dim, np.dtype(np.float64), layout.n_directions)
    return [(first, rows, draw_lines(blocks, True)) for first, rows, blocks in sweep]


def _counted(places: Table, level: int) -> Bins:
    """Bins of some numbers, which are multiples of the resolution."""
    key = places >> level
    first, last = int(key.min()), int(key.max())
    if last - first < 4 * len(key):
        index, keys = key - first, np.arange(first, last + 1)
    else:
        keys, index = np.unique(key, return_inverse=True)
    within = places - (key << level)
    count = np.bincount(index, minlength=len(keys))
    # Sums of so few numbers of so few bits are exact in float64.
    high, low = (
        np.bincount(index, weights=part, minlength=len(keys)).astype(np.int64)
        for part in (within >> _LOW_BITS, within & _LOW)
    )
    used = count > 0
    return Bins(level, keys[used], count[used], high[used], low[used])


def _coarser(bins: Bins, level: int) -> Bins:
    """The same numbers in bins of another level."""
    up = level - bins.level
    key = bins.key >> up
    start = (bins.key - (key << up)) << bins.level
    high, low = bins.high + bins.counts * (start >> _LOW_BITS), bins.low + bins.counts * (start & _LOW)
    return Bins(level, key, bins.counts, high, low)


def _joined(parts: Sequence[Bins], most: int) -> Bins:
    """All numbers of these bins in at most so many, at the least level at which there are no more."""
    level = max(part.level for part in parts)
    columns = [
        np.concatenate(own) for own in list(zip(*(_coarser(part, level) for part in parts), strict=True))[1:]
    ]
    order = np.argsort(columns[0], kind="stable")
    key, count, high, low = (column[order] for column in columns)
    up = 0
    while _n_different(key >> up) > most:
        up += 1
    bins = _coarser(Bins(level, key, count, high, low), level + up)
    starts = np.flatnonzero(np.diff(bins.key, prepend=bins.key[:1] - 1))
    if not len(starts):
        return _EMPTY
    count, high, low = (np.add.reduceat(column, starts) for column in bins[2:])
    return Bins(bins.level, bins.key[starts], count, high + (low >> _LOW_BITS), low & _LOW)


def _n_different(key: Table) -> int:
    """How many different numbers there are, in order."""
    return int(np.count_nonzero(np.diff(key))) + 1 if len(key) else 0


class Shape(NamedTuple):
    """What bins say of their numbers: how many, between which, with which mean."""

    counts: Table
    low: Table
    high: Table
    mean: Table


def _shape(bins: Bins, unit: float) -> Shape:
    width = float(1 << bins.level)
    within = (bins.high * float(1 << _LOW_BITS) + bins.low) / bins.counts
    # Of integers, none is beyond the last multiple; a single number is where its mean is.
    alone = bins.counts == 1
    low = bins.key * width
    first, last = np.where(alone, within, 0.0), np.where(alone, within, width - 1)
    return Shape(bins.counts, *(unit * (low + place) for place in (first, last, np.clip(within, first, last))))


def line_bounds(x: Shape, y: Shape, p: float, moved: float) -> tuple[float, float]:
    """Certain bounds of W_p^p on a line; rounding moved numbers by at most `moved`, both clouds together.

    Examples
    --------
    >>> bins = (Shape(np.array([2]), np.array([a]), np.array([a + 2]), np.array([a + 1])) for a in (0.0, 3.0))
    >>> [round(bound, 9) for bound in line_bounds(*bins, 1.0, 0.0)]
    [3.0, 3.0]
    """
    cells = _cells(x.counts, y.counts)
    i, j, mass = cells.i, cells.j, cells.mass
    z = x.mean[i] - y.mean[j]
    cost = powered(z, p)
    # Above: corners.
    upper = np.zeros(len(mass))
    ends_x, ends_y = ((s.low[k], s.high[k]) for s, k in ((x, i), (y, j)))
    for a, share_a in zip(ends_x, _chances(x, i), strict=True):
        for b, share_b in zip(ends_y, _chances(y, j), strict=True):
            upper += share_a * share_b * powered(a - b, p)
    # Below: tangents, or how far apart the bins are.
    slope = powered_slope(z, p)
    steps_x = _steps(x, i, cells.before_x, cells.length, cells.own_x)
    steps = steps_x - _steps(y, j, cells.before_y, cells.length, cells.own_y)
    gap = np.maximum(np.maximum(ends_x[0] - ends_y[1], ends_y[0] - ends_x[1]), 0.0)
    slack = _ROUNDING * float(mass @ (upper + np.abs(slope * steps)))
    low = max(float(mass @ (cost + slope * steps)), float(mass @ powered(gap, p)), 0.0)
    lower = max(max(low - slack, 0.0) ** (1 / p) - moved, 0.0) ** p
    above = ((float(mass @ upper) + slack) ** (1 / p) + moved) ** p
    return lower * (1 - _ROUNDING), above * (1 + _ROUNDING)


class _Cells(NamedTuple):
    """Pairs of bins that the coupling by order makes."""

    i: Table
    j: Table
    mass: Table
    """In all 1."""
    before_x: Table
    """How much of bin i comes before, as a share of `own_x`, what the bin has in all."""
    before_y: Table
    length: Table
    own_x: Table
    own_y: Table


def _cells(count_x: Table, count_y: Table) -> _Cells:
    n, m = int(count_x.sum()), int(count_y.sum())
    # Python's integers, where a product does not fit 64 bits.
    wide: Any = np.int64 if n * m < 1 << 62 else object
    own_x, own_y = count_x.astype(wide) * m, count_y.astype(wide) * n
    ends_x, ends_y = np.cumsum(own_x), np.cumsum(own_y)
    ends = np.unique(np.concatenate([ends_x, ends_y]))
    starts = np.concatenate([ends[:1] * 0, ends[:-1]])
    i, j = (np.searchsorted(own, ends) for own in (ends_x, ends_y))
    first_x, first_y = (ends_x - own_x)[i], (ends_y - own_y)[j]
    told = (starts - first_x, starts - first_y, ends - starts, own_x[i], own_y[j])
    length = np.asarray(ends - starts, dtype=np.float64)
    return _Cells(i, j, length / (float(n) * float(m)), *(np.asarray(a, dtype=np.float64) for a in told))


def _chances(shape: Shape, k: Table) -> tuple[Table, Table]:
    """Chances of being at the lower and at the upper end of bins that give their means."""
    width = shape.high - shape.low
    upper = np.where(width > 0, shape.mean - shape.low, 0.0) / np.where(width > 0, width, 1.0)
    return (1 - upper)[k], upper[k]


def _steps(shape: Shape, k: Table, before: Table, length: Table, own: Table) -> Table:
    """The mean over each cell of `x - mean`, if a bin's mass is first at its lower end, then at the upper."""
    at_low, _ = _chances(shape, k)
    share = np.clip((at_low * own - before) / length, 0.0, 1.0)
    level: Table = share * shape.low[k] + (1 - share) * shape.high[k] - shape.mean[k]
    return level
