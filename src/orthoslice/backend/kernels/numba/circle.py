"""Costs on a circle: sort, find where to cut, match and add up; beside `orthoslice.costs.circle`.

Every slice is worked on in float64 and in integer masses. What the plain reference finds by halving is found
here by interpolating slopes, and every step skips the whole piece of the cost function that has one slope.
"""

from __future__ import annotations

import numpy as np

from orthoslice.backend.array_types import Floats, HostArray, Indices, Words
from orthoslice.backend.kernels.numba._compile import compiled
from orthoslice.backend.kernels.numba.sliced import as_bits, line_cost, line_slope
from orthoslice.backend.kernels.numba.sorting import counters, put_row
from orthoslice.backend.kernels.numba.splitting import order_row, piece_bounds


@compiled
def _first_beyond(ends: Indices, mass: int) -> int:
    """The first place whose cumulative mass exceeds `mass`."""
    low, high = 0, ends.size
    while low < high:
        middle = (low + high) // 2
        if ends[middle] > mass:
            high = middle
        else:
            low = middle + 1
    return low


@compiled
def _slope(
    a: Floats, b: Floats, ends_a: Indices, ends_b: Indices, cut: int | np.int64, p: float
) -> tuple[float, int, int]:
    """The right slope of the cost at `cut`, and how far downwards and upwards of it the slope is the same.

    Downwards the distance itself is included, upwards it is not.
    """
    total, m = ends_a[-1], b.size
    turns = cut // total
    rest = cut - turns * total
    first = _first_beyond(ends_b, rest)
    slope, down, up = 0.0, total, total
    i, last = 0, np.int64(0)
    for k in range(first, first + m):
        j = k if k < m else k - m
        lift = np.float64(turns if k < m else turns + 1)
        end = ends_b[j] - rest if k < m else ends_b[j] - rest + total
        while ends_a[i] < end:
            last = ends_a[i]
            i += 1
        after = b[j + 1] if j + 1 < m else b[0] + 1.0
        x = a[i] - lift
        slope += line_cost(x, after, p) - line_cost(x, b[j], p)
        down = min(down, ends_a[i] - end)
        up = min(up, end - last)
    return slope, down, up


@compiled
def _search(a: Floats, b: Floats, ends_a: Indices, ends_b: Indices, guess: float, p: float) -> int:
    """The least cut at which the right slope is not negative.

    `guess` is the cut at which differences have mean 0. None of them exceeds half a turn at the best cut, which
    is therefore at most half a turn away.
    """
    total = ends_a[-1]
    room = total // 2 + (total >> 20) + 2
    middle = np.int64(guess)
    low, high = middle - room, middle + room
    low_slope, high_slope, stride = 0.0, 0.0, max(total >> 6, 1)
    is_interpolated = False
    while high - low > 1:
        width = high - low
        slope, down, up = _slope(a, b, ends_a, ends_b, middle, p)
        if slope >= 0.0:
            high, high_slope = middle - down, max(slope, 1e-300)
        else:
            low, low_slope = middle + up - 1, slope
        if low_slope == 0.0 or high_slope == 0.0:
            # One side was never seen: go there in growing strides.
            middle = high - stride if low_slope == 0.0 else low + stride
            stride *= 4
        elif is_interpolated and high - low > width // 2:
            # Interpolation stalls where slopes are uneven.
            middle, is_interpolated = low + (high - low) // 2, False
        else:
            share = low_slope / (low_slope - high_slope)
            middle, is_interpolated = low + np.int64(share * np.float64(high - low)), True
        middle = min(max(middle, low + 1), high - 1)
    return int(high)


@compiled
def _level_median(
    a: Floats, b: Floats, mass_a: Indices, mass_b: Indices, levels: Indices, lengths: Floats
) -> int:
    """The weighted median of the difference of the cumulative masses of sorted points along the circle."""
    n, m = a.size, b.size
    i = j = 0
    level, least, most = np.int64(0), np.int64(0), np.int64(0)
    before = 0.0
    for k in range(n + m):
        takes_a = j == m or (i < n and a[i] <= b[j])
        here = a[i] if takes_a else b[j]
        levels[k], lengths[k] = level, here - before
        least, most = min(least, level), max(most, level)
        before = here
        if takes_a:
            level += mass_a[i]
            i += 1
        else:
            level -= mass_b[j]
            j += 1
    # From the last point round to the first the difference is 0.
    lengths[0] += 1.0 - before
    low, high = least - 1, most
    while high - low > 1:
        middle = low + (high - low) // 2
        below = 0.0
        for k in range(n + m):
            below += lengths[k] if levels[k] <= middle else 0.0
        if below >= 0.5:
            high = middle
        else:
            low = middle
    return int(high)


