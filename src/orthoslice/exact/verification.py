"""Bounds on W_p from a coupling and potentials alone, by plain array code that shares nothing with the solvers.

All costs are looked at in float64. Those that decide are worked out once more with the rounding errors of their
differences and squares added back, so that what is rounded here is less than what the claims allow for.
"""

from __future__ import annotations

import functools
import math
import sys
from fractions import Fraction
from typing import Any

import numpy as np

from orthoslice.backend.array_types import FloatArray, IntArray
from orthoslice.clouds.cloud import Cloud
from orthoslice.exact.certificate import share_rows

_EPS = float(np.finfo(np.float64).eps)
# Splits a float64 in two halves whose products are exact.
_SPLITTER = 2.0**27 + 1
# Costs that are looked at in a piece.
_TILE_ITEMS = 1 << 16
# Costs that a device looks at at once.
_DEVICE_ITEMS = 1 << 27
# Whole numbers up to this one are floats.
_LARGEST_WHOLE = 1 << 53


def accurate_costs(x: FloatArray, y: FloatArray, p: float) -> FloatArray:
    """|x[k] - y[k]|^p of rows no farther apart than 1, to `rounding(p)` and what underflows.

    Examples
    --------
    >>> accurate_costs(np.array([[1.0, 1e-20]]), np.array([[0.0, 0.0]]), 2.0).tolist()
    [1.0]
    """
    difference = x - y
    # What the difference lost (Knuth), and its square in two parts (Dekker).
    back = x - difference
    lost = (x - (difference + back)) + (back - y)
    big = _SPLITTER * difference
    high = big - (big - difference)
    low = difference - high
    square = difference * difference
    rest = low * low - ((square - high * high) - 2 * high * low) + 2 * difference * lost
    sums = np.array([math.fsum(terms) for terms in np.concatenate([square, rest], axis=1).tolist()])
    costs: FloatArray = np.maximum(sums, 0.0) ** (p / 2)
    return costs


def rounding(p: float) -> float:
    """The relative error of :func:`accurate_costs`."""
    return (4 * max(p / 2, 1.0) + 4) * _EPS


