"""Costs on a circle of length 1: where to cut it, and what its two sorted clouds cost then.

Let Q_x and Q_y be the quantile functions of coordinates in one interval of length 1, continued by
Q(t + 1) = Q(t) + 1. Then

    W_p^p = min over s of  C(s) = integral over t from 0 to 1 of |Q_x(t) - Q_y(t + s)|^p,

and C is convex, and linear between those s at which cumulative masses of the clouds meet (Delon, Salomon and
Sobolevski, 2010). Masses are integers, so these s are too: the least one at which the slope to the right of C
is not negative is a minimiser, exactly. For p = 1 it is minus the level median of the difference of both
cumulative distributions.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from orthoslice.backend.arrays import (
    Array,
    HostArray,
    Operation,
    PlainWork,
    at_rank,
    detach,
    device,
    iterate,
    namespace,
    wide_float,
    wide_int,
)
from orthoslice.backend.kernels import rows_refusal
from orthoslice.clouds.cloud import Cloud
from orthoslice.clouds.masses import Masses
from orthoslice.costs.lines import count_numbers, powered, powered_slope, scatter_slopes, weigh
from orthoslice.couplings.coupling import Pairs, flat_rows
from orthoslice.couplings.orders import stable_order
from orthoslice.couplings.quantiles import count_below


def check_circle_p(p: float, like: Array) -> None:
    """Raise if powers of differences on a circle may underflow."""
    info = namespace(like).finfo(wide_float(like))
    # Coordinates that differ do so by 2**-digits of a turn or more.
    digits, room = 1 - math.log2(float(info.eps)), -math.log2(float(info.smallest_normal))
    if p > room // digits:
        raise ValueError(
            f"`p` must be at most {room // digits:g} on circles in float{info.bits}, beyond which powers of "
            f"small angles underflow; got {p:g}."
        )


def turns_of(angles: Array, period: float) -> Array:
    """Angles as coordinates in [0, 1] of a circle of length 1, in the widest floating type."""
    xp = namespace(angles)
    turns = xp.astype(angles, wide_float(angles)) / period
    return turns - xp.floor(turns)


circle_slopes: Operation[tuple[Array, tuple[Array, ...]]] = Operation("circle_slopes")
"""circle_slopes(ax (slices, ..., n), ay (slices, ..., m), masses, p, factor, wanted) -> scores, slopes.