@compiled
def _finish(
    a: Floats,
    b: Floats,
    ends_a: Indices,
    ends_b: Indices,
    cut: int,
    p: float,
    factor: float,
    at_a: Indices,
    at_b: Indices,
    by_a: Floats,
    by_b: Floats,
) -> float:
    """`factor` times the cost at `cut`; adds its derivatives to `by_a` and `by_b` unless these are empty."""
    total, m = ends_a[-1], b.size
    turns = cut // total
    rest = cut - turns * total
    k = _first_beyond(ends_b, rest)
    score, unit = 0.0, factor / np.float64(total)
    i, done = 0, np.int64(0)
    while done < total:
        j = k if k < m else k - m
        lift = np.float64(turns if k < m else turns + 1)
        end = ends_b[j] - rest if k < m else ends_b[j] - rest + total
        stop = min(end, ends_a[i])
        mass = unit * np.float64(stop - done)
        x = a[i] - lift
        score += mass * line_cost(x, b[j], p)
        if by_a.size:
            pull = mass * line_slope(x, b[j], p)
            by_a[at_a[i]] += pull
            by_b[at_b[j]] -= pull
        if ends_a[i] == stop:
            i += 1
        if end == stop:
            k += 1
        done = stop
    return score


@compiled
def _add_ends(mass: Indices, at: Indices, own: HostArray, ends: Indices) -> None:
    end = np.int64(0)
    for k in range(at.size):
        own[k] = mass[at[k]]
        end += own[k]
        ends[k] = end


@compiled
def _mean(a: Floats, mass: Indices) -> float:
    mean = 0.0
    for k in range(a.size):
        mean += a[k] * np.float64(mass[k])
    return mean


@compiled
def _slope_rows(
    bits_a: Words,
    bits_b: Words,
    mass_a: Indices,
    mass_b: Indices,
    p: float,
    factor: float,
    scores: Floats,
    by_a: Floats,
    by_b: Floats,
    bounds: Indices | None,
    floats: Floats,
) -> None:
    n, m = bits_a.shape[1], bits_b.shape[1]
    starts_a, starts_b = counters(bits_a), counters(bits_b)
    work_a, spare_a = np.empty(n, dtype=bits_a.dtype), np.empty(n, dtype=bits_a.dtype)
    work_b, spare_b = np.empty(m, dtype=bits_b.dtype), np.empty(m, dtype=bits_b.dtype)
    place_a, rest_a = np.empty(n, dtype=np.uint32), np.empty(n, dtype=np.uint32)
    place_b, rest_b = np.empty(m, dtype=np.uint32), np.empty(m, dtype=np.uint32)
    a, own_a, ends_a = np.empty(n), np.empty(n, dtype=np.int64), np.empty(n, dtype=np.int64)
    b, own_b, ends_b = np.empty(m), np.empty(m, dtype=np.int64), np.empty(m, dtype=np.int64)
    levels, lengths = np.empty(n + m, dtype=np.int64), np.empty(n + m)
    for s in range(bits_a.shape[0]):
        keys_a, at_a = order_row(bits_a[s], work_a, spare_a, place_a, rest_a, starts_a, bounds)
        keys_b, at_b = order_row(bits_b[s], work_b, spare_b, place_b, rest_b, starts_b, bounds)
        put_row(keys_a.view(floats.dtype), a)
        put_row(keys_b.view(floats.dtype), b)
        _add_ends(mass_a[s % mass_a.shape[0]], at_a, own_a, ends_a)
        _add_ends(mass_b[s % mass_b.shape[0]], at_b, own_b, ends_b)
        if p == 1.0:
            cut = -_level_median(a, b, own_a, own_b, levels, lengths)
        else:
            # The cut at which the mean difference is 0: the best one against the uniform law.
            cut = _search(a, b, ends_a, ends_b, _mean(a, own_a) - _mean(b, own_b), p)
        row_a, row_b = by_a[s % by_a.shape[0]], by_b[s % by_b.shape[0]]
        scores[s] = _finish(a, b, ends_a, ends_b, cut, p, factor, at_a, at_b, row_a, row_b)


