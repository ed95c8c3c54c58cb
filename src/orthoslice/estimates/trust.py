"""When an interval over directions cannot be trusted: what was not drawn might matter.

No rule can see what was not drawn. But with N directions, something that happens on a share of up to 3 / N of
all of them may well have been missed (the chance is 5%), and the clouds tell what that could amount to.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np

from orthoslice.backend.arrays import Array, HostArray, library, to_numpy
from orthoslice.backend.torch_internals import write_count
from orthoslice.clouds.canonical import gather_points
from orthoslice.clouds.cloud import Cloud, DistantCloud, shared_batch
from orthoslice.clouds.conditioning import centred
from orthoslice.clouds.mapped import read_by_rows, stored_points
from orthoslice.clouds.ready import make_ready
from orthoslice.costs.draw import Draw
from orthoslice.costs.pools import mean_power
from orthoslice.costs.scores import Score, Sliced
from orthoslice.directions.base import DenseDirections
from orthoslice.directions.equispaced import FEWEST_IN_THE_PLANE
from orthoslice.directions.layout import Layout
from orthoslice.estimates.sphere_trust import missed_on_planes
from orthoslice.estimates.statistics import Statistics, interval_arms

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

# Coordinates that are read at a time.
_PIECE_ITEMS = 1 << 20

# Few directions carry the value if both are exceeded: by the relative variance of the mean, were all the cost
# along one line (intervals were found to miss from there on), and by the squared coefficient of variation of
# one-dimensional distances.
_TOO_VARIABLE = 0.1
_UNEVEN = 0.05

# An arc of directions is crowded if this share of random pairs of points fall together on it. Missed arcs may
# change the value by _UNNOTICED of an interval's arm. Scores are taken at these offsets from the middle of an
# arc, in half widths.
_CROWDED = 0.1
_UNNOTICED = 0.7
_OUTSIDE_IN = np.concatenate([[2.0], 0.5 ** np.arange(9), [0.0]])


# Coordinates of a cloud that are copied, to notice later writes.
_FINGERPRINT_ITEMS = 1 << 12


def fingerprint(points: object) -> Any:
    """A fingerprint that changes when points are written to: torch's count of writes, or some NumPy rows."""
    if type(points) is np.ndarray and points.size <= _FINGERPRINT_ITEMS:
        return points.tobytes()
    kind = library(points)
    if kind == "torch":
        return write_count(points)
    if kind != "numpy":
        return None
    table, _ = stored_points(points)
    steps, room = [], max(1, _FINGERPRINT_ITEMS // table.shape[-1])
    for size in table.shape[:-1]:
        steps.append(slice(None, None, -(-size // room)))
        room = max(1, room // size)
    return table[tuple(steps)].tobytes()


class Subject(NamedTuple):
    """The score and the clouds of an estimate, which decide whether its interval can be trusted."""

    score: Score
    x: Cloud
    y: Cloud
    p: float
    is_basis: bool
    """Whether whole blocks are orthonormal bases."""
    fingerprints: tuple[Any, ...] = ()
    """Fingerprints of both clouds, which tell most later writes to them: see :func:`fingerprint`."""

    @property
    def wanted_points(self) -> list[tuple[Cloud, HostArray]]:
        """The clouds that :meth:`doubts` takes random points of, each with the places drawn for it."""
        rng = np.random.default_rng(0)
        if not self.score.breaks_ties:
            return [(self.x, _drawn_places(self.x, rng)) for _ in range(2)]
        return [] if self.p == 2 else [(c, _drawn_places(c, rng)) for c in (self.x, self.y)]

    @property
    def is_intact(self) -> bool:
        """Whether the points are those that the estimate was made from."""
        return self.fingerprints == tuple(fingerprint(c.points) for c in (self.x, self.y))

    def doubts(
        self, scores: Array, found: Statistics, layout: Layout, looks: int, exponent: Array | None = None
    ) -> Any:
        """As the function :func:`doubts`, for these scores and their statistics.

        Both are in units of 2^(exponent p), if there is an exponent.
        """
        if not self.score.on_sphere and self.x.dim == 2 and 1 < layout.n_units < FEWEST_IN_THE_PLANE:
            return np.full(found.mean.shape, FEW, dtype=object)
        unit = 1.0 if exponent is None else np.exp2(self.p * to_numpy(exponent).astype(np.float64))
        arms = interval_arms(found, layout, 0.95, looks)
        longer = unit * np.maximum(*(to_numpy(arm) for arm in arms))
        table = unit * to_numpy(scores).astype(np.float64)
        sliced = not self.score.breaks_ties
        if self.score.on_sphere:
            return self._doubts_on_sphere(table, longer)
        value = unit * to_numpy(found.mean).astype(np.float64)
        y = self.score.example(self.y)
        return doubts(self.x, y, self.p, table, value, longer, sliced=sliced, exact_moments=self.is_basis)

    def _doubts_on_sphere(self, scores: HostArray, half_width: HostArray) -> HostArray:
        """As the function :func:`doubts`, of clouds on the unit sphere."""
        batch = shared_batch(self.x, self.y)
        reasons = np.full(batch, "", dtype=object)
        for place in np.ndindex(batch):
            x, y = (_host_cloud(cloud, batch, place) for cloud in (self.x, self.y))
            most = float(scores[:, *place].max())
            missed = missed_on_planes(x, y, self.score, self.p, most)
            # Scores of one law on one circle, or equal ones, differ by rounding.
            if 3 / len(scores) * missed > half_width[place] + 1e-6 * most:
                reasons[place] = RARE
        return reasons


def doubts(
    x: Cloud,
    y: Cloud,
    p: float,
    scores: HostArray,
    value: HostArray,
    half_width: HostArray,
    *,
    sliced: bool,
    exact_moments: bool,
) -> HostArray:
    """Why the interval of each value `(...)` cannot be trusted: an array of texts, empty where it can.

    `scores (n_directions, ...)` are those of the clouds, `value` is their mean, less what a control variate
    explains where one is used, and `half_width` is the longer arm of the interval. `exact_moments` says that
    blocks integrate quadratic functions of the direction without error.
    """
    reasons = np.full(scores.shape[1:], "", dtype=object)
    if x.dim == 1:
        return reasons
    share = 3 / scores.shape[0]
    unseen = _unseen_sliced(x, y, p, scores, value) if sliced else _unseen_projected(x, y, p, scores)
    reasons[share * unseen > half_width] = RARE
    if sliced and x.dim == 2 and x.n > 1 and not any(isinstance(c, DistantCloud) for c in (x, y)):
        reasons[_missed_on_arcs(x, y, p, scores.shape[0]) > _UNNOTICED * half_width] = RARE
    if sliced and not (exact_moments and p == 2):
        reasons[_is_heavy(x.dim, p, scores)] = HEAVY
    return reasons


def _unseen_projected(x: Cloud, y: Cloud, p: float, scores: HostArray) -> HostArray:
    """What a coupling may cost on directions unlike those drawn, or 0 if the drawn ones show it.

    A direction on which far-apart points fall together couples them at random. Clouds without structure are
    matched along a direction and at random across it, which costs a known part of what random pairs cost. Where
    no drawn direction reaches two thirds of that part, all of them tell points apart that others do not. Every
    coupling pays the distance of the means, which is subtracted on both sides.
    """
    if min(x.n, y.n) == 1:
        return np.zeros(scores.shape[1:])
    shift = mean_gap(x, y) ** p
    random_pairs = np.maximum(typical_cost(x, y, p) - shift, 0.0)
    most, least = scores.max(axis=0), scores.min(axis=0)
    seen = most - shift >= 2 / 3 * _mean_across(x.dim, p) * random_pairs
    # All drawn directions have one coupling: the cost of others was not seen, unless there are no others.
    alike = most - least <= 64 * np.finfo(np.float64).eps * most
    seen = np.where(alike, _is_scaled_copy(x, y) if alike.any() else False, seen)
    return np.where(seen, 0.0, random_pairs)


def _is_scaled_copy(x: Cloud, y: Cloud) -> HostArray:
    """Whether y is x shifted and scaled, to rounding, so that every direction couples them alike, `(...)`.

    False for points that lie in files or on other machines, which are not read.
    """
    batch = shared_batch(x, y)
    found = np.zeros(batch, dtype=bool)
    if x.n != y.n or any(cloud.is_mapped or isinstance(cloud, DistantCloud) for cloud in (x, y)):
        return found
    rounding = 64 * np.finfo(to_numpy(x.points[..., :1, :]).dtype).eps
    for place in np.ndindex(batch):
        clouds = [_host_cloud(cloud, batch, place) for cloud in (x, y)]
        orders = [np.lexsort(cloud.points.T) for cloud in clouds]
        points = [c.points[order].astype(np.float64) for c, order in zip(clouds, orders, strict=True)]
        masses = [_weights(c)[order] for c, order in zip(clouds, orders, strict=True)]
        (one, slack_x), (other, slack_y) = (_shape_of(rows) for rows in points)
        is_copy = np.abs(other - one).max() <= rounding * (slack_x + slack_y)
        found[place] = is_copy and np.allclose(masses[0], masses[1], rtol=rounding, atol=0)
    return found


def _shape_of(points: HostArray) -> tuple[HostArray, float]:
    """Points `(n, dim)` moved to their mean and scaled to length 1, and the largest of them in that unit."""
    centred = points - points.mean(axis=0)
    # In two steps: squares of the points may leave the range.
    size = max(float(np.abs(centred).max()), np.finfo(np.float64).tiny)
    shape = centred / size
    length = max(float(np.linalg.norm(shape)), 1.0)
    with np.errstate(over="ignore"):
        return shape / length, float(np.abs(points / size).max()) / length


def _unseen_sliced(x: Cloud, y: Cloud, p: float, scores: HostArray, value: HostArray) -> HostArray:
    """What a direction's score may change by where couplings change too rarely to be averaged, else 0.

    Nearly equal clouds keep one coupling on almost all directions, and a block of directions gives its cost
    almost without error. What remains are directions on which two points change places: for each pair of points
    a share of about `apart / distance`, how far the clouds are apart over the distance within the pair.
    """
    fewer, more = sorted((x.n, y.n))
    if fewer == 1:
        return np.zeros(scores.shape[1:])
    # A shift changes no coupling, so it is subtracted: for p = 2 only, where blocks give its cost without
    # error; otherwise its own variation widens the interval.
    factor, shift = mean_power(x.dim, p), mean_gap(x, y) ** 2 if p == 2 else 0.0
    apart = np.maximum(value / factor - shift, 0.0) ** (1 / p)
    lengths = _random_lengths(x, x)
    distance = _typical_distance(lengths)
    # Points that lie together change places with others on the same directions.
    near = np.minimum(apart, 0.1 * distance)
    together = np.maximum(x.n * np.mean(lengths <= near[..., None], axis=-1), 1.0)
    pairs = (fewer - 1) * more / together**2
    changes = scores.shape[0] * pairs * apart / np.where(distance > 0, distance, 1.0)
    return np.where((changes < _ENOUGH_CHANGES) & (distance > 0), scores.max(axis=0), 0.0)


def _missed_on_arcs(x: Cloud, y: Cloud, p: float, n_directions: int) -> HostArray:
    """How far SW_p^p in the plane is off if narrow arcs were missed on which far-apart points meet, `(...)`.

    Where clusters are tight and far apart, all pairs across them fall together on one narrow arc of directions.
    Scores beside it do not show those on it, and are so smooth that intervals are short.
    """
    batch, share, rng = shared_batch(x, y), 3 / n_directions, np.random.default_rng(0)
    ends = [_random_points(x, rng)(slice(None)) for _ in range(2)]
    pairs = ends[0] - ends[1]
    pairs = np.broadcast_to(pairs, (*batch, *pairs.shape[-2:]))
    offsets = share * np.pi / 2 * _OUTSIDE_IN
    missed = np.zeros(batch)
    for place in np.ndindex(batch):
        middles = _crowded_angles(pairs[place], share, x.n)
        if len(middles):
            angles = np.add.outer([offsets, -offsets], middles)
            one_x, one_y = (_host_cloud(cloud, batch, place) for cloud in (x, y))
            scores = _sliced_scores(one_x, one_y, p, angles.ravel()).reshape(angles.shape).mean(axis=0)
            # Arcs are met, or missed, independently.
            missed[place] = share * np.linalg.norm(_surprise(offsets) @ scores)
    return missed


def _crowded_angles(pairs: HostArray, share: float, n: int) -> HostArray:
    """The middles of arcs, of this share of all directions, on which many of the pairs `(pairs, 2)` meet.

    Many are at least a share `_CROWDED` of them, four times as many as uniform directions would have, and the
    share of 3 among the n (n - 1) / 2 pairs of points.
    """
    pairs = pairs[np.any(pairs != 0, axis=1)]
    angles = np.sort((np.arctan2(pairs[:, 1], pairs[:, 0]) + np.pi / 2) % np.pi)
    least = max(_CROWDED, 4 * share, 6 / (n * (n - 1))) * len(angles)
    middles: list[float] = []
    while len(angles) > least:
        twice_round = np.concatenate([angles, angles + np.pi])
        stops = np.searchsorted(twice_round, angles + share * np.pi, side="right")
        counts = stops - np.arange(len(angles))
        first = int(np.argmax(counts))
        if counts[first] < least:
            break
        arc = np.arange(first, first + counts[first])
        middles.append(float(np.median(twice_round[arc])))
        angles = np.delete(angles, arc % len(angles))
    return np.asarray(middles)


def _surprise(offsets: HostArray) -> HostArray:
    """Weights of scores at these offsets from the middle of an arc: their mean on it, less its prediction.

    The prediction is the mean of the quadratic form of the direction through the two outermost scores, the
    first of which is off the arc. Means are by the trapezoidal rule.
    """
    steps = -np.diff(offsets[1:]) / offsets[1]
    weights = np.zeros(len(offsets))
    weights[1:-1] += steps / 2
    weights[2:] += steps / 2
    form = np.sin(offsets) ** 2
    outer = (weights @ form - form[1]) / (form[0] - form[1])
    weights[:2] -= outer, 1 - outer
    return weights


def _sliced_scores(x: Cloud, y: Cloud, p: float, angles: HostArray) -> HostArray:
    """Scores of single clouds of the plane on the directions at these angles."""
    ready = make_ready(*centred(x, y), for_ties=False)
    theta = DenseDirections(np.stack([np.cos(angles), np.sin(angles)], axis=1).astype(x.dtype))
    rows = max(1, 64 * _PAIRS // (x.n + y.n))
    draws = (
        Draw(theta, len(angles), 1, slice(first, first + rows), False, None, rows)
        for first in range(0, len(angles), rows)
    )
    return np.concatenate([Sliced().evaluate(*ready, p, draw, (False,) * 4).costs for draw in draws])


def _typical_distance(lengths: HostArray) -> HostArray:
    """The median length of pairs `(..., pairs)` of different points, `(...)`; 0 where there are none."""
    with warnings.catch_warnings():
        # The median of a cloud of equal points is NaN, with a warning.
        warnings.simplefilter("ignore", RuntimeWarning)
        return np.asarray(np.nan_to_num(np.nanmedian(np.where(lengths > 0, lengths, np.nan), axis=-1)))


def _is_heavy(dim: int, p: float, scores: HostArray) -> HostArray:
    """Whether few directions carry the value: some lines stand out, and too few were drawn for this power."""
    variance = mean_power(dim, 2 * p) / mean_power(dim, p) ** 2 - 1
    if variance / scores.shape[0] <= _TOO_VARIABLE:
        return np.zeros(scores.shape[1:], dtype=bool)
    # Control variates and quadrature weights may leave scores below 0.
    lines = np.maximum(scores, 0.0) ** (1 / p)
    mean = lines.mean(axis=0)
    return np.asarray(lines.var(axis=0) > _UNEVEN * mean * mean)


def _mean_across(dim: int, p: float) -> float:
    """E (1 - theta_1^2)^(p/2) for theta uniform on the sphere: the mean p-th power of a length across theta."""
    a, b = (dim - 1) / 2, dim / 2
    return math.exp(math.lgamma(a + p / 2) + math.lgamma(b) - math.lgamma(a) - math.lgamma(b + p / 2))


def mean_gap(x: Cloud, y: Cloud) -> HostArray:
    """How far the means of the clouds are apart, `(...)`."""
    return np.asarray(np.linalg.norm(_moments(x)[0] - _moments(y)[0], axis=-1))


def typical_cost(x: Cloud, y: Cloud, p: float) -> HostArray:
    """The mean of |x - y|^p over points drawn independently from both clouds, `(...)`.

    Exact for p = 2, from 4,096 random pairs otherwise.
    """
    batch = shared_batch(x, y)
    if p == 2:
        spread = sum(_moments(c)[1] for c in (x, y))
        return np.broadcast_to(mean_gap(x, y) ** 2 + spread, batch)
    costs = _random_lengths(x, y) ** p
    return np.broadcast_to(costs.mean(axis=-1), batch)


def _moments(cloud: Cloud) -> tuple[HostArray, HostArray]:
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


def _random_lengths(x: Cloud, y: Cloud) -> HostArray:
    """Distances `(..., pairs)` of points drawn independently from both clouds, a few at a time."""
    rng = np.random.default_rng(0)
    ends = [_random_points(cloud, rng) for cloud in (x, y)]
    pieces = _pieces(_PAIRS, x.dim * math.prod(shared_batch(x, y)))
    return np.concatenate([np.linalg.norm(ends[0](k) - ends[1](k), axis=-1) for k in pieces], axis=-1)


def _pieces(n: int, items: int) -> Iterator[slice]:
    """Slices of `n` rows of `items` numbers each, as many rows at a time as take little memory."""
    step = max(1, min(_PAIRS, _PIECE_ITEMS // max(1, items)))
    return (slice(first, min(n, first + step)) for first in range(0, n, step))


def _random_points(cloud: Cloud, rng: np.random.Generator) -> Callable[[slice], HostArray]:
    """Points drawn by their weights: a function of a slice of the pairs, `(..., pairs, dim)`."""
    places = _drawn_places(cloud, rng)
    if isinstance(cloud, DistantCloud):
        assert cloud.seen is not None
        drawn = cloud.seen.drawn[places.tobytes()]
        return lambda some: np.asarray(drawn[..., some, :], dtype=np.float64)
    points = read_by_rows(cloud.points)
    if cloud.weights is None:
        return lambda some: np.asarray(points[..., places[some], :], dtype=np.float64)
    ends = np.cumsum(_weights(cloud), axis=-1).reshape(-1, cloud.n)
    # The first point whose cumulative weight exceeds the place: points without weight are never drawn.
    index = np.stack([np.searchsorted(row, places * row[-1], side="right") for row in ends])
    index = index.reshape(*cloud.batch, _PAIRS)
    return lambda some: np.asarray(gather_points(points, index[..., some]), dtype=np.float64)


def _drawn_places(cloud: Cloud, rng: np.random.Generator) -> HostArray:
    """Random places `(pairs,)`: row numbers, or for weighted clouds shares of the cumulative mass."""
    return rng.integers(0, cloud.n, size=_PAIRS) if cloud.weights is None else rng.random(_PAIRS)


def _host_cloud(cloud: Cloud, batch: tuple[int, ...], place: tuple[int, ...]) -> Cloud:
    """One cloud of a batch, in host memory."""
    points, weights = read_by_rows(cloud.points), cloud.weights
    if place:
        points = np.broadcast_to(np.asarray(points), (*batch, *points.shape[-2:]))[place]
    if weights is not None:
        weights = np.broadcast_to(to_numpy(weights), (*batch, cloud.n))[place]
    return Cloud(points, weights)


def _weights(cloud: Cloud) -> HostArray:
    if cloud.weights is None:
        return np.broadcast_to(1 / cloud.n, (cloud.n,))
    return to_numpy(cloud.weights).astype(np.float64)