`factor` times W_p^p on the circle of length 1, `(slices, ...)`, and its derivatives by all coordinates if any
are wanted, else (). The coordinates of both clouds lie in one interval of length 1.
"""


def _bytes(per_number: int) -> Any:
    return lambda ax, ay, *_: 8 * per_number * count_numbers(ax, ay)


@circle_slopes.implementation(
    "numba",
    lambda ax, ay, *_: rows_refusal(ax, ay),
    row_bytes=_bytes(8),
    plain_work=lambda ax, ay, *_: PlainWork.of(ax, ay, times=40),
)
def _circle_slopes_numba(
    ax: HostArray, ay: HostArray, masses: Masses, p: float, factor: float, wanted: tuple[bool, bool]
) -> tuple[HostArray, tuple[HostArray, ...]]:
    from orthoslice.backend.kernels.numba.circle import slope_circles

    lead, rows = flat_rows(ax, ay)
    own_x, own_y = flat_rows(masses.x[None, ...], masses.y[None, ...])[1]
    scores, slopes = slope_circles(rows[0], rows[1], own_x, own_y, p, factor, any(wanted))
    return scores.reshape(lead), tuple(s.reshape(*lead, -1) for s in slopes)


@circle_slopes.implementation("reference", lambda *_: None, row_bytes=_bytes(40))
def _circle_slopes(
    ax: Array, ay: Array, masses: Masses, p: float, factor: float, wanted: tuple[bool, bool]
) -> tuple[Array, tuple[Array, ...]]:
    xp, total = namespace(ax), masses.total
    lead = np.broadcast_shapes(tuple(ax.shape[:-1]), tuple(ay.shape[:-1]))
    ax, ay = (xp.broadcast_to(q, (*lead, q.shape[-1])) for q in (ax, ay))
    ix, iy = stable_order(ax), stable_order(ay)
    a, b = xp.take_along_axis(ax, ix, axis=-1), xp.take_along_axis(ay, iy, axis=-1)
    ends_x, ends_y = _ends(masses.x, ix), _ends(masses.y, iy)
    cut = _best_cut(detach(a), detach(b), ends_x, ends_y, total, p)
    used_x, used_y, lift, mass = _cut_pairs(ends_x, ends_y, cut, total)
    difference = xp.take_along_axis(a, used_x, axis=-1) - xp.take_along_axis(b, used_y, axis=-1)
    difference = difference - xp.astype(lift, difference.dtype)
    wide = wide_float(ax)
    at_x, at_y = xp.take_along_axis(ix, used_x, axis=-1), xp.take_along_axis(iy, used_y, axis=-1)
    pairs = Pairs(at_x, at_y, xp.astype(mass, wide) / total, None)
    scores = weigh(factor * powered(difference, p), pairs)
    if not any(wanted):
        return scores, ()
    pull = factor * pairs.mass * xp.astype(powered_slope(difference, p), wide)
    pull = xp.astype(pull, ax.dtype)
    return scores, (scatter_slopes(pull, at_x, ax.shape[-1]), scatter_slopes(-pull, at_y, ay.shape[-1]))


def _ends(masses: Array, order: Array) -> Array:
    """Cumulative masses in the order of every slice."""
    xp = namespace(order)
    own = xp.broadcast_to(at_rank(masses, order.ndim), order.shape)
    return xp.cumulative_sum(xp.take_along_axis(own, order, axis=-1), axis=-1)


def _best_cut(a: Array, b: Array, ends_x: Array, ends_y: Array, total: int, p: float) -> Array:
    """The least s, in units of mass, at which the right slope of C is not negative: by halving, `(..., 1)`."""
    xp = namespace(a)
    turned = xp.concat([b[..., 1:], b[..., :1] + 1], axis=-1)

    def halve(low: Array, high: Array) -> tuple[Array, Array]:
        middle = (low + high) // 2
        rises = _slope(a, b, turned, ends_x, ends_y, middle, total, p) >= 0
        return xp.where(rises, low, middle), xp.where(rises, middle, high)

    high = xp.full((*a.shape[:-1], 1), total, dtype=ends_x.dtype, device=device(a))
    return iterate(halve, (-high, high), total.bit_length() + 1)[1]


def _slope(
    a: Array, b: Array, turned: Array, ends_x: Array, ends_y: Array, cut: Array, total: int, p: float
) -> Array:
    """The derivative of C to the right: the points of x at the ends of y pass to the next points of y."""
    xp = namespace(a)
    ends, lift = _cut_ends(ends_y, cut, total)
    # The point of x at the end of a point of y, or to its left.
    x = xp.take_along_axis(a, count_below(ends, ends_x), axis=-1) - xp.astype(lift, a.dtype)
    return xp.sum(powered(x - turned, p) - powered(x - b, p), axis=-1, keepdims=True)


def _cut_ends(ends_y: Array, cut: Array, total: int) -> tuple[Array, Array]:
    """Where points of y end after a shift by `cut`, in (0, total], and by how many turns they are lifted."""
    xp, turns = namespace(ends_y), cut // total
    ends = ends_y - (cut - turns * total)
    is_next = ends <= 0
    return xp.where(is_next, ends + total, ends), turns + xp.astype(is_next, turns.dtype)


def _cut_pairs(ends_x: Array, ends_y: Array, cut: Array, total: int) -> tuple[Array, Array, Array, Array]:
    """Ranks of x and of y in every pair, the turns by which y is lifted, and masses, `(..., n + m)`."""
    xp, n, m = namespace(ends_x), ends_x.shape[-1], ends_y.shape[-1]
    ends, _ = _cut_ends(ends_y, cut, total)
    both = xp.concat([ends, ends_x], axis=-1)
    order = xp.argsort(both, axis=-1, stable=True)
    merged = xp.take_along_axis(both, order, axis=-1)
    mass = xp.diff(merged, axis=-1, prepend=xp.zeros_like(merged[..., :1]))
    is_y = xp.astype(order < m, wide_int(ends_x))
    used_y = xp.cumulative_sum(is_y, axis=-1) - is_y
    used_x = xp.clip(xp.cumulative_sum(1 - is_y, axis=-1) - (1 - is_y), 0, n - 1)
    turns = cut // total
    first = xp.sum(xp.astype(ends_y <= cut - turns * total, is_y.dtype), axis=-1, keepdims=True)
    place = first + used_y
    return used_x, place % m, turns + place // m, mass


uniform_circle_slopes: Operation[tuple[Array, tuple[Array, ...]]] = Operation("uniform_circle_slopes")
"""uniform_circle_slopes(ax (slices, ..., n), x, p, factor, wanted) -> scores, slopes.

