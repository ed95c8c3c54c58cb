"""Bounds on the Wasserstein distance that hold for certain."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from orthoslice.arrays import RNG, to_numpy
from orthoslice.cloud import Cloud, host_clouds, make_clouds
from orthoslice.costs.pools import mean_shortening
from orthoslice.coupling import Coupling, induced_coupling
from orthoslice.directions import Given
from orthoslice.distances import projected_wasserstein, sliced_wasserstein
from orthoslice.matching import match
from orthoslice.options import check_directions
from orthoslice.orders import in_canonical_order
from orthoslice.result import Estimate


@dataclass(frozen=True, eq=False)
class Bounds:
    """`lower <= W_p <= upper`, both certain, and the coupling whose cost is the upper one."""

    lower: float
    upper: float
    p: float
    coupling: Coupling

    def __repr__(self) -> str:
        return f"Bounds({self.lower:.6g} <= W_{self.p:g} <= {self.upper:.6g})"


def wasserstein_bounds(
    x: Any,
    y: Any,
    p: float = 2,
    *,
    x_weights: Any = None,
    y_weights: Any = None,
    directions: Any = "auto",
    n_directions: int | None = None,
    rng: RNG = None,
    memory: int | str = "256MB",
    workers: int | None = None,
    progress: bool = False,
) -> Bounds:
    """Bound the Wasserstein distance W_p of two clouds from both sides, for certain.

    The lower bound is the largest of: every one-dimensional W_p, the distance of the means, and for every
    whole orthonormal block of directions ``(dim^min(p/2, 1) * mean score)^(1/p)``, which is by far the best.
    The upper bound is the cost of a coupling that :func:`match` makes of the cheapest one that a direction
    induces. No probability is involved: the directions only decide how tight the bounds are. Both are computed
    in float64 and rounded outward.

    Parameters
    ----------
    x, y, p, x_weights, y_weights, directions, n_directions, rng, memory, workers, progress
        As in :func:`sliced_wasserstein`, for single clouds `(n, dim)`.

    Returns
    -------
    Bounds
        `lower` and `upper` as floats, and `coupling` (NumPy arrays), whose cost is ``upper**p``, to rounding.

    Examples
    --------
    >>> import numpy as np, orthoslice as osl
    >>> rng = np.random.default_rng(0)
    >>> x, y = rng.normal(size=(100, 3)), rng.normal(size=(80, 3)) + 1
    >>> bounds = osl.wasserstein_bounds(x, y, rng=0)
    >>> 1.5 < bounds.lower < bounds.upper < 3
    True
    """
    sampler = check_directions(directions, make_clouds(x, y)[0])
    cloud_x, cloud_y = host_clouds("wasserstein_bounds", x, y, x_weights, y_weights)
    weights = {"x_weights": cloud_x.weights, "y_weights": cloud_y.weights}
    plan: dict[str, Any] = {"memory": memory, "workers": workers, "progress": progress, **weights}
    if isinstance(sampler, Given):
        theta = to_numpy(sampler.theta).astype(np.float64)
        sampler = Given(theta=theta / np.linalg.norm(theta, axis=1, keepdims=True))
    sliced = sliced_wasserstein(
        cloud_x.points, cloud_y.points, p, directions=sampler, n_directions=n_directions, rng=rng, **plan
    )
    same: dict[str, Any] = {
        "directions": sliced.directions,
        "n_directions": sliced.n_directions,
        "rng": sliced.seed,
    }
    projected = projected_wasserstein(cloud_x.points, cloud_y.points, p, **same, **plan)
    best = int(np.argmin(np.asarray(projected._scores)))
    direction = sliced.directions.row(best, sliced.n_directions, cloud_x.dim, sliced.seed)
    matched = match(cloud_x.points, cloud_y.points, p, directions=direction[None, :], rng=sliced.seed, **plan)
    single = induced_coupling(cloud_x.points, cloud_y.points, direction, **weights)
    # Where rounding decides, as among equal clouds, the simpler coupling is the better one.
    upper, coupling = min(
        ((_upper(cloud_x, cloud_y, c, projected), c) for c in (single, matched)), key=lambda found: found[0]
    )
    return Bounds(_lower(cloud_x, cloud_y, sliced), upper, sliced.p, coupling)


def _slack(dim: int) -> float:
    """A relative error that no sum over coordinates, transform or orthonormalisation here can reach."""
    return 32 * (dim + 16) * float(np.finfo(np.float64).eps)


def _lower(x: Cloud, y: Cloud, sliced: Estimate) -> float:
    """The largest certain lower bound, less what rounding may have added to it."""
    p, dim, sampler = sliced.p, x.dim, sliced.directions
    ambient = sampler.ambient_dim(dim)
    # Rows of a padded space may be shorter than 1: only their plain cost on the line is a bound.
    costs = np.asarray(sliced._scores) * mean_shortening(dim, ambient, p)
    rows = sampler.block_rows(sliced.n_directions, dim)
    candidates = [costs.max()]
    stretch = 1.0
    if sampler.is_tight(rows, dim):
        stretch = rows ** min(1 / 2, 1 / p)
        whole = costs[: len(costs) // rows * rows].reshape(-1, rows)
        candidates.append((stretch**p * whole.mean(axis=1)).max())
    one_dimensional = max(candidates) ** (1 / p)
    # In units of `scale` nothing overflows.
    x, y = (Cloud(c.points / sliced._scale, c.weights) for c in (x, y))
    offset = max(float(np.abs(c.points).max()) for c in (x, y)) * math.sqrt(dim)
    origin = x.points[0].copy()
    x, y = (Cloud(c.points - origin, c.weights) for c in (x, y))
    size = max(float(np.abs(c.points).max()) for c in (x, y)) * math.sqrt(dim)
    gap = float(np.linalg.norm(_mean(x) - _mean(y)))
    # A projection is off by a few roundings of the points' size, and so is every distance on the line.
    slack = _slack(ambient + int(math.log2(x.n + y.n)))
    error = stretch * (slack * size + 8 * float(np.finfo(np.float64).eps) * offset) + _weight_error(
        x, y, p, size
    )
    return float(sliced._scale * max(0.0, max(one_dimensional, gap) * (1 - slack) - error))


def _mean(cloud: Cloud) -> Any:
    # Along the last axis NumPy adds in pairs, so that the error grows with log n only.
    columns = np.ascontiguousarray(cloud.points.T)
    return columns.mean(axis=1) if cloud.weights is None else (columns * cloud.weights).sum(axis=1)


def _weight_error(x: Cloud, y: Cloud, p: float, size: float) -> float:
    """How far the rounding of weights to integer masses can move W_p: mass tau over twice the size."""
    tau = sum(c.n * 2.0**-61 + 2.0**-51 for c in (x, y) if c.weights is not None)
    return 2 * size * tau ** (1 / p) if tau else 0.0


def _upper(x: Cloud, y: Cloud, coupling: Coupling, projected: Estimate) -> float:
    """The p-th root of the coupling's cost, rounded up; nothing cancels in it, so the error is relative."""
    p, scale = projected.p, projected._scale
    x, y = (Cloud(c.points / scale, c.weights) for c in (x, y))
    scaled = Coupling(x.points, y.points, coupling.ix, coupling.iy, coupling.mass)
    slack = _slack(x.dim + int(math.log2(len(coupling.mass))))
    cost = float(scaled.cost(p)) ** (1 / p) * (1 + slack)
    if cost == 0 and _same(x, y):
        return 0.0
    size = max(float(np.abs(c.points - x.points[0]).max()) for c in (x, y)) * math.sqrt(x.dim)
    return float(scale * (cost + _weight_error(x, y, p, size)))


def _same(x: Cloud, y: Cloud) -> bool:
    (_, x), (_, y) = in_canonical_order(x), in_canonical_order(y)
    weights = [np.zeros(0) if c.weights is None else c.weights for c in (x, y)]
    return np.array_equal(x.points, y.points) and np.array_equal(weights[0], weights[1])
