r"""Summaries of numbers on a line: of bounded size, mergeable, with certain bounds on W_p between two of them.

**The summary.** Numbers are whole multiples t of a unit, to which the caller has rounded them. They are counted
in bins of 2^s multiples: bin k holds t // 2^s = k. A bin keeps how many numbers it has and the sum of their
places in it, as integers. The level s is the least at which no more than a given number of bins are in use.
Finer bins lie within coarser ones, and more numbers never use fewer bins, so the level, the counts and the sums
depend on the numbers alone: not on their order, nor on how they were split and merged.

**The bounds.** Let bin i have the share w_i of the numbers, all between a_i and b_i, with the mean m_i. The
counts of both clouds say which bins the coupling by order pairs, and with which mass w_ij. Write c(z) = |z|^p.

*Above.* Couple bins like this, and numbers within a pair of bins at random. Of all laws on [a, b] with mean m,
the one on the two ends has the largest mean of a convex function. So W_p^p is at most the sum of w_ij times the
mean of c over the four corners, with the probabilities that give the means m_i and m_j.

*Below.* c(x - y) >= c(z) + c'(z) (x - m_i - y + m_j) with z = m_i - m_j. Within bin i the mean of x - m_i is 0,
x grows from pair to pair, and c'(z) falls. The sum over the pairs of the bin is therefore least if x is a_i in
the first of its mass and b_i in the rest; and likewise for y. Where c' does not change over the pairs of a bin
nothing is lost.

Both bounds miss W_p^p by terms in the square of the width of bins, not in the width: means are known. For p = 1
they miss it only in bins that overlap. Whatever was rounded before moves W_p by no more than it moved numbers,
which is part of the bounds.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from orthoslice.backend.arrays import HostArray
from orthoslice.costs.lines import powered, powered_slope

# A sum is kept in two words, `high * 2**_LOW_BITS + low`: the sum of 2^38 lower words fits 64 bits.
_LOW_BITS = 24
_LOW = (1 << _LOW_BITS) - 1

LARGEST = 1 << 61
"""Numbers are below this: 64 bits hold them with room for sums."""

MOST_AT_ONCE = 1 << 16
"""Most numbers to count at once: the sum of 2^16 upper words below 2^(61 - 24) is exact in float64."""

# Most numbers in all: the sum of their lower words fits 64 bits.
_MOST = 1 << 38

BIN_BYTES = 32
"""A bin has its number, its count, and two words of a sum."""

# The rounding of a sum of p-th powers is at most _OF_SUMS + p _OF_POWERS times the sum of their magnitudes: z^p
# has p times the relative error of z.
_OF_SUMS, _OF_POWERS = 1e-12, 2.0**-50


class Bins(NamedTuple):
    """Numbers on a line: bins in use, in order."""

    level: int
    key: HostArray
    counts: HostArray
    high: HostArray
    """The sum of places within the bin is `high * 2**24 + low`."""
    low: HostArray


EMPTY = Bins(0, *(np.zeros(0, dtype=np.int64) for _ in range(4)))


def counted(places: HostArray, level: int) -> Bins:
    """Bins of some numbers, at most `MOST_AT_ONCE`."""
    key = places >> level
    first, last = int(key.min()), int(key.max())
    if last - first < 4 * len(key):
        index, keys = key - first, np.arange(first, last + 1)
    else:
        keys, index = np.unique(key, return_inverse=True)
    within = places - (key << level)
    count = np.bincount(index, minlength=len(keys))
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


def joined(parts: Sequence[Bins], most: int) -> Bins:
    """All numbers of these bins in at most `most` bins, at the least level that allows it.

    Examples
    --------
    >>> one, two = counted(np.array([0, 1, 5]), 0), counted(np.array([4]), 0)
    >>> joined([one, two], 2)[:3]
    (1, array([0, 2]), array([2, 2]))
    """
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
        return EMPTY
    _check_room(int(count.sum()), bins.level)
    count, high, low = (np.add.reduceat(column, starts) for column in bins[2:])
    return Bins(bins.level, bins.key[starts], count, high + (low >> _LOW_BITS), low & _LOW)


def _check_room(n: int, level: int) -> None:
    """Raise unless sums of `n` places within bins of a level fit their words."""
    most = min(_MOST, LARGEST >> max(level - _LOW_BITS, 0))
    if n > most:
        raise OverflowError(
            f"A stream holds at most {most:.3g} points that are as far apart as these; got {n:.3g}. Pass a "
            "coarser `resolution` or more `bins`."
        )


def _n_different(key: HostArray) -> int:
    """The number of different values in a sorted array."""
    return int(np.count_nonzero(np.diff(key))) + 1 if len(key) else 0


class Shape(NamedTuple):
    """What bins say of their numbers: how many, between which, with which mean."""

    counts: HostArray
    low: HostArray
    high: HostArray
    mean: HostArray


def shape_of(bins: Bins) -> Shape:
    width = float(1 << bins.level)
    within = (bins.high * float(1 << _LOW_BITS) + bins.low) / bins.counts
    # Places are integers, so the last one is width - 1; a single number lies at its mean.
    alone = bins.counts == 1
    low = bins.key * width
    first, last = np.where(alone, within, 0.0), np.where(alone, within, width - 1)
    return Shape(bins.counts, *(low + place for place in (first, last, np.clip(within, first, last))))


def line_bounds(x: Shape, y: Shape, p: float, moved: float) -> tuple[float, float]:
    """Certain bounds of W_p on a line; rounding moved numbers by at most `moved`, both clouds together.

    Examples
    --------
    >>> bins = (Shape(np.array([2]), np.array([a]), np.array([a + 2]), np.array([a + 1])) for a in (0.0, 3.0))
    >>> [round(bound, 9) for bound in line_bounds(*bins, 1.0, 0.0)]
    [3.0, 3.0]
    """
    cells = _cells(x.counts, y.counts)
    i, j, mass = cells.i, cells.j, cells.mass
    ends_x, ends_y = ((s.low[k], s.high[k]) for s, k in ((x, i), (y, j)))
    # In units of the largest difference no power overflows, and those that underflow count for nothing.
    unit = float(max((ends_x[1] - ends_y[0]).max(), (ends_y[1] - ends_x[0]).max())) or 1.0
    z = (x.mean[i] - y.mean[j]) / unit
    cost = powered(z, p)
    # Above: corners.
    upper = np.zeros(len(mass))
    for a, share_a in zip(ends_x, _chances(x, i), strict=True):
        for b, share_b in zip(ends_y, _chances(y, j), strict=True):
            upper += share_a * share_b * powered((a - b) / unit, p)
    # Below: tangents, or how far apart the bins are.
    slope = powered_slope(z, p)
    steps_x = _steps(x, i, cells.before_x, cells.length, cells.own_x)
    steps = (steps_x - _steps(y, j, cells.before_y, cells.length, cells.own_y)) / unit
    gap = np.maximum(np.maximum(ends_x[0] - ends_y[1], ends_y[0] - ends_x[1]), 0.0) / unit
    slack = (_OF_SUMS + p * _OF_POWERS) * float(mass @ (upper + np.abs(slope * steps)))
    low = max(float(mass @ (cost + slope * steps)), float(mass @ powered(gap, p)), 0.0)
    below, above = unit * max(low - slack, 0.0) ** (1 / p), unit * (float(mass @ upper) + slack) ** (1 / p)
    return max(below - moved, 0.0) * (1 - _OF_SUMS), (above + moved) * (1 + _OF_SUMS)


class _Cells(NamedTuple):
    """Pairs of bins that the coupling by order makes."""

    i: HostArray
    j: HostArray
    mass: HostArray
    """In all 1."""
    before_x: HostArray
    """The mass of bin i before the cell; like `length` and `own_x`, its whole mass, in units of 1 / (n m)."""
    before_y: HostArray
    length: HostArray
    own_x: HostArray
    own_y: HostArray


def _cells(count_x: HostArray, count_y: HostArray) -> _Cells:
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


def _chances(shape: Shape, k: HostArray) -> tuple[HostArray, HostArray]:
    """Probabilities of the lower and the upper end of bins that give the bins' means."""
    width = shape.high - shape.low
    upper = np.where(width > 0, shape.mean - shape.low, 0.0) / np.where(width > 0, width, 1.0)
    return (1 - upper)[k], upper[k]


def _steps(shape: Shape, k: HostArray, before: HostArray, length: HostArray, own: HostArray) -> HostArray:
    """The mean over each cell of `x - mean`, if a bin's mass is first at its lower end, then at the upper."""
    at_low, _ = _chances(shape, k)
    share = np.clip((at_low * own - before) / length, 0.0, 1.0)
    level: HostArray = share * shape.low[k] + (1 - share) * shape.high[k] - shape.mean[k]
    return level
