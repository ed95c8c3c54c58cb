"""Directions along which two clouds differ most, found by ascent."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, cast

import numpy as np

from orthoslice.backend.arrays import NO_GRADIENTS, SAMPLES, STEPS, Array, HostArray, Key, normals
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

# The last steps are random, _POLISH_ROWS at a time, between these lengths; not for more than _POLISH_TURNS
# times, or as many as go through _POLISHED points each way.
_POLISH_ROWS, _POLISH_TURNS, _POLISHED = 16, 200, 1 << 22
_POLISH_LENGTHS = (2.0**-4, 2.0**-30)

# Directions in which spreads differ: how many, and how many turns of subspace iteration they get.
_SPREAD_ROWS, _SPREAD_TURNS = 8, 16

# If the part of a unit row orthogonal to the basis is no longer than this, it is rounding.
_LEAST_LENGTH = 1e-6

# Coordinates that are multiplied by weights at a time.
_AVERAGED = 1 << 18


class Found(NamedTuple):
    """A unit direction and W_p^p of the clouds along it."""

    theta: HostArray
    score: float
    reached: tuple[float, ...] = ()
    """Where several starts were tried: W_p^p at the end of each ascent, on the points that were searched."""


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

    def on_axes(self) -> HostArray:
        """W_p^p of every coordinate alone, `(dim,)`."""
        dim = self.x.dim
        step = max(1, self.memory // (2 * coupling_bytes(self.x, self.y)))
        parts = []
        for first in range(0, dim, step):
            columns = slice(first, min(first + step, dim))
            if self.x.has_table and self.y.has_table:
                px, py = (np.array(c.points[:, columns].T, dtype=np.float64, order="C") for c in self[:2])
            else:
                px, py = self._project(np.eye(columns.stop - first, dim, first))
            parts.append(line_scores(self.x, self.y, self.p, px, py))
        return np.concatenate(parts)

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


class Effort(NamedTuple):
    """How long a search goes on."""

    starts: int = _STARTS
    last_steps: int = _LAST_STEPS
    gain: float = _GAIN
    polished: bool = False
    """Whether the last word is that of :func:`polish`."""


_QUICK = Effort()


def most_different(
    land: Landscape,
    drawn: HostArray,
    on_axes: HostArray,
    count: int,
    key: Key,
    effort: Effort = _QUICK,
    known: Sequence[Found] = (),
) -> list[Found]:
    """Mutually orthogonal directions, `count` of them or `dim`, each with the largest W_p^p that was found.

    Those that are `known` come first. Searches start from the best of `drawn` directions, the axes with the
    largest scores `on_axes (dim,)` and the difference of the means, made orthogonal to the directions found
    before and scored on a subsample. On all points a direction scores at least as much as its best start, and
    the first one as the best axis.
    """
    x, y = land.x, land.y
    few = Landscape(*with_masses(*(_some_of(c, key, k) for k, c in enumerate((x, y)))), land.p, land.memory)
    means = [_mean(c) for c in (x, y)]
    best_axes = np.argsort(-on_axes, kind="stable")[:_AXES]
    axes = (best_axes[:, None] == np.arange(x.dim)).astype(np.float64)
    pool = np.concatenate([axes, drawn, (means[1] - means[0])[None]])
    found = [*known]
    for k in range(len(found), min(count, x.dim)):
        basis = np.array([f.theta for f in found]).reshape(-1, x.dim)
        starts = _freed(pool, basis)
        starts = starts[np.argsort(-few.scores(starts), kind="stable")[: effort.starts]]
        searched = [climb(few, start, basis, _SEARCH_STEPS) for start in starts]
        candidates = np.array([*(s.theta for s in searched), starts[0], *(axes[:1] if k == 0 else ())])
        best = candidates[np.argmax(land.scores(candidates))]
        top = climb(land, best, basis, effort.last_steps, effort.gain)
        if effort.polished:
            top = polish(land, top, basis, key.fold(k, STEPS))
        found.append(top._replace(reached=tuple(s.score for s in searched)))
    return found


def spread_directions(land: Landscape, key: Key) -> HostArray:
    """Directions along which covariances differ most, orthonormal rows, by subspace iteration.

    Where means are alike and there are many dimensions, those that were drawn hardly see one that differs.
    """
    dim = land.x.dim
    means = [_mean(c) for c in (land.x, land.y)]
    drawn = normals(key.fold(0, STEPS), min(_SPREAD_ROWS, dim), dim, np.dtype(np.float64))[0]
    rows: HostArray = np.linalg.qr(drawn.T)[0].T
    for _ in range(_SPREAD_TURNS):
        parts = []
        for cloud, mean in zip(land[:2], means, strict=True):
            weights = 1 / cloud.n if cloud.weights is None else cloud.weights
            projected = cast(HostArray, cloud.project(DenseDirections(rows), slice(None), widely=True))
            shares = cast(HostArray, weights) * (projected - (rows @ mean)[:, None])
            parts.append(np.stack([s.astype(cloud.dtype, copy=False) @ cloud.points for s in shares]))
            parts[-1] = parts[-1] - shares.sum(axis=1)[:, None] * mean
        rows = np.linalg.qr((parts[0] - parts[1]).T)[0].T
    return rows


def _mean(cloud: ReadyCloud) -> HostArray:
    """The weighted mean of a cloud, a few rows at a time to save memory."""
    if cloud.weights is None:
        return np.asarray(np.mean(cloud.points, axis=0))
    step = max(1, _AVERAGED // cloud.dim)
    parts = (slice(first, first + step) for first in range(0, cloud.n, step))
    return np.asarray(
        sum(cloud.weights[part] @ cloud.points[part] for part in parts) / cast(HostArray, cloud.weights).sum()
    )


def climb(
    land: Landscape, start: HostArray, basis: HostArray, most_steps: int, least_gain: float = _GAIN
) -> Found:
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
        if gain <= least_gain * best.score:
            break
    return best


def polish(land: Landscape, best: Found, basis: HostArray, key: Key) -> Found:
    """A direction that is at least as good, by random steps that get shorter where none of them gains.

    Couplings change at maxima, mostly: there the score has a ridge that no slope leads along.
    """
    length = _POLISH_LENGTHS[0]
    for turn in range(max(2, min(_POLISH_TURNS, _POLISHED // (land.x.n + land.y.n)))):
        drawn = normals(key.fold(turn, SAMPLES), _POLISH_ROWS, land.x.dim, np.dtype(np.float64))[0]
        sides = _freed(cast(HostArray, drawn), np.concatenate([basis, best.theta[None]]))
        if not len(sides):
            break
        tried = _freed(best.theta + length * sides, basis)
        scores = land.scores(tried)
        top = int(np.argmax(scores))
        if scores[top] > best.score:
            best = Found(tried[top], float(scores[top]))
            continue
        length /= 2
        if length < _POLISH_LENGTHS[1]:
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
