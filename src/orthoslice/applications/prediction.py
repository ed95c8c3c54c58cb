"""W_p of all pairs of clouds, predicted from SW_p, PW_p and a few exact ones, within certain bounds."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Any, NamedTuple, cast

import numpy as np

from orthoslice.applications.pairwise import Pairwise, PairwiseJob
from orthoslice.backend.arrays import HostArray, Key
from orthoslice.backend.progress import progress_bar
from orthoslice.backend.threads import ordered_map
from orthoslice.clouds.cloud import Cloud
from orthoslice.clouds.conditioning import rescaled
from orthoslice.costs.segments import order_segments, segment_costs, segment_space_costs
from orthoslice.directions import Sampler
from orthoslice.directions.base import dense_rows
from orthoslice.directions.walks import Piece, sweep_directions
from orthoslice.estimates.statistics import Statistics
from orthoslice.exact.transport import wasserstein

# Logarithms are taken of no smaller numbers.
_LEAST = 1e-150
# Singular values of features below this share of the largest are noise.
_COLLINEAR = 1e-3

# Bounds are rounded outwards by this many units in the last place for each coordinate.
_ROUNDED = 16


@dataclass(frozen=True, eq=False, repr=False)
class PredictedPairwise(Pairwise):
    """W_p of all pairs of clouds: exact for a few, predicted for the others, within certain bounds.

    Attributes
    ----------
    value, distance
        W_p^p and W_p of every pair, `(clouds, clouds)`: symmetric, 0 on the diagonal.
    lower, upper
        Bounds on W_p of every pair, certain to rounding; `distance` is between them.
    is_exact
        Which pairs were solved exactly, `(clouds, clouds)`.
    held_out
        For each of these with W > 0, how far the prediction from all others of them is off, relatively:
        ``distance / W - 1``.
    stderr, distance_stderr
        The root mean square of `held_out` times the distance: how far off predictions are typically; 0 for
        exact pairs.

    Examples
    --------
    >>> import numpy as np, orthoslice as osl
    >>> rng = np.random.default_rng(0)
    >>> clouds = [spread * rng.normal(size=(60, 2)) for spread in np.linspace(1, 3, 12)]
    >>> found = osl.pairwise(clouds, method="predicted", rng=0)
    >>> bool(((found.lower <= found.distance) & (found.distance <= found.upper)).all())
    True
    >>> bool(found.is_exact.all()), found.held_out.ndim
    (False, 1)
    """

    held_out: HostArray
    _bounds: HostArray
    """`(2, pairs)`"""
    _exact: HostArray
    """`(pairs,)`"""

    @property
    def lower(self) -> HostArray:
        return self._square(cast(HostArray, rescaled(self._bounds[0], self._scale, 1)))

    @property
    def upper(self) -> HostArray:
        return self._square(cast(HostArray, rescaled(self._bounds[1], self._scale, 1)))

    @property
    def is_exact(self) -> HostArray:
        return self._square(self._exact.astype(np.int8)) > 0

    def __repr__(self) -> str:
        error = _root_mean_square(self.held_out)
        return (
            f"{super().__repr__()[:-1]}; {int(self._exact.sum())} exact, others off by {error:.2g} typically)"
        )


class _Seen(NamedTuple):
    """What all directions say of the pairs, `(pairs,)` each, in units of W_p."""

    sliced: HostArray
    projected: HostArray
    lower: HostArray
    upper: HostArray


def predict_pairs(
    job: PairwiseJob,
    clouds: list[Cloud],
    labels: list[Hashable],
    scale: float,
    drawn: tuple[Sampler, Key, int | None],
    n_exact: int,
    progress: bool,
) -> PredictedPairwise:
    """W_p of all pairs, of which `n_exact` are solved."""
    sampler, key, seed = drawn
    seen = _look(job, clouds, scale, sampler, key, progress)
    chosen = _spread(seen, n_exact)
    i, j = np.triu_indices(len(clouds), 1)
    solved = np.empty(len(chosen))
    with progress_bar("exact pairs", len(chosen), progress) as advance:
        for k, pair in enumerate(chosen):
            x, y = clouds[i[pair]].points, clouds[j[pair]].points
            solved[k] = wasserstein(x, y, job.p).distance / scale
            advance(1)
    low, high = (np.copy(bound) for bound in (seen.lower, seen.upper))
    low[chosen] = high[chosen] = solved
    held_out = np.array([_off(seen, chosen, solved, k) for k in np.flatnonzero(solved).tolist()])
    if len(chosen) == job.n_pairs:
        found = solved[np.argsort(chosen)]
    else:
        found = np.clip(_fitted(seen, chosen, solved)(slice(None)), low, high)
    is_exact = np.isin(np.arange(job.n_pairs), chosen)
    value = found**job.p
    error = np.where(is_exact, 0, job.p * _root_mean_square(held_out) * value)
    return PredictedPairwise(
        name="W",
        p=job.p,
        labels=labels,
        n_directions=job.layout.n_directions,
        n_blocks=job.layout.n_units,
        directions=sampler,
        seed=seed,
        _pairs=Statistics(value, error, np.zeros_like(value), np.zeros_like(value)),
        _scale=scale,
        held_out=held_out,
        _bounds=np.stack([low, high]),
        _exact=is_exact,
    )


def _look(
    job: PairwiseJob, clouds: list[Cloud], scale: float, sampler: Sampler, key: Key, progress: bool
) -> _Seen:
    """Go over all directions."""
    layout, dim, p = job.layout, job.pool.dim, job.p
    workers, most = job.shared(sampler.ambient_dim(dim))
    pieces = sweep_directions(sampler, layout, key, dim, np.dtype(np.float64), most)
    theta, sums = [], np.zeros((layout.n_units, job.n_pairs))
    projected, cheapest, largest = np.zeros(job.n_pairs), np.full(job.n_pairs, np.inf), np.zeros(job.n_pairs)
    with progress_bar("directions", layout.n_directions, progress) as advance:
        for seen in ordered_map((functools.partial(_look_along, job, piece) for piece in pieces), workers):
            theta.append(seen.theta)
            np.add.at(sums, seen.units, seen.sums)
            projected += seen.projected
            np.minimum(cheapest, seen.cheapest, out=cheapest)
            np.maximum(largest, seen.largest, out=largest)
            advance(len(seen.theta))
    rows = np.split(np.concatenate(theta), job.unit_ends[1:-1])
    blocks = np.array([_from_block(row, p) for row in rows])[:, None] * sums
    means = np.stack([cloud.points.mean(axis=0, dtype=np.float64) / scale for cloud in clouds])
    i, j = np.triu_indices(len(clouds), 1)
    lower = np.maximum(
        np.maximum(largest, blocks.max(axis=0)) ** (1 / p), np.linalg.norm(means[i] - means[j], axis=1)
    )
    upper = cheapest ** (1 / p)
    slack = _ROUNDED * dim * float(np.finfo(np.float64).eps) * float(np.abs(job.pool.points).max())
    return _Seen(
        (sums.sum(axis=0) / layout.n_directions) ** (1 / p),
        (projected / layout.n_directions) ** (1 / p),
        np.minimum(np.maximum(lower - slack, 0), upper),
        upper + slack,
    )


class _Along(NamedTuple):
    """What some directions say of all pairs."""

    theta: HostArray
    units: HostArray
    """Units that they belong to."""
    sums: HostArray
    """Costs on the line of all pairs, summed over the rows of each of them, `(units, pairs)`."""
    projected: HostArray
    """Costs in space, summed over all rows, `(pairs,)`."""
    cheapest: HostArray
    """The least cost in space."""
    largest: HostArray
    """The largest cost on a line."""


def _look_along(job: PairwiseJob, piece: Piece) -> _Along:
    assert job.rounding is not None
    rows = np.ascontiguousarray(job.pool.project(piece.directions, piece.rows))
    order = order_segments(rows, job.rounding, job.starts)
    ordered = np.take_along_axis(rows, order.astype(np.intp), axis=1)
    unit = np.searchsorted(job.unit_ends, piece.first + np.arange(len(rows)), side="right") - 1
    units, place = np.unique(unit, return_inverse=True)
    sums, projected = np.zeros((len(units), job.n_pairs)), np.zeros(job.n_pairs)
    cheapest, largest = np.full(job.n_pairs, np.inf), np.zeros(job.n_pairs)
    # One direction at a time: the best coupling of a pair is needed, and not only the mean.
    for k, at in enumerate(place):
        on_line = segment_costs(ordered[k : k + 1], job.starts, job.p)
        in_space = segment_space_costs(job.pool.points, order[k : k + 1], job.starts, job.p)
        sums[at] += on_line
        projected += in_space
        np.minimum(cheapest, in_space, out=cheapest)
        np.maximum(largest, on_line, out=largest)
    return _Along(
        cast(HostArray, dense_rows(piece.directions, piece.rows)), units, sums, projected, cheapest, largest
    )


def _from_block(theta: HostArray, p: float) -> float:
    """W_p^p is at least this times the summed costs on the lines of `theta (rows, dim)`.

    The squared projections of a vector on all rows add up to at most its squared length times the square of the
    largest singular value; their p-th powers, for p < 2, to at most what they would if they were all alike.
    """
    top = float(np.linalg.norm(theta, ord=2))
    return float(len(theta) ** min(p / 2 - 1, 0) / max(top, _LEAST) ** p)


def _spread(seen: _Seen, n_exact: int) -> HostArray:
    """Pairs to solve: evenly spaced in the order of their projected distances."""
    n_pairs = len(seen.projected)
    if n_exact >= n_pairs:
        return np.arange(n_pairs)
    ranks = np.floor((np.arange(n_exact) + 0.5) * (n_pairs / n_exact)).astype(np.intp)
    return np.asarray(np.argsort(seen.projected, kind="stable")[ranks])


def _fitted(seen: _Seen, chosen: HostArray, solved: HostArray) -> Callable[[Any], HostArray]:
    """A regression of log W_p on the logarithms of all that was seen, as a function of pairs."""
    features = np.log(np.maximum(np.stack(seen), _LEAST)).T
    fit = chosen[solved > 0]
    if not len(fit):
        return lambda pairs: np.asarray(seen.upper[pairs])
    middle, target = features[fit].mean(axis=0), np.log(solved[solved > 0])
    slopes = np.linalg.lstsq(features[fit] - middle, target - target.mean(), rcond=_COLLINEAR)[0]
    return lambda pairs: np.asarray(np.exp((features[pairs] - middle) @ slopes + target.mean()))


def _off(seen: _Seen, chosen: HostArray, solved: HostArray, k: int) -> float:
    """How far the prediction of the k-th solved pair from the others is off, relatively."""
    others = np.arange(len(chosen)) != k
    pair = chosen[k]
    guess = np.clip(_fitted(seen, chosen[others], solved[others])(pair), seen.lower[pair], seen.upper[pair])
    return float(guess / solved[k] - 1)


def _root_mean_square(errors: HostArray) -> float:
    return math.sqrt(float(np.mean(errors**2))) if len(errors) else math.nan
