"""Pairs by auction, where that takes about as long as rounds of groups and ends nearer the optimum."""

from __future__ import annotations

import math
from typing import cast

import numpy as np

from orthoslice.applications.match.regroup import MassPairs
from orthoslice.backend.array_types import FloatArray, IntArray
from orthoslice.backend.arrays import Array
from orthoslice.backend.kernels import numba_refusal
from orthoslice.clouds.cloud import Cloud
from orthoslice.clouds.ready import ReadyCloud

# The cost is above the least one by about this share at most. Less saves little time.
_RTOL = 1e-3

# Larger powers leave few digits of what most pairs cost.
_LARGEST_POWER = 4.0

# Bytes a point beside its coordinates, and a coordinate. More than _MOST_BYTES are not used.
_POINT_BYTES, _COORDINATE_BYTES, _MOST_BYTES = 1000, 40, 256_000_000
# The part of the memory that an auction takes for all costs at most.
_TABLE_SHARE = 0.8


def auction_refusal(
    x: ReadyCloud, y: ReadyCloud, p: float, most: int, memory: int, *, has_table: bool = False
) -> str | None:
    """Why an auction is not to find the pairs of clouds, of up to `most` points each; None if it is.

    `has_table` says that it is too slow unless all costs are in memory.
    """
    if max(x.n, y.n) > most:
        return f"it is slower above {most} points"
    if p > _LARGEST_POWER:
        return f"costs to a power above {_LARGEST_POWER:g} round too much"
    table = 8 * x.n * y.n if has_table else 0
    needed = table + (x.n + y.n) * (_POINT_BYTES + _COORDINATE_BYTES * x.dim)
    if min(memory, _MOST_BYTES) < max(needed, table / _TABLE_SHARE):
        return "there is too little memory"
    return numba_refusal()


def auction_partners(x: ReadyCloud, y: ReadyCloud, p: float, memory: int) -> IntArray:
    """The partner in y of every point of x `(n,)`: a permutation whose cost is within 0.1% of the least one.

    Examples
    --------
    >>> from orthoslice.clouds.cloud import Cloud
    >>> from orthoslice.clouds.ready import make_ready
    >>> x, y = make_ready(Cloud(np.array([[0.0], [3.0]])), Cloud(np.array([[1.0], [2.0]])), for_ties=True)
    >>> auction_partners(x, y, 2.0, 10**6).tolist()
    [0, 1]
    """
    from orthoslice.exact.auction import solve  # loads numba
    from orthoslice.exact.certificate import Problem
    from orthoslice.exact.simplex import Limits

    clouds = [cast(FloatArray, c.points) for c in (x, y)]
    low, high = (np.array([extreme(c, axis=0) for c in clouds]) for extreme in (np.min, np.max))
    # No two points are farther apart than 1.
    unit = math.frexp(float((high.max(axis=0) - low.min(axis=0)).max()) * math.sqrt(x.dim))[1]
    ones = np.ones(x.n, dtype=np.int64)
    problem = Problem(np.ldexp(clouds[0], -unit), np.ldexp(clouds[1], -unit), ones, ones, p)
    placed = solve(problem, Limits(1 - (1 + _RTOL) ** -p, math.inf), min(memory, _MOST_BYTES)).placed
    partner = np.empty_like(ones)
    partner[placed.ix] = placed.iy
    return partner


def auction_pairs(x: ReadyCloud, y: ReadyCloud, p: float, memory: int) -> MassPairs:
    """A coupling of clouds with weights or of unequal sizes whose cost is within 0.1% of the least one."""
    from orthoslice.exact.transport import Effort, transport_clouds

    effort = Effort(_RTOL, None, min(memory, _MOST_BYTES), False)
    clouds = [Cloud(c.points, None if c.weights is None else _shares(c.weights)) for c in (x, y)]
    found = transport_clouds(clouds[0], clouds[1], p, effort).coupling
    return MassPairs(found.ix, found.iy, found.mass)


def _shares(weights: Array) -> FloatArray:
    """Weights whose sum is 1 to the last digit."""
    values: FloatArray = np.asarray(weights, dtype=np.float64)
    return values / math.fsum(values.tolist())
