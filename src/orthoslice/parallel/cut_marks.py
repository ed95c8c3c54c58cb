"""Marks at which the order of a cloud on a direction can be cut: points, and where their ties end.

In memory, neighbours that rounding may have put apart are a tie, and so is a chain of such; the points of a
tie are in lexicographic order (:func:`orthoslice.couplings.orders.tied_order`). So a point comes before a mark
if its tie does, or if it is in the same tie and its coordinates come first. Where a tie ends is found from
what all chunks have near it.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from orthoslice.backend.arrays import HostArray, lexsort_rows
from orthoslice.couplings.orders import stable_order

# Half the width of the first window that is searched for the end of a tie. The unit is the reach of a
# projection: how far rounding may have moved it.
_FIRST_WINDOW = 8


class Marks(NamedTuple):
    """Points at which the order of a cloud on a direction can be cut, in this order, and their ties."""

    points: HostArray
    """`(marks, dim)`"""
    tie: HostArray
    """Which tie each is in, `(marks,)`."""
    low: HostArray
    """The least projection of each tie, `(ties,)`."""
    high: HostArray

    def ties_of(self, values: HostArray) -> tuple[HostArray, HostArray]:
        """How many ties begin before each projection or with it, and whether it is in the last of these."""
        begun = np.searchsorted(self.low, values, side="right")
        return begun, values <= np.append(self.high, np.nan)[begun - 1]

    def places(self, points: HostArray, values: HostArray) -> HostArray:
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
        # For every number of ties that begin before a point: twice the number of their marks.
        place = 2 * np.searchsorted(self.tie, np.arange(len(self.low) + 1), side="left")[begun]
        tied, n_marks = np.flatnonzero(inside), len(self.tie)
        ties = np.concatenate([self.tie, begun[tied] - 1])
        keys = np.column_stack([ties, np.concatenate([self.points, points[tied]])])
        # Marks come first, and so before points that are equal to them.
        order = lexsort_rows(keys[None])[0]
        passed = np.cumsum(order < n_marks)[order >= n_marks]
        order = order[order >= n_marks]
        # Where no mark is passed, index -1 compares with the last mark, which is not equal either.
        equal = (keys[order] == keys[:n_marks][passed - 1]).all(axis=1)
        place[tied[order - n_marks]] = 2 * passed - equal
        return np.asarray(place)

    def some(self, own: slice) -> Marks:
        """Some of them, and their ties."""
        ties, tie = np.unique(self.tie[own], return_inverse=True)
        return Marks(self.points[own], tie, self.low[ties], self.high[ties])


class Search(NamedTuple):
    """Projections of candidates, and the ends of their ties as far as they are known."""

    value: HostArray
    half: HostArray
    """Half the width of the window around each."""
    low: HostArray
    """NaN while it is not known."""
    high: HostArray

    @property
    def is_open(self) -> HostArray:
        return np.isnan(self.low)

    def windows(self) -> tuple[HostArray, HostArray]:
        """Where to look, as disjoint intervals in order."""
        if not self.is_open.any():
            return self.value[:0], self.value[:0]
        value, half = self.value[self.is_open], self.half[self.is_open]
        order = np.argsort(value - half)
        low, high = (value - half)[order], np.maximum.accumulate((value + half)[order])
        apart = low[1:] > high[:-1]
        return low[np.append(True, apart)], high[np.append(apart, True)]

    def narrowed(self, near: HostArray, reach: HostArray) -> Search:
        """What is known given `near`, all projections that may tie with something in the windows.

        Other projections are further from all windows than twice their reach, so that they do not tie with a
        projection that lies in a window with all of its own reach. A tie of such projections is known in full;
        the others are open and get wider windows. Candidates in no tie have no mass, and are dropped.
        """
        if not len(near):
            return self
        first = np.flatnonzero(np.append(True, np.diff(near) > reach[:-1] + reach[1:]))
        low, high = near[first], near[np.append(first[1:], len(near)) - 1]
        tie = np.searchsorted(low, self.value, side="right") - 1
        is_there = ~self.is_open | ((tie >= 0) & (self.value <= high[tie]))
        value, half, known_low, known_high = (part[is_there] for part in self)
        tie, is_open = tie[is_there], self.is_open[is_there]
        above = np.maximum.reduceat(near + reach, first)[tie] - value
        below = value - np.minimum.reduceat(near - reach, first)[tie]
        far = np.maximum(above, below)
        closed = is_open & (far <= half)
        return Search(
            value,
            np.where(is_open & ~closed, 2 * far, half),
            np.where(closed, low[tie], known_low),
            np.where(closed, high[tie], known_high),
        )

    def marks(self, sample: HostArray, values: HostArray, step: int) -> Marks:
        """Every `step`-th point of the sample in each known tie, at least one of each."""
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


def candidates(values: HostArray, reach: HostArray, step: int) -> Search:
    """Every `step`-th projection of a sample, with ties of unknown ends."""
    known, most = distinct(values, reach)
    picked = np.unique(np.sort(values)[::step])
    nothing = np.full(len(picked), np.nan)
    return Search(picked, _FIRST_WINDOW * most[np.searchsorted(known, picked)], nothing, nothing)


def distinct(values: HostArray, reach: HostArray) -> tuple[HostArray, HostArray]:
    """Numbers in order, each once, and the largest reach of those that are equal."""
    order = np.argsort(values, kind="stable")
    values = values[order]
    first = np.flatnonzero(np.append(True, values[1:] != values[:-1])[: len(values)])
    return values[first], np.maximum.reduceat(reach[order], first) if len(first) else reach[:0]


def order_on_line(points: HostArray, values: HostArray, reach: HostArray) -> HostArray:
    """The order of points by their projections, those of a tie in lexicographic order.

    It is :func:`orthoslice.couplings.orders.tied_order` of all in lexicographic order, where most do not tie.

    Examples
    --------
    >>> points = np.array([[3.0, 0.0], [2.0, 1.0], [1.0, 0.0], [1.0, 2.0]])
    >>> order_on_line(points, points.sum(axis=1), np.zeros(4)).tolist()
    [2, 3, 1, 0]
    """
    (order,) = stable_order(values[None])
    ties = np.append(False, np.diff(values[order]) <= reach[order[1:]] + reach[order[:-1]])
    # Those that tie with the one before, or with the one after.
    tied = np.flatnonzero(ties | np.append(ties[1:], False))
    keys = np.column_stack([np.cumsum(~ties)[tied], points[order[tied]]])
    order[tied] = order[tied[lexsort_rows(keys[None])[0]]]
    return np.asarray(order)
