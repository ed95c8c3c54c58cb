"""The largest slice: directions along which two clouds are farthest apart, by ascent from many starts."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Any

import numpy as np

from orthoslice.applications.ascent import Effort, Landscape, most_different, spread_directions
from orthoslice.applications.covering import MOST_DIMENSIONS, coupling_bound, cover
from orthoslice.applications.distances import sliced_wasserstein
from orthoslice.backend.arrays import RNG, Array, HostArray, Key, detach, device, namespace, resolve_rng
from orthoslice.check.names import answers_other_names
from orthoslice.check.options import check_memory, check_p, check_tolerance
from orthoslice.clouds.cloud import Cloud, detached, numpy_clouds, single_clouds
from orthoslice.clouds.conditioning import centred, unit_scale
from orthoslice.clouds.ready import as_given, with_masses
from orthoslice.costs.scores import Sliced
from orthoslice.directions import Orthogonal
from orthoslice.directions.base import check_count, dense_rows
from orthoslice.directions.walks import sweep_directions
from orthoslice.estimates.request import plan_layout
from orthoslice.estimates.result import Estimate

# Ascents go on until a step gains less than this, and are then polished.
_LAST_STEPS, _LEAST_GAIN = 200, 1e-12

# Directions that a covering looks at before it says what it has.
_MOST_COVERED = 1 << 20


@dataclass(frozen=True, eq=False, repr=False)
class MaxSliced:
    """The largest slices of two clouds that were found.

    Attributes
    ----------
    value, distance
        W_p^p and W_p along the first direction, scalars of the clouds' library: never more than those along the
        best of all directions, max-SW_p. Differentiable for torch and JAX.
    values, distances
        Those of all `k` directions, `(k,)`, the largest first.
    directions
        `(k, dim)`, orthonormal rows in NumPy arrays, the largest loading of each positive.
    starts
        W_p at the end of every ascent for the first direction, `(n_starts,)`, the best start first. If many of
        them are equal, it is likely that no direction is better.
    upper
        A certain upper bound on max-SW_p, to rounding. With `rtol`, that of the covering; otherwise what the
        coupling along the best direction allows, mostly far above.
    converged
        Whether `upper` is within `rtol` of `distance`, to rounding; None where it was not asked for.
    seed
        ``rng=result.seed`` repeats it.

    Examples
    --------
    >>> import numpy as np, orthoslice as osl
    >>> x, y = np.random.default_rng(0).normal(size=(2, 300, 5)) * [[[1, 1, 1, 1, 1]], [[1, 1, 1, 1, 3]]]
    >>> found = osl.max_sliced_wasserstein(x, y, rng=0)
    >>> int(np.argmax(found.directions[0])), bool(found.distance <= found.upper)
    (4, True)
    """

    p: float
    directions: HostArray
    starts: HostArray
    seed: int | None
    converged: bool | None
    _along: tuple[Estimate, ...]
    """The estimate along each direction alone, which is exact."""
    _land: Landscape
    """In units of `_scale`."""
    _scale: float
    _bound: float | None
    """That of the covering, in these units."""

    @property
    def value(self) -> Array:
        return self._along[0].value

    @property
    def distance(self) -> Array:
        return self._along[0].distance

    @property
    def values(self) -> Array:
        return namespace(self.value).stack([est.value for est in self._along])

    @property
    def distances(self) -> Array:
        return namespace(self.value).stack([est.distance for est in self._along])

    @functools.cached_property
    def upper(self) -> float:
        bound = coupling_bound(self._land, self.directions[0]) if self._bound is None else self._bound
        return max(self._scale * bound, float(detach(self.distance)))

    def __repr__(self) -> str:
        upper = "" if self.converged is None else f" <= {self.upper:.6g}"
        return f"MaxSliced({float(detach(self.distance)):.6g} <= max-SW_{self.p:g}{upper})"


@answers_other_names
def max_sliced_wasserstein(
    x: Any,
    y: Any,
    p: float = 2,
    *,
    k: int = 1,
    x_weights: Any = None,
    y_weights: Any = None,
    n_starts: int = 16,
    n_directions: int = 1024,
    rtol: float | None = None,
    rng: RNG = None,
    memory: int | str = "256MB",
) -> MaxSliced:
    """The direction along which two clouds are farthest apart: max-sliced Wasserstein, and `k` orthogonal ones.

    max-SW_p is the largest W_p of the clouds projected on any direction; SW_p <= max-SW_p <= W_p. Where few
    directions matter among many, as in high dimension, SW_p averages them away and this does not. What is found
    is a **lower bound** on it, the best of several local maxima; in up to 3 dimensions `rtol` asks for a
    certain upper bound beside it.

    Parameters
    ----------
    x, y
        Clouds `(n, dim)` and `(m, dim)` of one array library, lists or data frames. The search is done by
        NumPy, over at most 4,096 points of each; its end goes over all points.
    p
        The power, at least 1.
    k
        How many directions: each is the largest found orthogonal to those before it.
    x_weights, y_weights
        Weights `(n,)` and `(m,)` that sum to 1; uniform when None.
    n_starts
        How many ascents there are for each of them.
    n_directions
        How many directions are drawn. The best of them, of the axes, of the difference of the means and of the
        directions in which covariances differ most are the starts.
    rtol
        In 1 to 3 dimensions, go over the whole sphere until `upper` is within ``rtol * distance``, and take the
        best direction of all that were seen. The number of directions to look at grows like ``1 / rtol``; after
        about a million the bounds reached by then are given, with `converged` False.
    rng
        As in :func:`sliced_wasserstein`.
    memory
        Working memory in bytes or as text, beyond the clouds.

    Returns
    -------
    MaxSliced
        `value`, `distance`, `directions`, `values`, the outcomes of all `starts`, and `upper`.

    Notes
    -----
    The gradient of `value` is that of W_p^p along the direction found, held fixed: where the direction is a
    smooth maximum this is the gradient of the maximum (envelope theorem). Maxima of small clouds that differ
    little lie on ridges, where couplings change; there it is the gradient of one of them. For the others among
    `k` it is the gradient with all directions fixed. On NumPy, it is that of
    ``osl.value_and_grad(x, y, p, directions=found.directions[:1])``.

    Two samples of one law are apart along the direction that separates them best, the more so the more
    dimensions there are: p-values for this are not here; see :func:`two_sample_test`.

    Examples
    --------
    >>> import numpy as np, orthoslice as osl
    >>> rng = np.random.default_rng(0)
    >>> x, y = rng.normal(size=(500, 30)), rng.normal(size=(500, 30))
    >>> y[:, 7] += 2
    >>> found = osl.max_sliced_wasserstein(x, y, rng=0)
    >>> int(np.argmax(found.directions[0])), round(float(found.directions[0, 7]), 1)
    (7, 1.0)
    >>> bool(found.distance > 3 * osl.sliced_wasserstein(x, y, rng=0).distance)
    True

    In space, with a certain bound:

    >>> near = osl.max_sliced_wasserstein(x[:, 5:8], y[:, 5:8], rtol=0.01, rng=0)
    >>> bool(near.distance <= near.upper <= 1.01 * near.distance)
    True
    """
    p = check_p(p)
    given = single_clouds(x, y, x_weights, y_weights)
    plain = tuple(map(detached, given))
    host = numpy_clouds("max_sliced_wasserstein", *plain)
    dim, room = host[0].dim, check_memory(memory)
    n_starts, n_directions = check_count("n_starts", n_starts), check_count("n_directions", n_directions)
    if check_count("k", k) > dim:
        raise ValueError(f"`k` must be at most `dim`, {dim}; got {k}.")
    if check_tolerance("rtol", rtol, *host) is not None and dim > MOST_DIMENSIONS:
        raise ValueError(
            f"`rtol` needs clouds in at most {MOST_DIMENSIONS} dimensions, where the sphere can be covered; "
            f"got {dim}. What is found in more dimensions is a lower bound."
        )
    key, seed = resolve_rng(rng, np.zeros(1))
    scaled_x, scaled_y, scale = unit_scale(*host, p)
    land = Landscape(*centred(*with_masses(as_given(scaled_x), as_given(scaled_y))), p, room)
    drawn = np.concatenate([_drawn(n_directions, dim, p, key), spread_directions(land, key)])
    search = functools.partial(most_different, land, drawn, land.on_axes(), key=key)
    effort = Effort(n_starts, _LAST_STEPS, _LEAST_GAIN, polished=True)
    found = search(1, effort=effort)
    reached, bound, is_done = found[0].reached, None, None
    if rtol is not None:
        covered = cover(land, found[0], rtol, _MOST_COVERED)
        found, bound, is_done = [covered.best], covered.upper, covered.is_done
    found = search(k, effort=effort, known=found)
    theta = np.array([_turned(f.theta) for f in sorted(found, key=lambda f: -f.score)])
    along = tuple(_along(given, row, p) for row in theta)
    return MaxSliced(
        p=p,
        directions=theta,
        starts=scale * np.sort(reached)[::-1] ** (1 / p),
        seed=seed,
        converged=is_done,
        _along=along,
        _land=land,
        _scale=scale,
        _bound=bound,
    )


def _drawn(n_directions: int, dim: int, p: float, key: Key) -> HostArray:
    """Orthogonal directions in float64, `(n_directions, dim)`."""
    sampler, layout = plan_layout(Orthogonal(), n_directions, dim, Sliced(), p, adaptive=False)
    pieces = sweep_directions(sampler, layout, key, dim, np.dtype(np.float64), n_directions)
    return np.concatenate([dense_rows(piece.directions, piece.rows) for piece in pieces])


def _turned(theta: HostArray) -> HostArray:
    """Of theta and -theta, which are one direction, the one whose largest loading is positive."""
    return np.asarray(theta * np.sign(theta[np.argmax(np.abs(theta))]))


def _along(clouds: tuple[Cloud, Cloud], theta: HostArray, p: float) -> Estimate:
    """W_p^p of the clouds, as they were given, along `theta (dim,)`."""
    x, y = clouds
    row = namespace(x.points).asarray(theta[None], dtype=x.dtype, device=device(x.points))
    return sliced_wasserstein(x, y, p, directions=row, control=None)