def slope_circles(
    ax: Floats, ay: Floats, mass_x: Indices, mass_y: Indices, p: float, factor: float, wanted: bool
) -> tuple[Floats, tuple[Floats, ...]]:
    """As :data:`orthoslice.costs.circle.circle_slopes`, of rows `(slices, n)`, `(slices, m)` and their masses.

    Examples
    --------
    >>> rows, masses = (np.array([[0.9, 0.1]]), np.array([[0.0, 0.2]])), np.ones((1, 2), dtype=np.int64)
    >>> scores, _ = slope_circles(*rows, masses, masses, 1.0, 1.0, False)
    >>> scores.round(12).tolist()
    [0.1]
    """
    slices = ax.shape[0]
    scores = np.empty(slices)
    shape = (slices, ax.shape[1]) if wanted else (1, 0), (slices, ay.shape[1]) if wanted else (1, 0)
    slopes = np.zeros(shape[0]), np.zeros(shape[1])
    a, b = as_bits(ax), as_bits(ay)
    bounds = piece_bounds(max(a.shape[1], b.shape[1]), a.itemsize)
    _slope_rows(a, b, mass_x, mass_y, p, factor, scores, *slopes, bounds, np.empty(0, dtype=ax.dtype))
    return scores, tuple(s.astype(ax.dtype, copy=False) for s in slopes) if wanted else ()


@compiled
def _uniform_cut(away: Floats, own: HostArray, p: float, halvings: int) -> float:
    """Where the derivative of the cost against the uniform law by the cut is 0."""
    mean = 0.0
    for k in range(own.size):
        mean += own[k] * away[k]
    if p == 2.0:
        return mean
    low, high = mean - 0.5, mean + 0.5
    for _ in range(halvings):
        middle, slope = 0.5 * (low + high), 0.0
        for k in range(own.size):
            here, half = away[k] - middle, 0.5 * own[k]
            slope += abs(here - half) ** p - abs(here + half) ** p
        if slope >= 0.0:
            high = middle
        else:
            low = middle
    return high


@compiled
def _price_uniform(
    away: Floats, own: HostArray, cut: float, p: float, factor: float, at: Indices, by_point: Floats
) -> float:
    """`factor` times the cost at `cut`; writes its derivatives to `by_point` unless that is empty."""
    score = 0.0
    for k in range(own.size):
        here, half = away[k] - cut, 0.5 * own[k]
        if p == 2.0:
            score += own[k] * (here * here + half * half / 3.0)
        else:
            left, right = here + half, here - half
            score += (left * abs(left) ** p - right * abs(right) ** p) / (p + 1.0)
        if by_point.size:
            by_point[at[k]] = factor * (line_cost(here, -half, p) - line_cost(here, half, p))
    return factor * score


@compiled
def _uniform_rows(
    bits: Words,
    weights: Floats,
    p: float,
    factor: float,
    halvings: int,
    scores: Floats,
    slopes: Floats,
    bounds: Indices | None,
    floats: Floats,
) -> None:
    n = bits.shape[1]
    starts = counters(bits)
    work, spare = np.empty(n, dtype=bits.dtype), np.empty(n, dtype=bits.dtype)
    place, rest = np.empty(n, dtype=np.uint32), np.empty(n, dtype=np.uint32)
    away, own = np.empty(n), np.empty(n)
    for s in range(bits.shape[0]):
        keys, at = order_row(bits[s], work, spare, place, rest, starts, bounds)
        row, weight, end = keys.view(floats.dtype), weights[s % weights.shape[0]], 0.0
        for k in range(n):
            own[k] = weight[at[k]]
            end += own[k]
            away[k] = row[k] - end + 0.5 * own[k]
        cut = _uniform_cut(away, own, p, halvings)
        scores[s] = _price_uniform(away, own, cut, p, factor, at, slopes[s % slopes.shape[0]])


def slope_uniform(
    ax: Floats, weights: Floats, p: float, factor: float, wanted: bool, halvings: int
) -> tuple[Floats, tuple[Floats, ...]]:
    """As :data:`orthoslice.costs.circle.uniform_circle_slopes`, of rows `(slices, n)` and float64 weights.

    Examples
    --------
    >>> scores, _ = slope_uniform(np.array([[0.1, 0.6]]), np.full((1, 2), 0.5), 2.0, 12.0, False, 0)
    >>> scores.round(12).tolist()
    [0.25]
    """
    slices, n = ax.shape
    scores, slopes = np.empty(slices), np.empty((slices, n) if wanted else (1, 0))
    bits = as_bits(ax)
    bounds, floats = piece_bounds(n, bits.itemsize), np.empty(0, dtype=ax.dtype)
    _uniform_rows(bits, weights, p, factor, halvings, scores, slopes, bounds, floats)
    return scores, (slopes.astype(ax.dtype, copy=False),) if wanted else ()
