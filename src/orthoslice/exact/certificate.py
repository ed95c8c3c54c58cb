"""Proofs of Wasserstein distances: a coupling from above, potentials from below, both checked from scratch."""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from orthoslice.backend.array_types import FloatArray, IntArray
from orthoslice.backend.arrays import Operation, PlainWork
from orthoslice.backend.threads import default_workers, ordered_map
from orthoslice.clouds.cloud import Cloud
from orthoslice.clouds.lengths import pair_lengths

_EPS = float(np.finfo(np.float64).eps)
# Fewer rows than this are not worth a second thread.
_FEWEST_SHARED = 512
# Pairs at a time.
_PIECE = 1 << 17


class Problem(NamedTuple):
    """Points `x (n, dim)` and `y (m, dim)`, no two of which are farther apart than 1, and whole masses.

    `a (n,)` and `b (m,)` have the same sum. As shares of it they may be `off` from the true masses, in sum:
    those of x, and those of y.
    """

    x: FloatArray
    y: FloatArray
    a: IntArray
    b: IntArray
    p: float
    off: tuple[float, float] = (0.0, 0.0)

    @property
    def flipped(self) -> Problem:
        return Problem(self.y, self.x, self.b, self.a, self.p, self.off[::-1])


def share_rows(n: int, work: Callable[[int, int], None]) -> None:
    """Have threads work on ranges of rows, `work(first, stop)`."""
    workers = default_workers() if n >= _FEWEST_SHARED else 1
    cuts = np.linspace(0, n, workers + 1).astype(int).tolist()
    pieces = (functools.partial(work, *ends) for ends in itertools.pairwise(cuts))
    for _ in ordered_map(pieces, workers):
        pass


def transform(problem: Problem, price: FloatArray) -> FloatArray:
    """`min_j |x[i] - y[j]|^p + price[j]` of every point of x; costs are worked out a few at a time.

    Examples
    --------
    >>> ones = np.ones(2, dtype=np.int64)
    >>> problem = Problem(np.array([[0.0], [0.5]]), np.array([[0.25], [1.0]]), ones, ones, 1.0)
    >>> transform(problem, np.array([1.0, 0.0])).tolist()
    [1.0, 0.5]
    """
    return least_costs(problem, price)


least_costs: Operation[FloatArray] = Operation("least_costs")
"""least_costs(problem, price (m,)) -> (n,): what :func:`transform` returns."""


