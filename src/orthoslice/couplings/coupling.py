"""Step 4, couple: projected clouds by order, and the couplings of the clouds themselves that this induces."""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from orthoslice.backend.arrays import (
    Array,
    HostArray,
    Operation,
    PlainWork,
    device,
    is_readable,
    namespace,
    to_numpy,
    wide_float,
    wide_int,
)
from orthoslice.backend.kernels import rows_refusal
from orthoslice.check.names import answers_other_names
from orthoslice.check.options import check_direction, check_p
from orthoslice.clouds.canonical import gather_points
from orthoslice.clouds.cloud import Cloud, detached, shared_batch, single_clouds
from orthoslice.clouds.conditioning import centred, rescaled, unit_scale
from orthoslice.clouds.masses import total_mass
from orthoslice.clouds.ready import ReadyCloud, make_ready
from orthoslice.couplings.orders import order_points, stable_order
from orthoslice.directions.base import DenseDirections, projection_dtype

if TYPE_CHECKING:
    from scipy.sparse import coo_array


# Tables of ranks of up to this many points of both clouds, 24 bytes a point, are cached: outside any memory
# budget. Larger ones are made anew in every pass, which is quick beside finding the orders.
_KEPT_POINTS = 1 << 16


class Pairs(NamedTuple):
    """Couplings by order, one a slice: pair k moves `mass[k]` from point `ix[k]` to point `iy[k]`.

    `ix (slices, ..., pairs)` and `iy` are indices of points in increasing order of their projections;
    `mass` broadcasts against them and sums to 1. In weighted couplings, `ends_x` marks the pairs that use up
    a point of x; at every other pair a point of y is used up.
    """

    ix: Array
    iy: Array
    mass: Array
    ends_x: Array | None


def coupling_bytes(x: Cloud, y: Cloud) -> int:
    """What the coupling of a direction and its price need at their peak (measured, rounded up)."""
    numbers = 6 if x.weights is None and y.weights is None else 12
    return 8 * numbers * math.prod(shared_batch(x, y)) * (x.n + y.n)


def couples_ranks(x: Cloud, y: Cloud) -> bool:
    """Whether points are matched rank by rank; otherwise there are more pairs than points of either cloud."""
    return x.weights is None and y.weights is None and x.n == y.n


def couple(px: Array, py: Array, x: ReadyCloud, y: ReadyCloud, other_side: bool = False) -> Pairs:
    """Couple `px (slices, ..., n)` with `py (slices, ..., m)` by order.

    Equal sizes without weights match rank by rank. Otherwise quantiles are merged exactly: by integer ranks
    where points weigh the same, and by integer masses where they do not, so that nothing drifts in float32.
    Where ranks i of x and j of y are used up at once, a pair (i + 1, j) without mass, up to rounding, follows;
    with `other_side` it is (i, j + 1).
    """
    return couple_orders(order_points(px, x), order_points(py, y), x, y, other_side)


def couple_orders(ix: Array, iy: Array, x: ReadyCloud, y: ReadyCloud, other_side: bool = False) -> Pairs:
    """As :func:`couple`, given the orders `ix (slices, ..., n)` and `iy (slices, ..., m)` of the points."""
    if x.weights is None and y.weights is None:
        return _match_ranks(ix, iy, x.points)
    pairs: Pairs = merge_quantiles(ix, iy, x, y, other_side)
    return pairs


def couple_ranks(px: Array, py: Array) -> Pairs:
    """Couple clouds without weights by order, where ties do not matter."""
    return _match_ranks(stable_order(px), stable_order(py), px)


def _match_ranks(ix: Array, iy: Array, like: Array) -> Pairs:
    xp = namespace(ix)
    n, m = ix.shape[-1], iy.shape[-1]
    if n == m:
        return Pairs(ix, iy, xp.full((1,), 1 / n, dtype=wide_float(like), device=device(like)), None)
    i, j, mass = rank_pairs(n, m, like)
    return Pairs(xp.take(ix, i, axis=-1), xp.take(iy, j, axis=-1), mass, None)


