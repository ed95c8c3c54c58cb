"""The angular sweep: how the monotone coupling of two planar clouds changes as the direction turns.

The direction is v(phi) = (cos phi, sin phi) and phi runs over [0, pi). Two points of one cloud change
places exactly once on the way, at the angle at which v is perpendicular to their difference. Between
such *critical angles* the coupling stands still, so it is a list of *cells*: a point of x, a point of y,
the mass they share, and the angles between which they share it.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from orthoslice.backend.array_types import FloatArray, IntArray
from orthoslice.backend.kernels.numba._compile import compiled

# A critical angle carries an error of at most two units in the last place of pi, 9e-16. Angles nearer
# to each other than this may therefore be listed in the wrong order, and are taken as one.
SAME_ANGLE = 2.0**-48

# In place of an event: where the sweep begins and ends.
BEGIN, END = -1, -2

# Spans longer than this lose only a few bits as the difference of two angles.
SHORT_SPAN = 2.0**-8


class SweptCloud(NamedTuple):
    """One cloud of n points in the sweep, which updates the last eight arrays in place.

    Points are numbered in lexicographic order, which is their projected order just after angle 0.
    """

    angle: FloatArray  # (events,) critical angles, ascending
    event: IntArray  # (events,) which row of `pair` belongs to each angle
    pair: NDArray[np.int32]  # (events, 2) the points that change places, lower number first
    first: int  # the number of its first event among those of both clouds
    mass: IntArray  # (n,) positive; the masses of both sides have the same sum
    order: IntArray  # (n,) the point at each rank
    rank: IntArray  # (n,) the rank of each point
    edge: IntArray  # (n + 1,) mass below each rank
    since: FloatArray  # (n,) the angle since which each rank has held its point and its edges
    cause: IntArray  # (n,) the event at that angle, or BEGIN
    shift: IntArray  # (n,) scratch: by how many ranks a point is about to move
    turn: IntArray  # (n,) scratch: the last group of events that touched a point
    touched: IntArray  # (n,) scratch: the ranks that a group touches


class Cells(NamedTuple):
    """A buffer of cells that have come to their end."""

    start: FloatArray  # (capacity,)
    stop: FloatArray  # (capacity,)
    ends: IntArray  # (capacity, 2) the events at start and stop, or BEGIN and END
    pair: IntArray  # (capacity, 2) number of the point in x and in y
    mass: IntArray  # (capacity,)


@compiled
def critical_angles(points: FloatArray, angle: FloatArray, pair: NDArray[np.int32]) -> int:
    """Fill `angle` and `pair` with the changes of order of lexicographically sorted points (n, 2).

    Returns how many there are: at most n (n - 1) / 2, and fewer where points share their first
    coordinate, since those change places at angle 0 only, before the sweep begins.

    Examples
    --------
    >>> angle, pair = np.empty(1), np.empty((1, 2), dtype=np.int32)
    >>> critical_angles(np.array([[0.0, 0.0], [1.0, 0.0]]), angle, pair)
    1
    >>> angle / np.pi
    array([0.5])
    """
    count = 0
    for i in range(points.shape[0]):
        for j in range(i + 1, points.shape[0]):
            across = points[j, 0] - points[i, 0]
            if across > 0.0:
                # The differences are correctly rounded, so the angle is too, up to a few units in the
                # last place, however close the two points are.
                angle[count] = math.atan2(across, points[i, 1] - points[j, 1])
                pair[count, 0] = i
                pair[count, 1] = j
                count += 1
    return count


@compiled
def _rank_at(edge: IntArray, mass: int, guess: int) -> int:
    """The rank whose mass lies just above `mass`; between equal uniform clouds the guess is right."""
    if guess < edge.size - 1 and edge[guess] <= mass < edge[guess + 1]:
        return guess
    low, high = 0, edge.size - 1
    while high - low > 1:
        middle = (low + high) // 2
        if edge[middle] <= mass:
            low = middle
        else:
            high = middle
    return low


@compiled
def _close(
    own: SweptCloud,
    other: SweptCloud,
    rank: int,
    angle: float,
    cause: int,
    alone: bool,
    column: int,
    cells: Cells,
    count: int,
) -> int:
    """Write the cells of one rank of `own` that end at `angle`; `column` is where `own` stands in a pair.

    Cells with `start == stop` are written too if a single event ends them (`alone`): :func:`sharpen_spans`
    finds their length from the points of the two events.
    """
    lower, upper = own.edge[rank], own.edge[rank + 1]
    across = _rank_at(other.edge, lower, rank)
    while across < other.order.size and other.edge[across] < upper:
        # A cell lasts as long as neither of its two ranks is touched.
        is_own = own.since[rank] >= other.since[across]
        start = own.since[rank] if is_own else other.since[across]
        since = own.cause[rank] if is_own else other.cause[across]
        if start < angle or (alone and since != cause):
            cells.start[count] = start
            cells.stop[count] = angle
            cells.ends[count, 0] = since
            cells.ends[count, 1] = cause
            cells.pair[count, column] = own.order[rank]
            cells.pair[count, 1 - column] = other.order[across]
            cells.mass[count] = min(upper, other.edge[across + 1]) - max(lower, other.edge[across])
            count += 1
        across += 1
    own.since[rank] = angle
    own.cause[rank] = cause
    return count


@compiled
def _gather(own: SweptCloud, begin: int) -> tuple[int, int]:
    """Collect the group of events that starts at `begin`: its end, and how many ranks it touches.

    Every event moves its first point up by one rank and its second point down by one. The sum of
    these moves is the new rank whatever the order of the events in the group, so that any number of
    collinear or duplicated points may change places at once.
    """
    n_touched = 0
    end = begin
    while end < own.angle.size and (end == begin or own.angle[end] - own.angle[end - 1] <= SAME_ANGLE):
        for column in range(2):
            point = own.pair[own.event[end], column]
            if own.turn[point] != begin:
                own.turn[point] = begin
                own.shift[point] = 0
                own.touched[n_touched] = own.rank[point]
                n_touched += 1
            own.shift[point] += 1 - 2 * column
        end += 1
    return end, n_touched


@compiled
def _advance(
    own: SweptCloud, other: SweptCloud, begin: int, column: int, cells: Cells, count: int
) -> tuple[int, int]:
    """Close the cells that a group of events touches, then let its points change places."""
    end, n_touched = _gather(own, begin)
    touched = own.touched[:n_touched]
    # Edges are moved from low ranks to high ones; most groups are a single pair.
    if n_touched > 2:
        touched.sort()
    elif touched[0] > touched[1]:
        touched[0], touched[1] = touched[1], touched[0]
    cause = own.first + own.event[begin]
    for k in range(n_touched):
        count = _close(own, other, touched[k], own.angle[begin], cause, end - begin == 1, column, cells, count)
        own.rank[own.order[touched[k]]] += own.shift[own.order[touched[k]]]
    for event in range(begin, end):
        for side in range(2):
            point = own.pair[own.event[event], side]
            own.order[own.rank[point]] = point
    for k in range(n_touched):
        own.edge[touched[k] + 1] = own.edge[touched[k]] + own.mass[own.order[touched[k]]]
    return end, count


@compiled
def sweep(x: SweptCloud, y: SweptCloud, position: IntArray, cells: Cells) -> int:
    """Sweep on from `position` until the cells are full or the half-turn is done; return their number.

    `position` (3,) holds how many events of x and of y are past, and whether the half-turn is done.
    `cells` needs room for more than n + m entries, the most that one group of events can close.
    """
    count = 0
    while count + x.order.size + y.order.size <= cells.start.size:
        next_x = x.angle[position[0]] if position[0] < x.angle.size else math.inf
        next_y = y.angle[position[1]] if position[1] < y.angle.size else math.inf
        if next_x == math.inf and next_y == math.inf:
            for rank in range(x.order.size):
                count = _close(x, y, rank, math.pi, END, False, 0, cells, count)
            position[2] = 1
            return count
        if next_x <= next_y:
            position[0], count = _advance(x, y, position[0], 0, cells, count)
        else:
            position[1], count = _advance(y, x, position[1], 1, cells, count)
    return count


@compiled
def _difference(a: float, b: float) -> tuple[float, float]:
    """A - b, and what rounding took from it (Knuth)."""
    rounded = a - b
    part = rounded - a
    return rounded, (a - (rounded - part)) - (b + part)


@compiled
def _product(a: float, b: float) -> tuple[float, float]:
    """A * b, and what rounding took from it (Dekker, with Veltkamp's halves of 26 bits)."""
    rounded = a * b
    shifted_a, shifted_b = a * 134217729.0, b * 134217729.0
    a_high, b_high = shifted_a - (shifted_a - a), shifted_b - (shifted_b - b)
    a_low, b_low = a - a_high, b - b_high
    return rounded, a_low * b_low - (((rounded - a_high * b_high) - a_low * b_high) - a_high * b_low)


@compiled
def _normal(
    x: FloatArray, x_swept: SweptCloud, y: FloatArray, y_swept: SweptCloud, event: int, axis: int
) -> tuple[float, float]:
    """A coordinate of the difference of points that is perpendicular to an event's direction, unrounded."""
    if event < 0:
        # Perpendicular to angle 0 is (0, -1), and half a turn later (0, 1).
        return (0.0 if axis == 0 else (1.0 if event == END else -1.0)), 0.0
    if event < y_swept.first:
        i, j = x_swept.pair[event, 0], x_swept.pair[event, 1]
        return _difference(x[j, axis], x[i, axis])
    i, j = y_swept.pair[event - y_swept.first, 0], y_swept.pair[event - y_swept.first, 1]
    return _difference(y[j, axis], y[i, axis])


@compiled
def sharpen_spans(
    x: FloatArray, x_swept: SweptCloud, y: FloatArray, y_swept: SweptCloud, ends: IntArray, span: FloatArray
) -> None:
    """Replace short spans by the angle between the differences that the events at their ends belong to.

    Its cross product is taken to twice the digits, so that small angles lose none.
    """
    for k in range(span.size):
        # A short span between events of one cloud may stay rounded: the coupling is as good as on either side.
        if span[k] >= SHORT_SPAN or (ends[k, 0] < y_swept.first) == (ends[k, 1] < y_swept.first):
            continue
        ux, ux_rest = _normal(x, x_swept, y, y_swept, ends[k, 0], 0)
        uy, uy_rest = _normal(x, x_swept, y, y_swept, ends[k, 0], 1)
        wx, wx_rest = _normal(x, x_swept, y, y_swept, ends[k, 1], 0)
        wy, wy_rest = _normal(x, x_swept, y, y_swept, ends[k, 1], 1)
        first, first_rest = _product(ux, wy)
        second, second_rest = _product(uy, wx)
        cross, rest = _difference(first, second)
        rest += (first_rest - second_rest) + (ux * wy_rest + ux_rest * wy) - (uy * wx_rest + uy_rest * wx)
        # Where rounding has put two events in the wrong order, the coupling between them costs the same.
        tangent = abs(cross + rest) / (ux * wx + uy * wy)
        square = tangent * tangent
        span[k] = tangent * (1.0 - square * (1.0 / 3.0 - square * (0.2 - square / 7.0)))