def _differences(problem: Problem, _: FloatArray) -> PlainWork:
    # NumPy goes through a coordinate of a pair in some 3 ns.
    return PlainWork(len(problem.x) * problem.y.size // 16, "float64")


@least_costs.implementation("numba", lambda *_: None, plain_work=_differences)
def _least_costs_numba(problem: Problem, price: FloatArray) -> FloatArray:
    from orthoslice.backend.kernels.numba.auction import Costs, best_columns

    x, y_columns = np.ascontiguousarray(problem.x), np.ascontiguousarray(problem.y.T)
    costs, out = Costs(x, y_columns, problem.p, np.empty((0, 0))), np.empty(len(x))
    share_rows(len(out), lambda first, stop: best_columns(costs, price, first, stop, out))
    return out


@least_costs.implementation("reference", lambda *_: None)
def _least_costs(problem: Problem, price: FloatArray) -> FloatArray:
    step, out = max(1, _PIECE // len(price)), np.empty(len(problem.x))
    for first in range(0, len(out), step):
        squares = squared_lengths(problem.x[first : first + step], problem.y)
        out[first : first + step] = np.min(squares ** (problem.p / 2) + price, axis=1)
    return out


def squared_lengths(x: FloatArray, y: FloatArray) -> FloatArray:
    """|x - y|^2 for all pairs of points `(n, dim)` and `(m, dim)`."""
    total = np.zeros((len(x), len(y)))
    for k in range(x.shape[1]):
        gap = np.subtract.outer(x[:, k], y[:, k])
        gap *= gap
        total += gap
    return total


def cost_rounding(problem: Problem) -> float:
    """The relative error of a cost."""
    dim: int = problem.x.shape[1]
    return ((dim + 8) * max(problem.p / 2, 1.0) + 8) * _EPS


def lost_cost(problem: Problem) -> float:
    """What a cost up to 1 may have lost to underflow: of coordinates, or of their squares."""
    dim: int = problem.x.shape[1]
    return 4 * problem.p * dim * 2.0**-510


def dual_value(problem: Problem, minima: FloatArray, price: FloatArray) -> float:
    """A lower bound on the least cost of a unit of mass: what prices prove, less all that was rounded.

    For any prices no coupling costs less than the mean of `min_j |x[i] - y[j]|^p + price[j]` less the mean
    price. `minima (n,)` are those numbers, or less, as the kernels work them out.
    """
    total, middle = float(problem.a.sum()), float(np.median(price))
    # A constant that goes from one side to the other changes nothing, and less is rounded near 0.
    u, v = minima - middle, price - middle
    # A column whose cost was rounded up, and that was overlooked for it, costs no more than this.
    largest = np.maximum(minima - price.min(), 0.0)
    rounding = cost_rounding(problem) * largest + 2 * _EPS * (np.abs(minima) + abs(middle))
    a, b = problem.a / total, problem.b / total
    value = math.fsum(np.concatenate([a * (u - rounding), -b * v]))
    slack = 8 * _EPS * (math.fsum(a * np.abs(u)) + math.fsum(b * np.abs(v)))
    slack += problem.off[0] * float(np.abs(u).max()) + problem.off[1] * float(np.abs(v).max())
    return value - slack - lost_cost(problem)


def line_potential(problem: Problem, ix: IntArray, iy: IntArray) -> FloatArray:
    """The potential of y on a line, or against a single point, from pairs in increasing order.

    Costs of neighbours along the coupling by order differ as much as the potentials do.
    """
    # Where points of both are used up at once, a pair (i, j + 1) without mass leads on to (i + 1, j + 1).
    here = pair_lengths(problem.x, problem.y, ix[:-1], iy[:-1]) ** problem.p
    over = pair_lengths(problem.x, problem.y, ix[:-1], iy[1:]) ** problem.p
    g = np.zeros(len(problem.y))
    np.add.at(g, iy[1:], over - here)
    return np.cumsum(g)


@dataclass(frozen=True, eq=False)
class Certificate:
    """What proves a distance: the problem, a coupling of it, and a potential of y.

    The points of `problem` are those of the `clouds` that weigh something, over ``2**exponent``. Potentials of
    y are found when they are first needed; they are those of the rows `at_y` of its cloud.
    """

    problem: Problem
    clouds: tuple[Cloud, Cloud]
    at_y: IntArray
    exponent: int
    find: Callable[[], FloatArray]
    place: Any = None
    """The GPU that works on all pairs, as torch names it; None for the host."""

    @functools.cached_property
    def g(self) -> FloatArray:
        """The potential of the points of y in `problem`."""
        return self.find()

    def lower(self) -> float:
        """A lower bound on W_p, from scratch."""
        return self.root(dual_value(self.problem, self._transform(self.problem, -self.g), -self.g), -1)

    def _transform(self, problem: Problem, price: FloatArray) -> FloatArray:
        if self.place is None:
            return transform(problem, price)
        from orthoslice.exact.on_device import transform_on

        return transform_on(self.place, problem, price)

    def upper(self, ix: IntArray, iy: IntArray, mass: FloatArray) -> float:
        """An upper bound on W_p, from scratch: what a coupling of rows of the clouds costs, rounded up."""
        x, y = (np.ldexp(c.points, -self.exponent) for c in self.clouds)
        if not any(self.problem.off) and self._are_equal(ix, iy):
            return 0.0
        cost = math.fsum(mass * pair_lengths(x, y, ix, iy) ** self.problem.p)
        # Mass that is off travels no farther than 1.
        cost = (
            cost * (1 + cost_rounding(self.problem)) + 1.001 * sum(self.problem.off) + lost_cost(self.problem)
        )
        return self.root(cost, 1)

    def root(self, cost: float, side: int) -> float:
        """The p-th root of a cost, rounded up or down, in the units of the user."""
        p = self.problem.p
        root = max(cost, 0.0) ** (1 / p) * (1 + side * 8 * _EPS)
        if side < 0 and root == 0:
            return 0.0
        try:
            return math.nextafter(math.ldexp(root, self.exponent), side * math.inf)
        except OverflowError:
            raise OverflowError("This distance may exceed the range of float64. Pass smaller units.") from None

    def potentials(self) -> tuple[FloatArray, FloatArray]:
        """Potentials of all points of both clouds, as shares of ``2**(p * exponent)``."""
        x, y = (np.ldexp(c.points, -self.exponent) for c in self.clouds)
        f = self._transform(self.problem._replace(x=x), -self.g)
        g = self._transform(self.problem._replace(x=y, y=x), -f)
        return f, g

    def verified(self, ix: IntArray, iy: IntArray, mass: FloatArray) -> tuple[float, float]:
        """The bounds on W_p that the potentials and a coupling prove, by other means than found them."""
        from orthoslice.exact.verification import lower_bound, upper_bound

        x, y = (Cloud(np.ldexp(c.points, -self.exponent), c.weights) for c in self.clouds)
        weights, p, lost = y.weights, self.problem.p, lost_cost(self.problem)
        cost = upper_bound(x, y, p, ix, iy, mass, int(self.problem.a.sum()))
        high = 0.0 if cost == 0 and self._are_equal(ix, iy) else self.root(cost + lost, 1)
        heavy = np.arange(y.n) if weights is None else np.flatnonzero(np.asarray(weights))
        if not np.array_equal(np.sort(self.at_y), heavy):
            return 0.0, high
        held = Cloud(y.points[self.at_y], None if weights is None else weights[self.at_y])
        return self.root(lower_bound(x, held, p, self.g, self.place) - lost, -1), high

    def _are_equal(self, ix: IntArray, iy: IntArray) -> bool:
        """Whether all pairs are of points that are equal as given: then no cost was lost to underflow."""
        x, y = self.clouds
        return bool((x.points[ix] == y.points[iy]).all())