`factor` times W_p^p between coordinates with the weights of `x` and the uniform law on the circle of length 1,
`(slices, ...)`, and one array of its derivatives by the coordinates if wanted. For p = 2 in closed form.
"""

# Halvings of [-1, 1] after which the cut against the uniform law is known to the last digit.
_HALVINGS = 56


@uniform_circle_slopes.implementation(
    "numba",
    lambda ax, *_: rows_refusal(ax),
    row_bytes=lambda ax, *_: 64 * math.prod(ax.shape),
    plain_work=lambda ax, *_: PlainWork.of(ax, times=8),
)
def _uniform_circle_slopes_numba(
    ax: HostArray, x: Cloud, p: float, factor: float, wanted: bool
) -> tuple[HostArray, tuple[HostArray, ...]]:
    from orthoslice.backend.kernels.numba.circle import slope_uniform

    weights = np.full((1, x.n), 1 / x.n)
    if x.weights is not None:
        weights = np.asarray(x.weights, dtype=np.float64).reshape(-1, x.n)
    scores, slopes = slope_uniform(ax.reshape(-1, x.n), weights, p, factor, wanted, _HALVINGS)
    return scores.reshape(ax.shape[:-1]), tuple(s.reshape(ax.shape) for s in slopes)


@uniform_circle_slopes.implementation(
    "reference", lambda *_: None, row_bytes=lambda ax, *_: 160 * math.prod(ax.shape)
)
def _uniform_circle_slopes(
    ax: Array, x: Cloud, p: float, factor: float, wanted: bool
) -> tuple[Array, tuple[Array, ...]]:
    xp, wide = namespace(ax), wide_float(ax)
    order = stable_order(ax)
    a = xp.astype(xp.take_along_axis(ax, order, axis=-1), wide)
    weights = x.weights
    if weights is None:
        weights = xp.full((x.n,), 1 / x.n, dtype=wide, device=device(ax))
    rows = xp.broadcast_to(at_rank(xp.astype(detach(weights), wide), ax.ndim), ax.shape)
    own = xp.take_along_axis(rows, order, axis=-1)
    ends = xp.cumulative_sum(own, axis=-1)
    # Point i is matched with the uniform law from `ends - own + cut` to `ends + cut`, `away` from its middle.
    away = a - ends + own / 2
    away = away - _uniform_cut(detach(away), detach(own), p)
    left, right = away + own / 2, away - own / 2
    if p == 2:
        scores = xp.sum(own * (away * away + own * own / 12), axis=-1)
    else:
        parts = (xp.sign(side) * xp.abs(side) ** (p + 1) for side in (left, right))
        scores = xp.sum(next(parts) - next(parts), axis=-1) / (p + 1)
    if not wanted:
        return factor * scores, ()
    slopes = factor * (powered(left, p) - powered(right, p))
    # The slope of the k-th point in order belongs to point order[k].
    back = xp.take_along_axis(slopes, xp.argsort(order, axis=-1), axis=-1)
    return factor * scores, (xp.astype(back, ax.dtype),)


def _uniform_cut(away: Array, own: Array, p: float) -> Array:
    """Where the derivative of the cost by the cut is 0, `(..., 1)`."""
    xp = namespace(away)
    mean = xp.sum(own * away, axis=-1, keepdims=True)
    if p == 2:
        return mean

    def halve(low: Array, high: Array) -> tuple[Array, Array]:
        middle = low / 2 + high / 2
        right, left = away - middle - own / 2, away - middle + own / 2
        rises = xp.sum(powered(right, p) - powered(left, p), axis=-1, keepdims=True) >= 0
        return xp.where(rises, low, middle), xp.where(rises, middle, high)

    # No difference exceeds half a turn at the best cut.
    return iterate(halve, (mean - 0.5, mean + 0.5), _HALVINGS)[1]
