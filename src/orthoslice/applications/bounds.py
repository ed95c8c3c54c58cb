"""Bounds on the Wasserstein distance that hold for certain."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from orthoslice.applications.match.match import match, match_bytes
from orthoslice.backend.array_types import FloatArray
from orthoslice.backend.arrays import RNG, resolve_rng, to_numpy
from orthoslice.backend.markup import card
from orthoslice.backend.memory import check_room
from orthoslice.check.inputs import as_array, largest_magnitude, on_host
from orthoslice.check.names import answers_other_names
from orthoslice.check.options import check_directions, check_memory, check_n_directions, check_p, check_sampler
from orthoslice.clouds.cloud import Cloud, host_clouds
from orthoslice.clouds.conditioning import centred
from orthoslice.clouds.lengths import pair_lengths, power_mean, scaled_for_lengths
from orthoslice.clouds.masses import integer_masses
from orthoslice.clouds.ready import as_given, in_canonical_order, with_masses
from orthoslice.costs.pools import mean_shortening
from orthoslice.costs.scores import Exact, Sliced
from orthoslice.couplings.coupling import Coupling, couple, induced_coupling
from orthoslice.directions import OWN, Auto, Given, Orthogonal, Replicated, Sampler
from orthoslice.directions.layout import Layout
from orthoslice.estimates.entry import estimate_distance
from orthoslice.estimates.request import Options
from orthoslice.estimates.result import Estimate
from orthoslice.exact.transport import Transport, check_effort, gpu_of, transport_clouds

_EPS = float(np.finfo(np.float64).eps)
_TINY = 2.0**-1074
# The bracket of an exact answer is at most this wide, unless costs span many scales.
_ROUNDED = 1e-9
# Couplings that are priced anew where the quick prices cannot tell which is the cheapest.
_MOST_REPRICED = 32


@dataclass(frozen=True, eq=False)
class Bounds:
    """`lower <= W_p <= upper`, both certain, and the coupling whose cost is the upper one.

    Examples
    --------
    >>> import orthoslice as osl
    >>> found = osl.wasserstein_bounds([[0.0, 0.0], [1.0, 0.0]], [[0.0, 1.0], [1.0, 1.0]], rng=0)
    >>> found.lower <= 1 <= found.upper, found.coupling.iy.tolist()
    (True, [0, 1])
    """

    lower: float
    upper: float
    p: float
    coupling: Coupling
    transport: Transport | None = None
    """Where `rtol` or `time_limit` was given: the answer of :func:`wasserstein`, which has the potentials."""
    converged: bool = True
    """Whether the bounds are as near each other as `rtol` asks for."""

    @property
    def potentials(self) -> tuple[FloatArray, FloatArray]:
        """Those of :class:`Transport`; for bounds with `rtol`."""
        return self._proof().potentials

    def verify(self) -> bool:
        """Check the bounds of the auction from scratch, as :meth:`Transport.verify`; for bounds with `rtol`."""
        return self._proof().verify()

    def _proof(self) -> Transport:
        if self.transport is None:
            raise ValueError("Bounds have potentials, to be verified, if `rtol` is given; got bounds without.")
        return self.transport

    def __repr__(self) -> str:
        return f"Bounds({self.lower:.6g} <= W_{self.p:g} <= {self.upper:.6g})"

    def _repr_html_(self) -> str:
        rows = [("at least", f"{self.lower:.6g}"), ("at most", f"{self.upper:.6g}")]
        return card(f"W_{self.p:g}, the Wasserstein distance, for certain", rows)


@answers_other_names
def wasserstein_bounds(
    x: Any,
    y: Any,
    p: float = 2,
    *,
    x_weights: Any = None,
    y_weights: Any = None,
    directions: Any = "auto",
    n_directions: int | None = None,
    rtol: float | None = None,
    time_limit: float | None = None,
    rng: RNG = None,
    memory: int | str | None = None,
    workers: int | None = None,
    progress: bool = False,
) -> Bounds:
    """Bound the Wasserstein distance W_p of two clouds from both sides, for certain.

    With `rtol` the bounds are as near each other as that: they are those of :func:`wasserstein`, which takes
    all n * m costs. Without, they take about n log n time and are as tight as sorting makes them, as follows.
    The lower bound is the largest of: every one-dimensional W_p, the distance of the means, and for every
    whole orthonormal block of directions ``(dim^min(p/2, 1) * mean score)^(1/p)``, which is by far the best.
    The upper bound is the cost of a coupling that :func:`match` makes of the cheapest one that a direction
    induces. No probability is involved: the directions only decide how tight the bounds are. Both are computed
    in float64 and rounded outward, by all that rounding, underflow and cancellation can have changed: they hold
    whatever scales a cloud spans, and where scales are too far apart for projections, the axes, on which
    nothing is rounded, give the lower one. In one dimension both bounds are W_p, up to rounding.

    Parameters
    ----------
    x, y, p, x_weights, y_weights, directions, n_directions, rng, workers, progress
        As in :func:`sliced_wasserstein`, for single clouds `(n, dim)`.
    rtol, time_limit
        As in :func:`wasserstein`. If either is given, the bounds are found by auction, and `directions`,
        `n_directions`, `rng` and `workers` matter only where it stops short.
    memory
        As in :func:`match`, which needs the most: (n + m) (16 dim + 160) bytes at least, or
        (n + m) (16 dim + 1800) with weights or unequal sizes.

    Returns
    -------
    Bounds
        `lower` and `upper` as floats, and `coupling` (NumPy arrays), whose cost is ``upper**p``, to rounding.

    Notes
    -----
    Weights are rounded to multiples of 2**-62, which can move W_p by (2**-51)^(1/p) diameters of the clouds,
    and the bounds allow for that: with weights they are a little apart, and for large p far apart.

    Examples
    --------
    >>> import numpy as np, orthoslice as osl
    >>> rng = np.random.default_rng(0)
    >>> x, y = rng.normal(size=(100, 3)), rng.normal(size=(80, 3)) + 1
    >>> bounds = osl.wasserstein_bounds(x, y, rng=0)
    >>> 1.5 < bounds.lower < bounds.upper < 3
    True
    >>> narrow = osl.wasserstein_bounds(x, y, rtol=0.01)
    >>> narrow.upper < 1.01 * narrow.lower, narrow.verify()
    (True, True)
    """
    p = check_p(p)
    cloud_x, cloud_y = host_clouds("wasserstein_bounds", x, y, x_weights, y_weights)
    certified = None
    if rtol is not None or time_limit is not None:
        effort = check_effort(rtol or 0.0, time_limit, memory, progress)._replace(place=gpu_of(x, y))
        certified = _certified(transport_clouds(cloud_x, cloud_y, p, effort), effort.rtol)
        if certified.converged:
            return certified
    sampler = check_directions(directions, x if isinstance(x, Cloud) else Cloud(as_array("x", x)))
    count = check_n_directions(n_directions, sampler)
    sampler, rows, rng = _settled(sampler, count, cloud_x.dim, rng)
    count = None if isinstance(sampler, Given) else count
    room = check_memory("256MB")
    if memory is not None:
        held, row = match_bytes(cloud_x, cloud_y)
        check_room(check_memory(memory), held + row, "all points twice, in float64, and a matching of them")
        # Points are held twice while distances are estimated.
        room = check_memory(memory) - held
    options = Options(sampler, count, None, None, None, rng, room, workers, progress)
    clouds = (cloud_x, cloud_y, None, None)
    sliced = estimate_distance("SW", Sliced(), clouds, p, options, accurate=False)
    same = options._replace(directions=sliced.directions, n_directions=sliced.n_directions, rng=sliced.seed)
    projected = estimate_distance("PW", Exact(), clouds, p, same, accurate=False)
    given = [c.weights if isinstance(c, Cloud) else w for c, w in ((x, x_weights), (y, y_weights))]
    moved = _moved_mass(cloud_x, "x_weights", given[0]) + _moved_mass(cloud_y, "y_weights", given[1])
    upper, coupling = _upper(cloud_x, cloud_y, projected, moved, memory, workers)
    bounds = Bounds(_lower(cloud_x, cloud_y, sliced, rows, moved), upper, p, coupling)
    return bounds if certified is None else _tighter(certified, bounds)


def _certified(transport: Transport, rtol: float) -> Bounds:
    is_narrow = transport.upper <= (1 + max(rtol, _ROUNDED)) * transport.lower or transport.upper == 0
    return Bounds(transport.lower, transport.upper, transport.p, transport.coupling, transport, is_narrow)


def _tighter(certified: Bounds, other: Bounds) -> Bounds:
    """The better of two bounds on either side."""
    upper = min(certified, other, key=lambda bounds: bounds.upper)
    return replace(
        certified, lower=max(certified.lower, other.lower), upper=upper.upper, coupling=upper.coupling
    )


def _settled(sampler: Sampler, count: int | None, dim: int, rng: RNG) -> tuple[Sampler, int | None, RNG]:
    """The sampler to use, the rows of a block if its directions are given as an array, and the seed.

    Replicated sets, and those of samplers that are not our own, are drawn first: the largest singular value of
    a block is then computed, and nothing need be assumed of it.
    """
    if dim == 1:
        return Given(theta=np.ones((1, 1))), 1, rng
    if isinstance(sampler, Given):
        return Given(theta=_unit(to_numpy(sampler.theta))), int(sampler.theta.shape[0]), rng
    if isinstance(sampler, Auto):
        return Orthogonal(), None, rng  # bases give the tightest bounds
    if type(sampler) in OWN and not isinstance(sampler, Replicated):
        return sampler, None, rng
    sampler, count = sampler.with_default_size(dim) if count is None else (sampler, count)
    rows = Layout(check_sampler(sampler, count, dim)).longest_block
    _, seed = resolve_rng(rng, np.zeros(1))
    return Given(theta=_unit(sampler.sample(count, dim, seed).theta)), rows, seed


def _unit(theta: Any) -> FloatArray:
    rows = theta.astype(np.float64)
    unit: FloatArray = rows / np.linalg.norm(rows, axis=1, keepdims=True)
    return unit


def _moved_mass(cloud: Cloud, name: str, given: object) -> float:
    """The most mass that rounding of weights may have moved: when divided by their sum, and as integers."""
    if cloud.weights is None:
        return 0.0
    off = 0.0
    # Masses are made in both orders, that of the rows and the canonical one.
    for ordered in (cloud, in_canonical_order(cloud)):
        mass, units = integer_masses(ordered), 2.0**62 * np.asarray(ordered.weights)
        whole = np.floor(units)
        # Neither difference is rounded: one is of integers, the other is the fractional part of a float.
        off += math.fsum(np.abs((mass - whole.astype(np.int64)) - (units - whole)))
    if off == 0 and np.array_equal(on_host(name, as_array(name, given)), cloud.weights):
        return 0.0
    return off * 2.0**-62 + 2.0**-51


def _shifted(moved: float, diameter: float, p: float) -> float:
    """How far W_p changes, at most, if a mass `moved` moves by `diameter`, rounded up."""
    return 1.001 * diameter * moved ** (1 / p) if moved else 0.0


def _size(x: Cloud, y: Cloud) -> float:
    """An upper bound on the distance of any point from the origin."""
    return max(largest_magnitude(c.points) for c in (x, y)) * math.sqrt(x.dim) * (1 + 4 * _EPS)


def _lower(x: Cloud, y: Cloud, sliced: Estimate, rows: int | None, moved: float) -> float:
    """The largest certain lower bound, less what rounding may have added to it.

    Parameters
    ----------
    x, y
        The clouds.
    sliced
        Scores of directions.
    rows
        How many of them make a block, where they are given.
    moved
        The mass that rounding of weights may have moved.
    """
    p, scale = sliced.p, sliced._scale
    # The clouds as they were projected: centred, and in units of `scale`, in which nothing overflows.
    unit_x, unit_y = centred(*(c if scale == 1 else Cloud(c.points / scale, c.weights) for c in (x, y)))
    size = _size(unit_x, unit_y)
    # The error of pairwise summation grows with log n only.
    roundings = 4 * (x.dim + 32 + math.log2(x.n + y.n)) * _EPS
    gap = float(np.linalg.norm(_mean(unit_x) - _mean(unit_y)))
    best = max(_by_directions(x, y, sliced, rows, size), gap * (1 - roundings) - roundings * size)
    if x.dim == 1 or best < 1e6 * roundings * size:
        # The rounding of projections matters here, and projections on the axes are not rounded.
        best = max(best, _by_axes(x, y, p) / scale * (1 - _EPS) - _TINY)
    return max(0.0, _down(scale * (best - _shifted(moved, 2 * size, p)) * (1 - _EPS)))


def _mean(cloud: Cloud) -> Any:
    # Contiguous columns: NumPy sums pairwise along the last axis only.
    columns = (np.ascontiguousarray(column) for column in cloud.points.T)
    return np.array([c.mean() if cloud.weights is None else (c * cloud.weights).sum() for c in columns])


def _by_directions(x: Cloud, y: Cloud, sliced: Estimate, rows: int | None, size: float) -> float:
    """The best bound that scores on the line give, in units of their scale.

    For the N rows theta of a matrix with the largest singular value s and any difference d, the sum of
    |<theta, d>|^p is at most (s |d|)^p for p >= 2, and at most N^(1 - p/2) (s |d|)^p for p < 2.
    """
    p, dim, sampler = sliced.p, x.dim, sliced.directions
    ambient = sampler.ambient_dim(dim)
    # Rows of a padded space may be shorter than 1: only their plain cost on the line is a bound.
    costs = np.asarray(sliced._scores) * mean_shortening(dim, ambient, p)
    # Sums over pairs are sequential: their error grows with the number of pairs.
    relative = (x.n + y.n + 64) * _EPS
    # A projection is off by some roundings of the points' size, and so is every distance on the line; so are
    # rows that are orthonormal by construction. Powers that underflow are off by the smallest number.
    absolute = 32 * (ambient + 16) * _EPS * size
    absolute += ((x.n + y.n) * _TINY) ** (1 / p) if size else 0.0
    best: float = float(costs.max()) ** (1 / p) * (1 - relative) - absolute
    blocks: list[tuple[int, float]] = []
    if rows is not None:
        theta = to_numpy(sampler.theta)  # type: ignore[attr-defined]
        blocks = [
            (first, _largest_stretch(theta[first : first + rows])) for first in range(0, len(costs), rows)
        ]
    elif sampler.is_basis(rows := sliced._layout.longest_block, dim):
        blocks = [(first, 1.0) for first in range(0, len(costs) - rows + 1, rows)]
    for first, stretch in blocks:
        part = costs[first : first + rows]
        bound = float(part.mean()) ** (1 / p) * (1 - relative - len(part) * _EPS) - absolute
        best = max(best, bound * float(len(part) ** min(1 / 2, 1 / p)) / stretch * (1 - 16 * _EPS))
    return best


def _largest_stretch(theta: FloatArray) -> float:
    """An upper bound on the largest singular value of unit rows `(n, dim)`."""
    n, dim = theta.shape
    gram = theta @ theta.T if n <= dim else theta.T @ theta
    # Products and eigenvalues are off by some roundings of the trace, which is n.
    return math.sqrt(float(np.linalg.eigvalsh(gram)[-1]) + 8 * (n + dim) * n * _EPS)


def _by_axes(x: Cloud, y: Cloud, p: float) -> float:
    """The bound that the axes give: a basis on which projections are not rounded."""
    scaled_x, scaled_y, exponent = scaled_for_lengths(x, y)
    ready = with_masses(as_given(scaled_x), as_given(scaled_y))
    distances = []
    for k in range(x.dim):
        px, py = (np.ascontiguousarray(c.points[None, :, k]) for c in ready)
        pairs = couple(px, py, *ready)
        lengths = np.abs(px[0, pairs.ix[0]] - py[0, pairs.iy[0]])
        distances.append(
            power_mean(lengths, np.broadcast_to(np.atleast_2d(pairs.mass), (1, len(lengths)))[0], p)
        )
    all_axes = power_mean(np.array(distances), np.full(x.dim, 1 / x.dim), p) * x.dim ** min(1 / 2, 1 / p)
    return _grown(max(*distances, all_axes) * (1 - 64 * _EPS) - _lost(x.dim, exponent), exponent)


def _upper(
    x: Cloud, y: Cloud, projected: Estimate, moved: float, memory: int | str | None, workers: int | None
) -> tuple[float, Coupling]:
    """The cost of the cheapest coupling, rounded up, and the coupling; the arguments are those of `_lower`."""
    scaled_x, scaled_y, exponent = scaled_for_lengths(x, y)
    cost, coupling = _cheapest(scaled_x, scaled_y, projected, memory, workers)
    coupling = replace(coupling, x=x.points, y=y.points)
    if cost == 0 and ((moved == 0 and exponent == 0) or _same(x, y)):
        return 0.0, coupling
    # Nothing cancels in a cost, so its error is relative.
    cost = cost * (1 + (x.dim + 64) * _EPS) + _lost(x.dim, exponent)
    origin = scaled_x.points[0]
    size = max(
        _size(Cloud(c.points - origin), Cloud(np.zeros_like(origin)[None])) for c in (scaled_x, scaled_y)
    )
    return math.nextafter(_grown(cost + _shifted(moved, 2 * size, projected.p), exponent), math.inf), coupling


def _cheapest(
    x: Cloud, y: Cloud, projected: Estimate, memory: int | str | None, workers: int | None
) -> tuple[float, Coupling]:
    """A coupling made of the cheapest one that a direction induces, and the p-th root of its cost."""
    weights: dict[str, Any] = {"x_weights": x.weights, "y_weights": y.weights}
    scores = np.asarray(projected._scores)
    # Scores that underflow do not tell which is the cheapest.
    rows = np.flatnonzero(scores <= max(float(scores.min()), 2.0**-960))[:_MOST_REPRICED]
    best: tuple[float, Coupling] | None = None
    for row in rows.tolist():
        direction = projected.directions.row(row, projected.n_directions, x.dim, projected.seed)
        coupling = induced_coupling(x.points, y.points, direction, **weights)
        cost = _cost(coupling, projected.p)
        if best is None or cost < best[0]:
            best, along = (cost, coupling), direction
        if cost == 0:
            break
    assert best is not None
    if best[0] == 0 or x.dim == 1:
        return best
    try:
        within: dict[str, Any] = {"memory": memory, "workers": workers, "rng": projected.seed}
        matched = match(x.points, y.points, projected.p, directions=along[None, :], **within, **weights)
    except OverflowError:
        # Powers of these lengths overflow in `match`; `_cost`, which does not, priced the induced couplings.
        return best
    # On a tie, as between equal clouds, `min` keeps the simpler coupling, the induced one.
    return min(best, (_cost(matched, projected.p), matched), key=lambda found: found[0])


def _cost(coupling: Any, p: float) -> float:
    lengths = pair_lengths(coupling.x, coupling.y, coupling.ix, coupling.iy)
    return power_mean(lengths, coupling.mass, p)


def _lost(dim: int, exponent: int) -> float:
    """What a length may have lost to rounding by :func:`scaled_for_lengths`, or to underflow."""
    return (4 * dim if exponent else 4) * _TINY


def _grown(length: float, exponent: int) -> float:
    try:
        return math.ldexp(length, exponent)
    except OverflowError:
        raise OverflowError(
            "This Wasserstein distance may exceed the range of float64. Pass smaller units."
        ) from None


def _down(value: float) -> float:
    return math.nextafter(value, -math.inf)


def _same(x: Cloud, y: Cloud) -> bool:
    x, y = in_canonical_order(x), in_canonical_order(y)
    weights = [np.zeros(0) if c.weights is None else c.weights for c in (x, y)]
    return np.array_equal(x.points, y.points) and np.array_equal(weights[0], weights[1])
