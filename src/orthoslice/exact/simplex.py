"""Optimal couplings of clouds whose costs fit in memory, by the network simplex method."""

from __future__ import annotations

import math
import time
from typing import NamedTuple

import numpy as np

from orthoslice.backend.array_types import FloatArray, IntArray
from orthoslice.backend.stopping import stop_asked

# Numbers that the kernel looks at before it returns to see whether it shall stop: some hundredths of a second.
_PATIENCE = 1 << 24


class Placed(NamedTuple):
    """A coupling: `mass[k]` of the sum of all masses goes from `ix[k]` to `iy[k]`."""

    ix: IntArray
    iy: IntArray
    mass: IntArray


class Limits(NamedTuple):
    """When to stop: a bracket of W_p^p of this relative width, or a point in time (`time.monotonic`)."""

    width: float
    deadline: float

    @property
    def passed(self) -> bool:
        return stop_asked() or time.monotonic() > self.deadline


class Settled(NamedTuple):
    """A coupling, the price of every column that proves it, and whether it is the cheapest."""

    placed: Placed
    price: FloatArray
    is_done: bool


def _stride(n: int) -> int:
    """A step that comes to all of n rows, far from the last ones each time."""
    step = round(0.618 * n) + 1
    while math.gcd(step, n) > 1:
        step += 1
    return step


def settle(cost: FloatArray, a: IntArray, b: IntArray, limits: Limits, start: Settled | None = None) -> Settled:
    """The cheapest coupling of masses `a (n,)` and `b (m,)` with the same sum, for costs `(n, m)`.

    It takes few pivots from a coupling and prices that are nearly right, where there is such a `start`. What is
    found costs at most the rounding of potentials more than the least: a share of 2**-46 of their range.

    Examples
    --------
    >>> ones = np.ones(2, dtype=np.int64)
    >>> placed, price, is_done = settle(np.array([[1.0, 2.0], [0.0, 5.0]]), ones, ones, Limits(0.0, np.inf))
    >>> placed.iy.tolist(), is_done
    ([1, 0], True)
    """
    from orthoslice.backend.kernels.numba.simplex import carried, first_prices, first_tree, improve, row_minima

    n, m = cost.shape
    if start is None:
        # Rows that are far from all columns choose first.
        price, regret = first_prices(cost), np.empty(n)
        row_minima(cost, price, regret)
        tree = first_tree(cost, a, b, price, np.argsort(-regret))
    else:
        from orthoslice.backend.kernels.numba.basis import tree_of

        tree = tree_of(cost, start.price, *start.placed)
    state, pivots = np.array([0, 0, _stride(n)]), 1 + _PATIENCE // (n + m)
    while not (is_done := improve(cost, tree, state, pivots)):
        if limits.passed:
            break
    return Settled(Placed(*carried(tree, n)), tree.potential[n:], is_done)
