"""Steps that bring a cloud nearer to others; their length has a formula, so there is no learning rate.

With its couplings held fixed, the sliced objective `sum_j w_j SW_2^2(x, y_j)` is quadratic in every point of
x, with one matrix for all of them: the mean `A` of `theta theta^T` over the directions. A step goes to the
minimum of that quadratic, `x - gradient A^-1 / (2 a)` with `a` the weight of a point. Couplings are the best
ones on every line, so that the quadratic lies above the objective and touches it where the step begins: no
step raises the objective on its own directions. Orthonormal blocks have `A = I / dim`, and the step is slice
matching: every projection on a row of a block lands on its partners. PW prices couplings in full space, where
`A = I`.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, cast

import numpy as np

from orthoslice.backend.arrays import STEPS, Array, HostArray, Key, device, library, namespace, to_numpy
from orthoslice.clouds.cloud import Cloud
from orthoslice.costs.pools import mean_shortening
from orthoslice.costs.scores import Sliced
from orthoslice.directions import Given
from orthoslice.estimates.driver import value_and_gradient
from orthoslice.estimates.request import Request

# The largest momentum: a step starts from x_k + momentum (x_k - x_(k-1)). With less the descent is slower, with
# more it gathers the noise of fresh directions (measured with .6, .8 and .9).
_MOMENTUM = 0.8

# With fresh directions the objective has settled when its mean over the last _WINDOW steps is at least
# 1 - _LEAST_FALL times its mean over the _WINDOW steps before.
_WINDOW = 15
_LEAST_FALL = 0.02

# Averaged steps from which on `move / sqrt(averaged)` is taken for the error of their mean.
_FEWEST_AVERAGED = 8

Callback = Callable[[int, Array, float], Any]
"""Called after every step with its number, the points, and the objective before it; True stops."""


@dataclass(frozen=True, eq=False)
class Objective:
    """The weighted mean of SW_2^2 or PW_2^2 to some clouds, and what a step needs of it."""

    request: Request
    clouds: Sequence[Cloud]
    weights: Sequence[float]
    seed: int
    fresh: bool
    """Whether every step has directions of its own."""

    @property
    def is_sliced(self) -> bool:
        return isinstance(self.request.score, Sliced)

    @property
    def never_rises(self) -> bool:
        """Whether no step can raise it."""
        return self.is_sliced and not self.fresh

    def evaluate(self, x: Cloud, step: int) -> tuple[Array, Array]:
        """The objective at x, and where a full step goes."""
        xp = namespace(x.points)
        key = self._key(step, x.points)
        value: Any
        gradient: Any
        value = gradient = 0.0
        for cloud, weight in zip(self.clouds, self.weights, strict=True):
            if weight > 0:
                part, slope = value_and_gradient(self.request, x, cloud, key)
                value, gradient = value + weight * part, gradient + weight * slope
        pull = gradient * (x.n / 2) if x.weights is None else _over_weights(gradient, x.weights) / 2
        inverse = self._inverse(step)
        if not isinstance(inverse, float):
            return value, x.points - pull @ xp.asarray(inverse, dtype=x.dtype, device=device(x.points))
        return value, x.points - inverse * pull

    def _key(self, step: int, like: Array) -> Key:
        key = Key.from_seed(self.seed, like)
        return key.fold(step, STEPS) if self.fresh else key

    def _inverse(self, step: int) -> HostArray | float:
        """The inverse of A, or the identity over A's largest eigenvalue, which is no larger."""
        if not self.is_sliced:
            return 1.0
        if self._has_whole_bases:
            return float(self._dim)
        if not self.fresh:
            return self._fixed_inverse
        # The inverse of a single draw's A would magnify noise along its small eigenvalues.
        return 1 / float(np.linalg.norm(self._second_moment(step), 2))

    @property
    def _dim(self) -> int:
        return self.clouds[0].dim

    @functools.cached_property
    def _has_whole_bases(self) -> bool:
        runs = self.request.layout.runs
        return len(runs) == 1 and self.request.sampler.is_basis(runs[0].rows, self._dim)

    @functools.cached_property
    def _fixed_inverse(self) -> HostArray:
        # A pseudo-inverse: points do not move within the null space of A, which no direction sees.
        inverse: HostArray = np.linalg.pinv(self._second_moment(0), rcond=1e-10, hermitian=True)
        return inverse

    def _second_moment(self, step: int) -> HostArray:
        """A of the directions of a step."""
        sampler, layout, dim = self.request.sampler, self.request.layout, self._dim
        if isinstance(sampler, Given):
            theta = to_numpy(sampler.theta).astype(np.float64)
            return theta.T @ theta / len(theta)
        key = self._key(step, np.zeros(1))
        total, first = np.zeros((dim, dim)), 0
        for count, rows in layout.runs:
            index = np.arange(first, first + count, dtype=np.int32)
            drawn = sampler.blocks(key, index, rows, dim, np.dtype(np.float64))
            theta = cast(HostArray, drawn.project(np.eye(dim), slice(0, count * rows)))
            weights = sampler.weights(rows, dim)
            total += theta.T @ (theta if weights is None else np.tile(weights, count)[:, None] * theta)
            first += count
        return total / layout.n_directions / mean_shortening(dim, sampler.ambient_dim(dim), 2)


