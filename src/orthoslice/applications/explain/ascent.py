"""Directions along which two clouds differ most, found by ascent."""

from __future__ import annotations

from typing import Any, NamedTuple, TypeAlias

import numpy as np

from orthoslice.backend.arrays import NO_GRADIENTS, SAMPLES, Stream, normals
from orthoslice.clouds.ready import ReadyCloud, with_masses
from orthoslice.costs.lines import sorted_scores, sorted_slopes
from orthoslice.costs.weighted import weighted_slopes
from orthoslice.couplings.coupling import coupling_bytes
from orthoslice.directions.base import DenseDirections

Table: TypeAlias = np.ndarray[Any, Any]

# The search goes over so many points of each cloud, at most; what it finds is improved on all of them.
_SEARCHED = 4096
_STARTS = 8

# Axes among which starts are looked for: of a great many most do not matter.
_AXES = 64
_SEARCH_STEPS, _LAST_STEPS = 40, 8

# A step that gains less than this part of the score is the last one. Shorter steps than this are not tried.
_GAIN = 1e-4
_SHORTEST_STEP = 2.0**-8

# Of a start that lies in the span of what was found before, nothing but rounding is left.
_LEAST_LENGTH = 1e-6

# Coordinates that are multiplied by weights at a time.
_AVERAGED = 1 << 18


class Found(NamedTuple):
    """A unit direction and W_p^p of the clouds along it."""

    theta: Table
    score: float


def line_scores(x: ReadyCloud, y: ReadyCloud, p: float, px: Table, py: Table) -> Table:
    """W_p^p of clouds on lines, `(slices,)`, from projections `(slices, n)` that may be overwritten."""
    if x.weights is None and y.weights is None:
        scores: Table = sorted_scores(px, py, p)
    else:
        scores, *_ = weighted_slopes(px, py, x, y, p, 1.0, False, NO_GRADIENTS)
    return scores


class Landscape(NamedTuple):
    """W_p^p of two clouds on the host as a function of the direction."""

    x: ReadyCloud
    y: ReadyCloud
    p: float
    memory: int

    def scores(self, theta: Table) -> Table:
        """Of unit rows `theta (slices, dim)`, as many at a time as the memory holds."""
        step = max(1, self.memory // (2 * coupling_bytes(self.x, self.y)))
        parts = [theta[first : first + step] for first in range(0, len(theta), step)]
        return np.concatenate([line_scores(self.x, self.y, self.p, *self._project(part)) for part in parts])

    def slope(self, theta: Table) -> Table:
        """The gradient by the direction `theta (dim,)`, couplings as they are."""
        px, py = self._project(theta[None])
        if self.x.weights is None and self.y.weights is None:
            _, *slopes = sorted_slopes(px, py, self.p, 1.0)
        else:
            _, slopes, _ = weighted_slopes(
                px, py, self.x, self.y, self.p, 1.0, False, (True, True, False, False)
            )
        parts = [s[0].astype(c.dtype, copy=False) @ c.points for s, c in zip(slopes, self[:2], strict=True)]
        total: Table = np.asarray(parts[0] + parts[1], dtype=np.float64)
        return total

    def _project(self, theta: Table) -> tuple[Table, Table]:
        px, py = (c.project(DenseDirections(theta), slice(None), widely=True) for c in (self.x, self.y))
        return px, py


def most_different(land: Landscape, drawn: Table, on_axes: Table, count: int, stream: Stream) -> list[Found]:
    """Mutually orthogonal directions, `count` of them or `dim`, each with the largest W_p^p that was found.

    Searches start from the best of `drawn` directions, the axes with the largest scores `on_axes (dim,)` and
    the difference of the means, freed of what was found before, as they are on some of the points. On all
    points no direction is worse than the best start, nor the first one than the best axis.
    """
    x, y = land.x, land.y
    few = Landscape(*with_masses(*(_some_of(c, stream, k) for k, c in enumerate((x, y)))), land.p, land.memory)
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


def _mean(cloud: ReadyCloud) -> Table:
    """Of points that may be too many to be multiplied by their weights all at once."""
    if cloud.weights is None:
        return np.asarray(np.mean(cloud.points, axis=0))
    step = max(1, _AVERAGED // cloud.dim)
    parts = (slice(first, first + step) for first in range(0, cloud.n, step))
    return np.asarray(sum(cloud.weights[part] @ cloud.points[part] for part in parts) / cloud.weights.sum())


def climb(land: Landscape, start: Table, basis: Table, most_steps: int) -> Found:
    """A direction that is at least as good as the start, and orthogonal to the rows of the basis.

    Steps go towards the gradient, all the way if that is better and half as far if not: where couplings stay
    as they are and p = 2, the whole way is a step of the power method.
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


def _better(land: Landscape, best: Found, towards: Table, basis: Table) -> Found | None:
    step = 1.0
    while step >= _SHORTEST_STEP:
        # Halfway to the opposite direction nothing is left.
        for theta in _freed(((1 - step) * best.theta + step * towards)[None], basis):
            score = float(land.scores(theta[None])[0])
            if score > best.score:
                return Found(theta, score)
        step /= 2
    return None


def _freed(rows: Table, basis: Table) -> Table:
    """Unit rows orthogonal to those of an orthonormal basis, without the rows of which nothing is left."""
    lengths = np.linalg.norm(rows, axis=1, keepdims=True)
    rows = rows[lengths[:, 0] > 0] / lengths[lengths[:, 0] > 0]
    # Twice, since the first time leaves a rounding that counts where little is left.
    for _ in range(2):
        rows = rows - (rows @ basis.T) @ basis
        lengths = np.linalg.norm(rows, axis=1, keepdims=True)
        rows = rows[lengths[:, 0] > _LEAST_LENGTH] / lengths[lengths[:, 0] > _LEAST_LENGTH]
    return rows


def _some_of(cloud: ReadyCloud, stream: Stream, which: int) -> ReadyCloud:
    """At most so many of its points, at random, of those that weigh something."""
    if cloud.n <= _SEARCHED:
        return cloud
    keys = normals(stream.fold(which, SAMPLES), cloud.n, 1, np.dtype(np.float64)).reshape(-1)
    if cloud.weights is not None:
        keys = np.where(cloud.weights > 0, keys, np.inf)
    chosen = np.sort(np.argsort(keys)[:_SEARCHED])
    weights = None if cloud.weights is None else cloud.weights[chosen] / cloud.weights[chosen].sum()
    return ReadyCloud(cloud.points[chosen], weights)
