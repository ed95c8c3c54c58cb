"""Directions along which two clouds differ most, found by ascent."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, cast

import numpy as np

from orthoslice.backend.arrays import NO_GRADIENTS, SAMPLES, Array, HostArray, Key, normals
from orthoslice.clouds.ready import ReadyCloud, with_masses
from orthoslice.costs.lines import sorted_scores, sorted_slopes
from orthoslice.costs.weighted import weighted_slopes
from orthoslice.couplings.coupling import coupling_bytes
from orthoslice.directions.base import DenseDirections

# Searches use at most _SEARCHED points of each cloud, from _STARTS starts; the best is refined on all points.
_SEARCHED = 4096
_STARTS = 8

# Only the _AXES axes with the largest scores are candidates for starts.
_AXES = 64
_SEARCH_STEPS, _LAST_STEPS = 40, 8

# An ascent ends when a step gains at most _GAIN times the score, or when even _SHORTEST_STEP gains nothing.
_GAIN = 1e-4
_SHORTEST_STEP = 2.0**-8

# If the part of a unit row orthogonal to the basis is no longer than this, it is rounding.
_LEAST_LENGTH = 1e-6

# Coordinates that are multiplied by weights at a time.
_AVERAGED = 1 << 18


class Found(NamedTuple):
    """A unit direction and W_p^p of the clouds along it."""

    theta: HostArray
    score: float


def line_scores(x: ReadyCloud, y: ReadyCloud, p: float, px: HostArray, py: HostArray) -> HostArray:
    """W_p^p of clouds on lines, `(slices,)`, from projections `(slices, n)` that may be overwritten."""
    if x.weights is None and y.weights is None:
        scores = cast(HostArray, sorted_scores(px, py, p))
    else:
        scores, *_ = cast(Any, weighted_slopes)(px, py, x, y, p, 1.0, False, NO_GRADIENTS)
    return scores


class Landscape(NamedTuple):
    """W_p^p of two clouds on the host as a function of the direction."""

    x: ReadyCloud
    y: ReadyCloud
    p: float
    memory: int

    def scores(self, theta: HostArray) -> HostArray:
        """W_p^p along unit rows `theta (slices, dim)`, as many at a time as the memory holds."""
        step = max(1, self.memory // (2 * coupling_bytes(self.x, self.y)))
        parts = [theta[first : first + step] for first in range(0, len(theta), step)]
        return np.concatenate([line_scores(self.x, self.y, self.p, *self._project(part)) for part in parts])

    def slope(self, theta: HostArray) -> HostArray:
        """The gradient of W_p^p by the direction `theta (dim,)`, with the coupling held fixed."""
        slopes: Sequence[Array]
        px, py = self._project(theta[None])
        if self.x.weights is None and self.y.weights is None:
            _, *slopes = sorted_slopes(px, py, self.p, 1.0)
        else:
            _, slopes, _ = weighted_slopes(
                px, py, self.x, self.y, self.p, 1.0, False, (True, True, False, False)
            )
        parts = [
            cast(HostArray, s)[0].astype(c.dtype, copy=False) @ c.points
            for s, c in zip(slopes, self[:2], strict=True)
        ]
        total: HostArray = np.asarray(parts[0] + parts[1], dtype=np.float64)
        return total

    def _project(self, theta: HostArray) -> tuple[HostArray, HostArray]:
        px, py = (c.project(DenseDirections(theta), slice(None), widely=True) for c in (self.x, self.y))
        return cast(HostArray, px), cast(HostArray, py)


def most_different(land: Landscape, drawn: HostArray, on_axes: HostArray, count: int, key: Key) -> list[Found]:
    """Mutually orthogonal directions, `count` of them or `dim`, each with the largest W_p^p that was found.

    Searches start from the best of `drawn` directions, the axes with the largest scores `on_axes (dim,)` and
    the difference of the means, made orthogonal to the directions found before and scored on a subsample. On
    all points a direction scores at least as much as its best start, and the first one as the best axis.
    """
    x, y = land.x, land.y
    few = Landscape(*with_masses(*(_some_of(c, key, k) for k, c in enumerate((x, y)))), land.p, land.memory)
    means = [_mean(c) for c in (x, y)]
    best_axes = np.argsort(-on_axes, kind="stable")[:_AXES]
    axes = (best_axes[:, None] == np.arange(x.dim)).astype(np.float64)
    pool = np.concatenate([axes, drawn, (means[1] - means[0])[None]])
    found: list[Found] = []
    for k in range(min(count, x.dim)):
        basis = np.array([f.theta for f in found]).reshape(-1, x.dim)
        starts = _freed(pool, basis)
        starts = starts[np.argsort(-few.scores(starts), kind="stable")[:_STARTS]]
        searched = [climb(few, start, basis, _SEARCH_STEPS).theta for start in starts]
        candidates = np.array([*searched, starts[0], *(axes[:1] if k == 0 else ())])
        found.append(climb(land, candidates[np.argmax(land.scores(candidates))], basis, _LAST_STEPS))
    return found


def _mean(cloud: ReadyCloud) -> HostArray:
    """The weighted mean of a cloud, a few rows at a time to save memory."""
    if cloud.weights is None:
        return np.asarray(np.mean(cloud.points, axis=0))
    step = max(1, _AVERAGED // cloud.dim)
    parts = (slice(first, first + step) for first in range(0, cloud.n, step))
    return np.asarray(
        sum(cloud.weights[part] @ cloud.points[part] for part in parts) / cast(HostArray, cloud.weights).sum()
    )


def climb(land: Landscape, start: HostArray, basis: HostArray, most_steps: int) -> Found:
    """A direction that is at least as good as the start, and orthogonal to the rows of the basis.

    A step goes from theta to `(1 - s) theta + s gradient`, normalised, for the first s = 1, 1/2, 1/4, ... that
    raises the score. With fixed couplings and p = 2, s = 1 is a step of the power method.
    """
    best = Found(start, float(land.scores(start[None])[0]))
    for _ in range(most_steps):
        slope = _freed(land.slope(best.theta)[None], basis)
        if not len(slope):
            break
        better = _better(land, best, slope[0], basis)
        if better is None:
            break
        gain, best = better.score - best.score, better
        if gain <= _GAIN * best.score:
            break
    return best


def _better(land: Landscape, best: Found, towards: HostArray, basis: HostArray) -> Found | None:
    step = 1.0
    while step >= _SHORTEST_STEP:
        # Halfway to the opposite direction the sum is 0, and `_freed` drops it.
        for theta in _freed(((1 - step) * best.theta + step * towards)[None], basis):
            score = float(land.scores(theta[None])[0])
            if score > best.score:
                return Found(theta, score)
        step /= 2
    return None


def _freed(rows: HostArray, basis: HostArray) -> HostArray:
    """The rows made orthogonal to an orthonormal basis, and of unit length; rows in its span are dropped."""
    lengths = np.linalg.norm(rows, axis=1, keepdims=True)
    rows = rows[lengths[:, 0] > 0] / lengths[lengths[:, 0] > 0]
    # Twice: after the first time, rounding still matters in rows that nearly lie in the span.
    for _ in range(2):
        rows = rows - (rows @ basis.T) @ basis
        lengths = np.linalg.norm(rows, axis=1, keepdims=True)
        rows = rows[lengths[:, 0] > _LEAST_LENGTH] / lengths[lengths[:, 0] > _LEAST_LENGTH]
    return rows


def _some_of(cloud: ReadyCloud, key: Key, which: int) -> ReadyCloud:
    """The cloud, or `_SEARCHED` random points of positive weight if it has more points."""
    if cloud.n <= _SEARCHED:
        return cloud
    ranks = cast(HostArray, normals(key.fold(which, SAMPLES), cloud.n, 1, np.dtype(np.float64))).reshape(-1)
    if cloud.weights is not None:
        ranks = np.where(cloud.weights > 0, ranks, np.inf)
    chosen = np.sort(np.argsort(ranks)[:_SEARCHED])
    weights = (
        None if cloud.weights is None else cloud.weights[chosen] / cast(HostArray, cloud.weights)[chosen].sum()
    )
    return ReadyCloud(cloud.points[chosen], weights)