def least_slack(x: FloatArray, y: FloatArray, p: float, g: FloatArray) -> FloatArray:
    """A lower bound on `min_j |x[i] - y[j]|^p - g[j]`, without what underflows."""
    least = np.empty(len(x))
    # What a cost by plain sums is off by at most.
    off = ((x.shape[1] + 8) * max(p / 2, 1.0) + 8) * _EPS
    step = max(1, _TILE_ITEMS // len(y))

    def work(first: int, stop: int) -> None:
        for begin in range(first, stop, step):
            part = x[begin : min(begin + step, stop)]
            cost = np.zeros((len(part), len(y)))
            for k in range(x.shape[1]):
                cost += np.square(part[:, k, None] - y[:, k])
            cost **= p / 2
            # Pairs that may be the one that decides.
            room = 2 * off * cost + 2 * _EPS * np.abs(g)
            value = cost - g
            row, column = np.nonzero(value - room <= (value + room).min(axis=1)[:, None])
            exact = accurate_costs(part[row], y[column], p)
            certain = exact * (1 - rounding(p) - _EPS) - g[column]
            certain -= _EPS * np.abs(certain)
            low = np.full(len(part), np.inf)
            np.minimum.at(low, row, certain)
            least[begin : begin + len(part)] = low

    share_rows(len(x), work)
    return least


def least_slack_on(place: Any, x: FloatArray, y: FloatArray, p: float, g: FloatArray) -> FloatArray:
    """As :func:`least_slack`, by a device of torch, which may leave some roundings more.

    All squares come from products, less all that those can be off. The pair that seems to decide is worked out
    from its difference, and counts where no other one may be below it. Elsewhere all pairs are.
    """
    torch, dim = sys.modules["torch"], x.shape[1]
    points = [torch.as_tensor(np.ascontiguousarray(c), device=place) for c in (x, y)]
    price = -torch.as_tensor(g, device=place)
    # Differences from the middle are rounded by their own size, and so are sums and products of them.
    a, b = (c - points[1].mean(dim=0) for c in points)
    square_a, square_b = (c.square().sum(dim=1) for c in (a, b))
    room = 4 * (dim + 16) * _EPS * (square_a + square_b.max() + price.abs().max())
    least, is_sure = torch.empty_like(square_a), torch.empty_like(square_a, dtype=torch.bool)
    step = max(1, _DEVICE_ITEMS // len(y))
    for first in range(0, len(x), step):
        rows = slice(first, first + step)
        if p == 2:
            values = torch.addmm(square_b + price, a[rows], b.T, alpha=-2.0)
            below = square_a[rows] - room[rows]
        else:
            squares = torch.addmm(square_b, a[rows], b.T, alpha=-2.0)
            squares += (square_a[rows] - room[rows])[:, None]
            values = squares.clamp_(min=0).pow_(p / 2).mul_(1 - 32 * p * _EPS).add_(price)
            below = -room[rows]
        at = values.argmin(dim=1)
        values.scatter_(1, at[:, None], math.inf)
        least[rows] = _certain(points[0][rows] - points[1][at], p) + price[at]
        is_sure[rows] = least[rows] <= values.amin(dim=1) + below
    for part in (~is_sure).nonzero()[:, 0].split(max(1, step // dim)):
        gaps = points[0][part, None] - points[1]
        least[part] = (_certain(gaps, p) + price).amin(dim=1)
    certain: FloatArray = (least - 2 * _EPS * least.abs()).cpu().numpy()
    return certain


def _certain(differences: Any, p: float) -> Any:
    """Lower bounds on the p-th powers of the lengths of differences, in torch."""
    off = (differences.shape[-1] + 8) * max(p / 2, 1.0) + 8
    return differences.square().sum(dim=-1) ** (p / 2) * (1 - off * _EPS)


def lower_bound(x: Cloud, y: Cloud, p: float, g: FloatArray, place: Any = None) -> float:
    """What potentials `g (m,)` of y prove about the least cost, whatever they are, by a device if given."""
    middle = float(np.median(g))
    g = g - middle
    slack = least_slack if place is None else functools.partial(least_slack_on, place)
    f = slack(x.points, y.points, p, g)
    a, b = _weights(x), _weights(y)
    value = math.fsum(a * f) / math.fsum(a) + math.fsum(b * g) / math.fsum(b)
    return value - 2 * _EPS * (math.fsum(a * np.abs(f)) + math.fsum(b * np.abs(g)))


def upper_bound(
    x: Cloud, y: Cloud, p: float, ix: IntArray, iy: IntArray, mass: FloatArray, total: int
) -> float:
    """What a coupling proves about the least cost, whatever it is; points are at most 1 apart.

    Masses are shares of the whole number `total`, if it fits a float: then they are added up as whole numbers.
    Mass that is missing at a point or too much may travel as far as 1.
    """
    if mass.min() < 0:
        return math.inf
    cost = math.fsum(mass * accurate_costs(x.points[ix], y.points[iy], p)) * (1 + rounding(p) + 2 * _EPS)
    return cost + sum(_off_mass(*side, mass, total) for side in ((x, ix), (y, iy)))


def _weights(cloud: Cloud) -> FloatArray:
    return np.full(cloud.n, 1 / cloud.n) if cloud.weights is None else np.asarray(cloud.weights)


def _off_mass(cloud: Cloud, index: IntArray, mass: FloatArray, total: int) -> float:
    """How much mass of a coupling is not where the cloud has it: exact, and rounded once."""
    is_whole = total <= _LARGEST_WHOLE
    if is_whole:
        whole = np.rint(mass * total)
        is_whole = bool((np.abs(mass * total - whole) <= 2 * _EPS * whole).all())
        mass = whole if is_whole else mass
    # Fractions of floats are exact, and so are their sums.
    moved, unit = [Fraction(0)] * cloud.n, total if is_whole else 1
    for i, part in zip(index.tolist(), mass.tolist(), strict=True):
        moved[i] += Fraction(part)
    held = [Fraction(1, cloud.n)] * cloud.n
    if cloud.weights is not None:
        held = [Fraction(weight) for weight in _weights(cloud).tolist()]
    return float(sum(abs(part / unit - share) for part, share in zip(moved, held, strict=True)))
