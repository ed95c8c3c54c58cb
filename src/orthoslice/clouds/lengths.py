"""Lengths of pairs and their power means on the host, right to the last digits whatever their scales."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from orthoslice.backend.array_types import FloatArray
from orthoslice.clouds.cloud import Cloud

# Numbers of a gather that is still quick.
_GATHER_ITEMS = 1 << 18
# Differences of coordinates below this fit float64, and so do their lengths in any dimension.
_LARGEST = 2.0**1000
_SHRINK = 100


def scaled_for_lengths(x: Cloud, y: Cloud) -> tuple[Cloud, Cloud, int]:
    """Float64 clouds whose differences do not overflow, and the power of two by which they were divided.

    Where that is not 0, coordinates below 2**-974 are rounded to multiples of it.

    Examples
    --------
    >>> scaled_for_lengths(Cloud(np.array([[1e308]])), Cloud(np.array([[-1e308]])))[2]
    100
    """
    if max(float(np.abs(c.points).max()) for c in (x, y)) < _LARGEST:
        return x, y, 0
    first, second = (Cloud(np.ldexp(c.points, -_SHRINK), c.weights) for c in (x, y))
    return first, second, _SHRINK


def pair_lengths(x: FloatArray, y: FloatArray, ix: NDArray[np.intp], iy: NDArray[np.intp]) -> FloatArray:
    """|x[ix[k]] - y[iy[k]]| for every pair k, to a relative error of `dim + 8` roundings.

    Differences come first and are right to one rounding. Each is divided by its largest coordinate before it is
    squared, so that nothing overflows, and nothing that counts underflows.

    Examples
    --------
    >>> pair_lengths(np.array([[3e-200, 0.0]]), np.array([[0.0, 4e-200]]), np.zeros(1, int), np.zeros(1, int))
    array([5.e-200])
    """
    lengths = np.empty(len(ix))
    step = max(1, _GATHER_ITEMS // x.shape[1])
    for first in range(0, len(ix), step):
        part = slice(first, first + step)
        difference = x[ix[part]] - y[iy[part]]
        largest = np.abs(difference).max(axis=1)
        difference /= np.where(largest == 0, 1.0, largest)[:, None]
        lengths[part] = largest * np.sqrt(np.vecdot(difference, difference))
    return lengths


def power_mean(lengths: FloatArray, mass: FloatArray, p: float) -> float:
    """The p-th root of `sum mass * lengths**p`, to a relative error of 16 roundings.

    Examples
    --------
    >>> power_mean(np.array([3e-200, 4e-200]), np.ones(2), 2)
    5e-200
    """
    largest = float(lengths.max())
    if largest == 0:
        return 0.0
    # An exact sum: its error does not grow with the number of terms.
    mean: float = math.fsum(mass * (lengths / largest) ** p) ** (1 / p)
    return largest * mean
