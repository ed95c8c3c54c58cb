"""When an interval over directions cannot be trusted: what was not drawn might matter.

No rule can see what was not drawn. But with N directions, something that happens on a share of up to 3 / N of
all of them may well have been missed (the chance is 5%), and the clouds tell what that could amount to.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from orthoslice.arrays import Array, library, to_numpy
from orthoslice.blocks import Layout, Statistics, interval_arms
from orthoslice.cloud import Cloud, DistantCloud, shared_batch
from orthoslice.costs.pools import mean_power
from orthoslice.directions.equispaced import FEWEST_IN_THE_PLANE
from orthoslice.mapped import read_by_rows, stored_points
from orthoslice.orders import gather_points
from orthoslice.scores import Score

Table: TypeAlias = np.ndarray[Any, Any]

RARE = (
    "clouds like these may cost much more, or less, on a few directions that were not drawn; "
    "more directions (`n_directions`, `rtol`) can tell"
)
HEAVY = (
    "at this `p` a few directions carry most of the value, and so few were drawn that they may have been "
    "missed; ask for more (`n_directions`, `rtol`)"
)

FEW = (
    "blocks of directions in the plane differ by one angle only, so that fewer than 8 often agree by chance; "
    "ask for more directions, or for `replicates=8`"
)

# Changes of the coupling that a sample has to meet before their share in the mean is known. Clouds with 2 to 50
# points a side that differ by 1e-3 to 1e-1 of their size had intervals that covered from about 75 on.
_ENOUGH_CHANGES = 128

# Random pairs that stand for all, where there is no formula for their mean cost.
_PAIRS = 1 << 12

# Coordinates that are looked at together.
_PIECE_ITEMS = 1 << 20

# The relative variance of the mean, were all the cost along one line, from which on intervals were found to
# miss; and the squared coefficient of variation of one-dimensional distances from which on some stand out.
_TOO_VARIABLE = 0.1
_UNEVEN = 0.05


# Coordinates that are looked at to tell whether points were written to.
_LOOKED_AT = 1 << 12


def look_of(points: Array) -> Any:
    """What changes when points are written to: torch counts writes; of NumPy's arrays, some of their rows."""
    kind = library(points)
    if kind == "torch":
        return 0 if points.is_inference() else points._version
    if kind != "numpy":
        return None
    table, _ = stored_points(points)
    steps, room = [], max(1, _LOOKED_AT // table.shape[-1])
    for size in table.shape[:-1]:
        steps.append(slice(None, None, -(-size // room)))
        room = max(1, room // size)
    return table[tuple(steps)].tobytes()


@dataclass(frozen=True, eq=False)
class Subject:
    """What was estimated, for those who ask whether its interval can be trusted."""

    score: Score
    x: Cloud
    y: Cloud
    p: float
    is_basis: bool
    """Whether whole blocks are orthonormal bases."""
    looks_of_points: tuple[Any, ...] = ()
    """By which points that were written to since are known, as far as can be seen: see :func:`look_of`."""

    @property
    def wanted_points(self) -> list[tuple[Cloud, Table]]:
        """Which points :meth:`doubts` looks at: clouds, and what is drawn to choose from them."""
        rng = np.random.default_rng(0)
        if not self.score.breaks_ties:
            return [(self.x, _drawn_places(self.x, rng)) for _ in range(2)]
        return [] if self.p == 2 else [(c, _drawn_places(c, rng)) for c in (self.x, self.y)]

    @property
    def is_intact(self) -> bool:
        """Whether the points are those that the estimate was made from."""
        return self.looks_of_points == tuple(look_of(c.points) for c in (self.x, self.y))

    def doubts(
        self, scores: Array, found: Statistics, layout: Layout, looks: int, exponent: Array | None = None
    ) -> Any:
        """As the function :func:`doubts`, for these scores and what was found from them.

        They are in units of 2^(exponent p), where there is one.
        """
        if self.x.dim == 2 and 1 < layout.n_units < FEWEST_IN_THE_PLANE:
            return np.full(found.mean.shape, FEW, dtype=object)
        unit = 1.0 if exponent is None else np.exp2(self.p * to_numpy(exponent).astype(np.float64))
        arms = interval_arms(found, layout, 0.95, looks)
        longer = unit * np.maximum(*(to_numpy(arm) for arm in arms))
        table = unit * to_numpy(scores).astype(np.float64)
        sliced = not self.score.breaks_ties
        value = unit * to_numpy(found.mean).astype(np.float64)
        return doubts(self.x, self.y, self.p, table, value, longer, sliced=sliced, exact_moments=self.is_basis)


def doubts(
    x: Cloud,
    y: Cloud,
    p: float,
    scores: Table,
    value: Table,
    half_width: Table,
    *,
    sliced: bool,
    exact_moments: bool,
) -> Table:
    """Why the interval of each value `(...)` cannot be trusted: an array of texts, empty where it can.

    `scores (n_directions, ...)` are those of the clouds, `value` is their mean, or something better where a
    control variate is used, and `half_width` is the longer arm of the interval. `exact_moments` says that
    blocks integrate quadratic functions of the direction without error.
    """
    reasons = np.full(scores.shape[1:], "", dtype=object)
    if x.dim == 1:
        return reasons
    share = 3 / scores.shape[0]
    unseen = _unseen_sliced(x, y, p, scores, value) if sliced else _unseen_projected(x, y, p, scores)
    reasons[share * unseen > half_width] = RARE
    if sliced and not (exact_moments and p == 2):
        reasons[_is_heavy(x.dim, p, scores)] = HEAVY
    return reasons


def _unseen_projected(x: Cloud, y: Cloud, p: float, scores: Table) -> Table:
    """What a coupling may cost on directions unlike those drawn, or 0 if the drawn ones show it.

    A direction on which far-apart points fall together couples them at random. Clouds without structure are
    matched along a direction and at random across it, which costs a known part of what random pairs cost. Where
    no drawn direction reaches two thirds of that part, all of them tell points apart that others do not. The
    distance of the means is paid by every coupling, and counts on neither side.
    """
    shift = mean_gap(x, y) ** p
    random_pairs = np.maximum(typical_cost(x, y, p) - shift, 0.0)
    seen = scores.max(axis=0) - shift >= 2 / 3 * _mean_across(x.dim, p) * random_pairs
    return np.where(seen, 0.0, random_pairs)


def _unseen_sliced(x: Cloud, y: Cloud, p: float, scores: Table, value: Table) -> Table:
    """What a direction's score may change by where couplings change too rarely to be averaged, else 0.

    Nearly equal clouds keep one coupling on almost all directions, and a block of directions gives its cost
    almost without error. What remains are directions on which two points change places: about as many, of all
    pairs of points, as the clouds are apart in units of the distance within such a pair.
    """
    fewer, more = sorted((x.n, y.n))
    if fewer == 1:
        return np.zeros(scores.shape[1:])
    # Clouds that are nearly equal but for a shift are as rare in changes as without it. Only for p = 2 do
    # blocks give the cost of the shift without error; otherwise its own variation widens the interval.
    factor, shift = mean_power(x.dim, p), mean_gap(x, y) ** 2 if p == 2 else 0.0
    apart = np.maximum(value / factor - shift, 0.0) ** (1 / p)
    distance = _typical_distance(x)
    changes = scores.shape[0] * (fewer - 1) * more * apart / np.where(distance > 0, distance, 1.0)
    return np.where((changes < _ENOUGH_CHANGES) & (distance > 0), scores.max(axis=0), 0.0)


def _typical_distance(cloud: Cloud) -> Table:
    """The median distance of two different points of a cloud, `(...)`; 0 where there are none."""
    lengths = _random_lengths(cloud, cloud)
    lengths[lengths == 0] = np.nan
    with warnings.catch_warnings():
        # A cloud of equal points.
        warnings.simplefilter("ignore", RuntimeWarning)
        return np.asarray(np.nan_to_num(np.nanmedian(lengths, axis=-1)))


def _is_heavy(dim: int, p: float, scores: Table) -> Table:
    """Whether few directions carry the value: some lines stand out, and too few were drawn for this power."""
    variance = mean_power(dim, 2 * p) / mean_power(dim, p) ** 2 - 1
    if variance / scores.shape[0] <= _TOO_VARIABLE:
        return np.zeros(scores.shape[1:], dtype=bool)
    # Control variates and quadrature weights may leave scores below 0.
    lines = np.maximum(scores, 0.0) ** (1 / p)
    mean = lines.mean(axis=0)
    return np.asarray(lines.var(axis=0) > _UNEVEN * mean * mean)


def _mean_across(dim: int, p: float) -> float:
    """E (1 - theta_1^2)^(p/2) for theta uniform on the sphere: what is left of a power across a direction."""
    a, b = (dim - 1) / 2, dim / 2
    return math.exp(math.lgamma(a + p / 2) + math.lgamma(b) - math.lgamma(a) - math.lgamma(b + p / 2))


def mean_gap(x: Cloud, y: Cloud) -> Table:
    """How far the means of the clouds are apart, `(...)`."""
    return np.asarray(np.linalg.norm(_moments(x)[0] - _moments(y)[0], axis=-1))


def typical_cost(x: Cloud, y: Cloud, p: float) -> Table:
    """The mean of |x - y|^p over points drawn independently from both clouds, `(...)`.

    Exact for p = 2, from 4,096 random pairs otherwise.
    """
    batch = shared_batch(x, y)
    if p == 2:
        spread = sum(_moments(c)[1] for c in (x, y))
        return np.broadcast_to(mean_gap(x, y) ** 2 + spread, batch)
    costs = _random_lengths(x, y) ** p
    return np.broadcast_to(costs.mean(axis=-1), batch)


def _moments(cloud: Cloud) -> tuple[Table, Table]:
    """The mean `(..., dim)` of a cloud, and its mean squared distance from it `(...)`."""
    if isinstance(cloud, DistantCloud):
        assert cloud.seen is not None
        return cloud.seen.mean, cloud.seen.spread
    points, weights = read_by_rows(cloud.points), _weights(cloud)
    origin = points[..., :1, :].astype(np.float64)
    total, square = np.zeros(()), np.zeros(())
    for rows in _pieces(cloud.n, points.size // cloud.n):
        part, share = points[..., rows, :] - origin, weights[..., rows]
        total = total + (share[..., None] * part).sum(axis=-2)
        square = square + (share * (part * part).sum(axis=-1)).sum(axis=-1)
    return origin[..., 0, :] + total, square - (total * total).sum(axis=-1)


def _random_lengths(x: Cloud, y: Cloud) -> Table:
    """Distances `(..., pairs)` of points drawn independently from both clouds, a few at a time."""
    rng = np.random.default_rng(0)
    ends = [_random_points(cloud, rng) for cloud in (x, y)]
    pieces = _pieces(_PAIRS, x.dim * math.prod(shared_batch(x, y)))
    return np.concatenate([np.linalg.norm(ends[0](k) - ends[1](k), axis=-1) for k in pieces], axis=-1)


def _pieces(n: int, items: int) -> Iterator[slice]:
    """All of `n` rows of so many numbers, as many at a time as take little memory."""
    step = max(1, min(_PAIRS, _PIECE_ITEMS // max(1, items)))
    return (slice(first, min(n, first + step)) for first in range(0, n, step))


def _random_points(cloud: Cloud, rng: np.random.Generator) -> Callable[[slice], Table]:
    """Some of the points `(..., pairs, dim)` drawn by their weights, which a few points alone may have."""
    places = _drawn_places(cloud, rng)
    if isinstance(cloud, DistantCloud):
        assert cloud.seen is not None
        drawn = cloud.seen.drawn[places.tobytes()]
        return lambda some: np.asarray(drawn[..., some, :], dtype=np.float64)
    points = read_by_rows(cloud.points)
    if cloud.weights is None:
        return lambda some: np.asarray(points[..., places[some], :], dtype=np.float64)
    ends = np.cumsum(_weights(cloud), axis=-1).reshape(-1, cloud.n)
    # Below the end of a point and not below that of the one before it: points without weight have no place.
    index = np.stack([np.searchsorted(row, places * row[-1], side="right") for row in ends])
    index = index.reshape(*cloud.batch, _PAIRS)
    return lambda some: np.asarray(gather_points(points, index[..., some]), dtype=np.float64)


def _drawn_places(cloud: Cloud, rng: np.random.Generator) -> Table:
    """What chooses random points, `(pairs,)`: their numbers, or shares of the mass that comes before them."""
    return rng.integers(0, cloud.n, size=_PAIRS) if cloud.weights is None else rng.random(_PAIRS)


def _weights(cloud: Cloud) -> Table:
    if cloud.weights is None:
        return np.broadcast_to(1 / cloud.n, (cloud.n,))
    return to_numpy(cloud.weights).astype(np.float64)
