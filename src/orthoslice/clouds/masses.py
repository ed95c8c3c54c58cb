"""Weights as integers, whose sums are exact in any order."""

from __future__ import annotations

import math
from typing import NamedTuple

from orthoslice.backend.arrays import Array, at_rank, detach, device, namespace, wide_float, wide_int
from orthoslice.clouds.cloud import Cloud


def total_mass(like: Array) -> int:
    """What the integer masses of a cloud sum to."""
    return 1 << (62 if wide_int(like) == namespace(like).int64 else 30)


def integer_masses(cloud: Cloud) -> Array:
    """The weights as integers that sum exactly to 2**62 (2**30 where the library has no 64-bit integers).

    Sums of integers are exact in any order, so the cumulative masses of both clouds end at the same number.
    """
    xp = namespace(cloud.points)
    wide, total = wide_float(cloud.points), total_mass(cloud.points)
    integer = wide_int(cloud.points)
    weights = cloud.weights
    if weights is None:
        weights = xp.ones((cloud.n,), dtype=wide, device=device(cloud.points))
    weights = xp.astype(detach(weights), wide)
    mass = rounded_masses(weights / xp.sum(weights, axis=-1, keepdims=True) * total)
    left = total - xp.sum(mass, axis=-1, keepdims=True, dtype=integer)
    # The largest mass takes what rounding leaves over, which is negligible beside it.
    place = at_rank(xp.arange(cloud.n, device=device(mass)), mass.ndim)
    largest = xp.astype(place == xp.argmax(mass, axis=-1, keepdims=True), integer)
    return mass + largest * left


def rounded_masses(exact: Array) -> Array:
    """Masses `(..., n)` of the wide type rounded to integers; no cumulative sum is off by more than one."""
    xp, integer = namespace(exact), wide_int(exact)
    whole = xp.floor(exact)
    # Fractions are handed on from point to point until they make a unit: no weight is off by more than one.
    carried = xp.floor(xp.cumulative_sum(exact - whole, axis=-1, include_initial=True))
    units = xp.maximum(xp.diff(carried, axis=-1), xp.zeros_like(exact))
    return xp.astype(whole, integer) + xp.astype(units, integer)


class Masses(NamedTuple):
    """The weights of two clouds as integers of one sum."""

    x: Array
    """`(..., n)`"""
    y: Array
    """`(..., m)`"""
    total: int


def shared_masses(x: Cloud, y: Cloud) -> Masses:
    """Masses of both clouds; without weights they are as small as can be, and exact.

    Examples
    --------
    >>> import numpy as np
    >>> shared_masses(Cloud(np.zeros((2, 1))), Cloud(np.zeros((3, 1))))
    Masses(x=array([3, 3]), y=array([2, 2, 2]), total=6)
    """
    xp, total, common = namespace(x.points), total_mass(x.points), math.lcm(x.n, y.n)
    if x.weights is None and y.weights is None and common <= total:
        like = {"dtype": wide_int(x.points), "device": device(x.points)}
        own_x, own_y = (xp.full((c.n,), common // c.n, **like) for c in (x, y))
        return Masses(own_x, own_y, common)
    return Masses(integer_masses(x), integer_masses(y), total)