def rank_pairs(n: int, m: int, like: Array) -> tuple[Array, Array, Array]:
    """Ranks of x, ranks of y and masses of the coupling of n with m points of equal weight."""
    xp = namespace(like)
    i, j, mass = _kept_rank_pairs(n, m) if n + m <= _KEPT_POINTS else _rank_pairs(n, m)
    place = device(like)
    index = wide_int(like)
    return (
        xp.asarray(i, dtype=index, device=place),
        xp.asarray(j, dtype=index, device=place),
        xp.asarray(mass, dtype=wide_float(like), device=place),
    )


def _rank_pairs(n: int, m: int) -> tuple[HostArray, ...]:
    # Rank i of n ends at (i + 1) m and rank j of m at (j + 1) n, in units of 1 / (n m): integers are exact.
    shared = math.gcd(n, m)
    ends = np.empty(n + m - shared, dtype=np.int64)
    for own, other in ((n, m), (m, n)):
        rank = np.arange(1, own + 1)
        # The place of an end: own ends up to it, and those of the other cloud, less the common ones.
        ends[rank + rank * other // own - rank * shared // own - 1] = rank * other
    mass = np.diff(ends, prepend=0) / (n * m)
    return (ends - 1) // m, (ends - 1) // n, mass


_kept_rank_pairs = functools.lru_cache(maxsize=4)(_rank_pairs)


merge_quantiles: Operation[Pairs] = Operation("merge_quantiles")
"""merge_quantiles(ix (slices, ..., n), iy (slices, ..., m), x, y, other_side) -> Pairs.

Couples weighted clouds, given the order of their points in every slice. `other_side` is as in :func:`couple`.
"""


@merge_quantiles.implementation(
    "numba", lambda ix, *_: rows_refusal(ix), plain_work=lambda ix, iy, *_: PlainWork.of(ix, iy, times=4)
)
def _merge_quantiles_numba(ix: Array, iy: Array, x: ReadyCloud, y: ReadyCloud, other_side: bool) -> Pairs:
    from orthoslice.backend.kernels.numba.weighted import merge_orders

    lead, (rows_x, rows_y) = flat_rows(ix, iy)
    mass_x, mass_y = flat_masses(lead, x, y)
    merged = merge_orders(rows_x, rows_y, mass_x, mass_y, meeting_slack(x, y) if other_side else None)
    return Pairs(*(a.reshape(*lead, -1) for a in merged))


@merge_quantiles.implementation("reference", lambda *_: None)
def _merge_quantiles(ix: Array, iy: Array, x: ReadyCloud, y: ReadyCloud, other_side: bool) -> Pairs:
    xp = namespace(ix)
    total = total_mass(x.points)
    ends = [_ends(order, cloud.masses) for order, cloud in ((ix, x), (iy, y))]
    batch = np.broadcast_shapes(tuple(ends[0].shape[:-1]), tuple(ends[1].shape[:-1]))
    ends = [xp.broadcast_to(e, (*batch, e.shape[-1])) for e in ends]
    ix, iy = (xp.broadcast_to(i, (*batch, i.shape[-1])) for i in (ix, iy))
    both = xp.concat(ends, axis=-1)
    order = xp.argsort(both, axis=-1, stable=True)
    merged = xp.take_along_axis(both, order, axis=-1)
    ends_x = order < x.n
    first = xp.zeros_like(merged[..., :1])
    masses = xp.diff(merged, axis=-1, prepend=first)
    if other_side:
        meeting = xp.cumulative_sum(xp.astype(masses > meeting_slack(x, y), ix.dtype), axis=-1)
        # A stable sort of the reversed row reverses each run of equal entries: points that end together.
        turned = xp.argsort(xp.flip(meeting, axis=-1), axis=-1, stable=True)
        ends_x = xp.take_along_axis(xp.flip(ends_x, axis=-1), turned, axis=-1)
    # The number of points of a cloud used up before pair k: its ends among the first k ends.
    used_x = xp.cumulative_sum(xp.astype(ends_x, ix.dtype), axis=-1) - xp.astype(ends_x, ix.dtype)
    used_y = xp.cumulative_sum(xp.astype(~ends_x, ix.dtype), axis=-1) - xp.astype(~ends_x, ix.dtype)
    mass = xp.astype(masses, wide_float(x.points)) / total
    return Pairs(
        xp.take_along_axis(ix, xp.clip(used_x, 0, x.n - 1), axis=-1),
        xp.take_along_axis(iy, xp.clip(used_y, 0, y.n - 1), axis=-1),
        mass,
        ends_x,
    )


def meeting_slack(x: Cloud, y: Cloud) -> int:
    """How far rounding of weights may move two equal cumulative masses apart, in units of mass.

    A weight is off by its own rounding and by a unit. At most an eighth of the mean mass of a point.
    """
    total = total_mass(x.points)
    rounded = 4 * float(namespace(x.points).finfo(wide_float(x.points)).eps) * total
    return min(int(rounded) + x.n + y.n, total // (8 * max(x.n, y.n)))


def flat_rows(*arrays: Array) -> tuple[tuple[int, ...], list[HostArray]]:
    """The shared leading axes of NumPy arrays `(..., n)`, and the arrays as tables, a row for each place."""
    lead = np.broadcast_shapes(*(a.shape[:-1] for a in arrays))
    return lead, [_table(a, lead) for a in arrays]


def flat_masses(lead: tuple[int, ...], *clouds: ReadyCloud) -> list[HostArray]:
    """Integer masses `(batch, n)` of NumPy clouds that are projected to `lead = (slices, *batch)`."""
    return [_table(c.masses, lead[1:]) for c in clouds]


def _table(array: Any, lead: tuple[int, ...]) -> HostArray:
    return np.broadcast_to(array, (*lead, array.shape[-1])).reshape(-1, array.shape[-1])


def _ends(order: Array, mass: Array | None) -> Array:
    """Cumulative masses in the order of every slice."""
    xp = namespace(order)
    return xp.cumulative_sum(xp.take_along_axis(xp.broadcast_to(mass, order.shape), order, axis=-1), axis=-1)


def powered_norm(difference: Array, p: float) -> Array:
    """|difference|^p over the last axis, with a gradient of 0 at 0."""
    xp = namespace(difference)
    square = xp.sum(difference * difference, axis=-1)
    if p == 2:
        return square
    # The root has no slope at 0, so zeros are replaced by 1 before it; NaN passes.
    apart = square != 0
    safe = xp.where(apart, square, xp.ones_like(square))
    return xp.where(apart, safe ** (p / 2), xp.zeros_like(square))


@dataclass(frozen=True, eq=False)
class Coupling:
    """A coupling of two clouds: pair k moves `mass[k]` from `x[ix[k]]` to `y[iy[k]]`.

    Examples
    --------
    >>> import orthoslice as osl
    >>> coupling = osl.induced_coupling([[0.0], [2.0]], [[3.0], [1.0]], [1.0])
    >>> coupling.ix.tolist(), coupling.iy.tolist(), coupling.mass.tolist(), float(coupling.cost(1))
    ([0, 1], [1, 0], [0.5, 0.5], 1.0)
    >>> coupling.to_dense()
    array([[0. , 0.5],
           [0.5, 0. ]])
    """

    x: Array
    y: Array
    ix: Array
    iy: Array
    mass: Array
    direction: Array | None = None
    """The direction that induced it, `(dim,)`, if a single one did."""

    def cost(self, p: float = 2) -> Array:
        """What the coupling costs, `sum_k mass[k] * |x[ix[k]] - y[iy[k]]|^p`: an upper bound on W_p^p.

        Examples
        --------
        >>> import numpy as np, orthoslice as osl
        >>> x, y = np.array([[0.0, 0.0], [1.0, 0.0]]), np.array([[0.0, 1.0], [1.0, 1.0]])
        >>> float(osl.induced_coupling(x, y, np.array([1.0, 0.0])).cost(p=1))
        1.0
        """
        p = check_p(p)
        xp = namespace(self.x)
        x, y, scale = unit_scale(Cloud(self.x), Cloud(self.y), p)
        difference = gather_points(x.points, self.ix) - gather_points(y.points, self.iy)
        costs = xp.astype(powered_norm(difference, p), wide_float(self.x))
        total = xp.astype(xp.sum(self.mass * costs, axis=-1), self.x.dtype)
        return rescaled(total, scale, p)

    def to_sparse(self) -> coo_array:
        """The coupling as a SciPy sparse array `(n, m)`."""
        from scipy.sparse import coo_array

        entries = (to_numpy(self.mass), (to_numpy(self.ix), to_numpy(self.iy)))
        plan = coo_array(entries, shape=(self.x.shape[0], self.y.shape[0]))
        plan.sum_duplicates()
        return plan

    def to_dense(self) -> HostArray:
        """The coupling as a NumPy array `(n, m)` whose rows sum to x's weights and columns to y's."""
        return np.asarray(self.to_sparse().toarray())

    def __repr__(self) -> str:
        n, m, pairs = self.x.shape[0], self.y.shape[0], self.ix.shape[-1]
        return f"Coupling of {n} with {m} points by {pairs} pairs"


@answers_other_names
def induced_coupling(
    x: Any, y: Any, direction: Any, *, x_weights: Any = None, y_weights: Any = None
) -> Coupling:
    """The coupling of two clouds that matches their projections on one direction by order.

    Definition 3.1 of the paper, with weights and unequal sizes. Points with the same projection are taken in
    lexicographic order of their coordinates. The cost of any such coupling is an upper bound on W_p^p; see
    :func:`wasserstein_bounds` for the cheapest of many.

    Parameters
    ----------
    x, y
        Clouds `(n, dim)` and `(m, dim)`.
    direction
        A unit vector `(dim,)`.
    x_weights, y_weights
        Weights `(n,)` and `(m,)` that sum to 1; uniform when None.

    Examples
    --------
    >>> import numpy as np, orthoslice as osl
    >>> x, y = np.array([[0.0], [2.0]]), np.array([[3.0], [1.0], [5.0]])
    >>> coupling = osl.induced_coupling(x, y, np.array([1.0]))
    >>> coupling
    Coupling of 2 with 3 points by 4 pairs
    >>> (6 * coupling.to_dense()).round(12).tolist()
    [[1.0, 2.0, 0.0], [1.0, 0.0, 2.0]]
    """
    cloud_x, cloud_y = single_clouds(x, y, x_weights, y_weights)
    xp = namespace(cloud_x.points)
    row = check_direction(direction, cloud_x)
    theta = DenseDirections(xp.astype(row, projection_dtype(cloud_x.points)))
    ready = make_ready(*centred(detached(cloud_x), detached(cloud_y)), for_ties=True)
    px, py = (c.project(theta, slice(0, 1), widely=True) for c in ready)
    pairs = couple(px, py, *ready)
    pairs = pairs._replace(mass=pairs.mass + unreadable_nan(theta.theta, cloud_x.weights, cloud_y.weights))
    ix, iy = (xp.take(c.order, i[0, :]) for c, i in zip(ready, (pairs.ix, pairs.iy), strict=True))
    mass = xp.broadcast_to(pairs.mass if pairs.mass.ndim == 1 else pairs.mass[0, :], ix.shape)
    if is_readable(mass):
        kept = xp.asarray(np.flatnonzero(to_numpy(mass)), device=device(mass))
        ix, iy, mass = (xp.take(a, kept) for a in (ix, iy, mass))
    return Coupling(cloud_x.points, cloud_y.points, ix, iy, mass, row[0, :])


def unreadable_nan(*arrays: Array | None) -> Array | float:
    """NaN if an array that could not be checked holds NaN, else 0: to be added to a result.

    Orders and integers do not propagate NaN.
    """
    total: Array | float = 0.0
    for array in arrays:
        if array is not None and not is_readable(array):
            total = total + 0 * namespace(array).sum(array)
    return total