def _over_weights(gradient: Array, weights: Array) -> Array:
    """`gradient / weights`, row by row; 0 for points of weight 0, which stay where they are."""
    xp = namespace(gradient)
    weights = xp.astype(weights, gradient.dtype)[:, None]
    heavy = weights > 0
    return xp.where(heavy, gradient / xp.where(heavy, weights, xp.ones_like(weights)), xp.zeros_like(gradient))


class Descended(NamedTuple):
    """The outcome of :func:`descend`."""

    points: Array
    value: float
    history: list[float]
    movement: list[float]
    error: float
    converged: bool


def descend(
    objective: Objective,
    x: Cloud,
    spread: float,
    n_steps: int,
    rtol: float,
    callback: Callback | None,
    advance: Callable[[int], None],
) -> Descended:
    """Move x down the objective until it has settled and points are within `rtol` spreads of their places.

    Steps have momentum (Nesterov's) until the objective has settled. For SW on fixed directions, a step that
    would raise the objective is dropped and the momentum is reset, so that the objective never rises.
    Otherwise the steps after settling are averaged: the k-th goes 1 / k of the way to its target. Steps of PW
    have no momentum, since they may raise PW. Nor have steps in one dimension: the first is the monotone map,
    and overshooting would let points cross.
    """
    has_momentum = objective.is_sliced and x.dim > 1
    points = before = x.points
    history: list[float] = []
    movement: list[float] = []
    in_a_row, averaged, error, converged = 0, 0, math.inf, False
    while len(movement) < n_steps and not converged:
        share = in_a_row / (in_a_row + 3) if has_momentum and not averaged else 0.0
        ahead = points + min(share, _MOMENTUM) * (points - before) if share else points
        value, move, target = _evaluate(objective, Cloud(ahead, x.weights), len(movement), spread)
        if objective.never_rises and history and value > history[-1]:
            converged = in_a_row == 0  # then it rose by rounding
            in_a_row, before = 0, points
            continue
        history.append(value)
        movement.append(move)
        averaged += averaged > 0
        before, points = points, ahead + (target - ahead) / max(averaged, 1)
        in_a_row += 1
        error = move / math.sqrt(max(averaged, 1))
        if objective.never_rises:
            # Steps shrink slowly: those after one of this length may add up to several times as much.
            converged = error <= rtol / 10
        elif averaged:
            converged = averaged >= _FEWEST_AVERAGED and error <= rtol
        else:
            converged = math.sqrt(value) <= rtol / 10 * spread  # on top of the target
            averaged = int(_has_settled(history))
        advance(1)
        stop = None if callback is None else callback(len(movement), points, value)
        if isinstance(stop, bool | np.bool_) and stop:
            break
    last, _, _ = _evaluate(objective, Cloud(points, x.weights), len(movement), spread)
    history.append(last)
    # While steps are averaged points hardly move and directions are independent: average the values too.
    value = math.fsum(history[-1 - averaged :]) / (1 + averaged)
    return Descended(points, value, history, movement, error, converged)


def _evaluate(objective: Objective, x: Cloud, step: int, spread: float) -> tuple[float, float, Array]:
    """The objective at x, how far a full step would move points, in spreads, and where to."""
    value: Any
    value, target = objective.evaluate(x, step)
    xp = namespace(target)
    moved = target - x.points
    # Both numbers in one transfer: the host waits once a step.
    both = to_numpy(xp.stack([value, xp.sqrt(xp.mean(xp.sum(moved * moved, axis=-1)))]))
    value, move = float(both[0]), float(both[1])
    if not math.isfinite(value):
        raise ValueError(
            "Clouds and their weights must be finite, and weights not negative and of sum 1; the objective "
            f"came out as {value} at step {step}. Move the arrays of {library(target)} to the host to be told "
            "which one is at fault."
        )
    return value, move / spread if spread else 0.0, target


def _has_settled(history: list[float]) -> bool:
    if len(history) < 2 * _WINDOW:
        return False
    new, old = (sum(part) for part in (history[-_WINDOW:], history[-2 * _WINDOW : -_WINDOW]))
    return new >= (1 - _LEAST_FALL) * old
