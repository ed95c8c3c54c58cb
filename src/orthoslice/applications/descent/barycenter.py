"""Clouds in the middle of others."""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from dataclasses import replace
from typing import Any, Literal

import numpy as np

from orthoslice.applications.descent.descent import (
    Descent,
    DescentOptions,
    mean_point,
    mean_square,
    move,
    weighted_sum,
)
from orthoslice.applications.descent.step_size import Callback
from orthoslice.backend.arrays import RNG, Array, device, is_traced, namespace, resolve_rng, to_numpy
from orthoslice.check.inputs import as_array, on_host
from orthoslice.check.many_clouds import in_order, named_clouds, weights_of_points
from orthoslice.check.names import answers_other_names
from orthoslice.clouds.cloud import Cloud, detached, make_clouds
from orthoslice.directions.base import check_count

# Start points that are copies of a cloud's points get normal noise of _APART standard deviations of the cloud:
# enough to order copies on every line, too little to be seen.
_APART = 1e-3


@answers_other_names
def barycenter(
    clouds: Any,
    weights: Any = None,
    *,
    n_points: int | None = None,
    method: Literal["sliced", "projected"] = "sliced",
    p: float = 2,
    point_weights: Any = None,
    initial: Any = None,
    directions: Any = "auto",
    n_directions: int | None = None,
    fresh: bool = True,
    n_steps: int = 300,
    rtol: float = 0.01,
    rng: RNG = None,
    callback: Callback | None = None,
    memory: int | str = "256MB",
    workers: int | None = None,
    progress: bool = False,
) -> Descent:
    """A cloud in the middle of others: it minimises the weighted mean of SW_2^2, or of PW_2^2, to them.

    Its points may lie anywhere (free support) and weigh the same. There is no learning rate: with couplings
    held fixed the best place of every point is known, and steps go there.

    Parameters
    ----------
    clouds
        Clouds `(n, dim)` of one array library, whose sizes may differ: a sequence, a mapping from names, pairs
        ``(name, cloud)``, or an array `(clouds, n, dim)`.
    weights
        The share of each cloud, `(clouds,)` or by name, with sum 1; equal shares when None.
    n_points
        Points of the answer; as many as the largest cloud has when None.
    method
        ``"sliced"`` minimises SW_2^2. ``"projected"`` minimises PW_2^2, which keeps the shape of translated
        copies, and draws points together where couplings of different directions disagree: of Gaussian
        clouds it is about `dim` times narrower than they are.
    p
        2; steps have a known length for no other power.
    point_weights
        For each cloud, in order or by name, the weights `(n,)` of its points, with sum 1, or None where they
        are uniform.
    initial
        Where to begin, `(n_points, dim)`. When None, at points of the heaviest cloud that has enough of
        them, moved to the weighted mean of the means of the clouds.
    directions
        As in :func:`sliced_wasserstein`. An array is one fixed set.
    n_directions
        Directions of a step. None means a dozen orthonormal blocks, of 32 to 512 directions; 256 or more if
        they are not fresh.
    fresh
        Whether every step draws directions of its own, which is what leads to the barycenter itself. If not,
        the sliced objective never rises, and the answer is the barycenter for those directions.
    n_steps
        Most steps to make.
    rtol
        Stop when the points are this near to where they would end, in units of the spread of the clouds.
    rng
        As in :func:`sliced_wasserstein`.
    callback
        A function ``(step, points, value)``, called after every step; if it returns True, that was the last.
    memory, workers
        As in :func:`sliced_wasserstein`.
    progress
        Show a progress bar on stderr.

    Returns
    -------
    Descent
        `points`, the `history` of the objective, whether it `converged`, and how to repeat it.

    Notes
    -----
    The objective is not convex: where points begin decides which of several like answers is found. Along a
    line it is convex, and the answer has the averaged quantiles of the clouds.

    Examples
    --------
    >>> import numpy as np, orthoslice as osl
    >>> rng = np.random.default_rng(0)
    >>> small, large = rng.normal(size=(400, 2)), 3 * rng.normal(size=(500, 2)) + 8
    >>> middle = osl.barycenter([small, large], [0.75, 0.25], rng=0)
    >>> middle.converged, middle.points.shape
    (True, (500, 2))
    >>> middle.points.mean(axis=0).round(1).tolist(), float(middle.points.std().round(1))
    ([2.0, 2.0], 1.5)
    """
    named = _check_named(clouds)
    many = _check_clouds(named, point_weights)
    shares = _check_shares(weights, list(named))
    _, seed = resolve_rng(rng, np.zeros(1))
    assert seed is not None
    if initial is None:
        n = max(c.n for c in many) if n_points is None else check_count("n_points", n_points)
        start = Cloud(_start(many, shares, n, seed))
    else:
        start, many = _check_initial(initial, n_points, many)
    options = DescentOptions(
        method, p, directions, n_directions, fresh, n_steps, rtol, callback, memory, workers, progress
    )
    return move("Barycenter", start, many, shares, seed, options)


def _check_named(clouds: Any) -> dict[Hashable, Any]:
    """Clouds by their names, or by their numbers."""
    if len(getattr(clouds, "shape", ())) == 2 and not hasattr(clouds, "columns"):
        raise ValueError(
            f"`clouds` must be several clouds (n, dim); got one array of shape {tuple(clouds.shape)}. Pass a "
            "list, `[x, y]`, or an array (clouds, n, dim)."
        )
    named, _ = named_clouds(clouds)
    if not named:
        raise ValueError("`clouds` must hold at least one cloud; got none.")
    return named


def _check_clouds(named: dict[Hashable, Any], point_weights: object) -> list[Cloud]:
    """Single clouds of one library, device, dimension and floating type."""
    by_point = weights_of_points(point_weights, list(named))
    made = []
    first_name, first = next(iter(named.items()))
    for (name, cloud), weight in zip(named.items(), by_point, strict=True):
        try:
            _, other = make_clouds(first, cloud, None, weight)
        except (ValueError, TypeError) as error:
            raise type(error)(
                "`clouds` must agree with each other, and `point_weights` with them. Cloud "
                f"{name!r}, called `y` here, beside the first one, {first_name!r}, called `x`: {error}"
            ) from None
        if is_traced(other.points, other.weights):
            raise TypeError(
                "`barycenter` needs values and cannot be traced (jit, grad or vmap). Call it outside."
            )
        if other.batch:
            shape = tuple(other.points.shape)
            raise ValueError(f"Each of `clouds` must have shape (n, dim); cloud {name!r} has {shape}.")
        made.append(detached(other))
    return _of_one_type(made)


def _of_one_type(clouds: Sequence[Cloud]) -> list[Cloud]:
    xp = namespace(clouds[0].points)
    dtype = xp.result_type(*(c.dtype for c in clouds))
    return [c if c.dtype == dtype else replace(c, points=xp.astype(c.points, dtype)) for c in clouds]


def _check_shares(weights: object, names: list[Hashable]) -> list[float]:
    """The share of each cloud, with sum 1."""
    n_clouds = len(names)
    if weights is None:
        return [1 / n_clouds] * n_clouds
    shares = on_host("weights", as_array("weights", in_order("weights", weights, names)))
    if shares.shape != (n_clouds,):
        raise ValueError(
            f"`weights` must have a number a cloud, shape ({n_clouds},); got shape {tuple(shares.shape)}. "
            "Weights of points are passed as `point_weights=`."
        )
    # Written so that NaN is refused.
    if not shares.min() >= 0 or not abs(float(shares.sum()) - 1) <= 1e-6:
        raise ValueError(
            f"`weights` must not be negative and must sum to 1; got {shares.tolist()}. Divide by the sum if "
            "that is what you mean."
        )
    return [float(share) for share in shares / shares.sum(dtype=np.float64)]


def _check_initial(initial: object, n_points: int | None, clouds: list[Cloud]) -> tuple[Cloud, list[Cloud]]:
    try:
        _, start = make_clouds(clouds[0].points, initial)
    except (ValueError, TypeError) as error:
        raise type(error)(f"`initial`, called `y` here, beside the first cloud, called `x`: {error}") from None
    if start.batch or (n_points is not None and n_points != start.n):
        rule = "(n_points, dim)" if n_points is None else f"({n_points}, dim)"
        raise ValueError(f"`initial` must have shape {rule}; got {tuple(start.points.shape)}.")
    first, *others = _of_one_type([detached(start), *clouds])
    return first, others


def _start(clouds: list[Cloud], shares: list[float], n: int, seed: int) -> Array:
    """Points of one cloud, moved to the weighted mean of all."""
    enough = [k for k, c in enumerate(clouds) if c.n >= n]
    if enough:
        # Ties go to the first cloud.
        k = max(enough, key=lambda k: (shares[k], -k))
    else:
        k = max(range(len(clouds)), key=lambda k: clouds[k].n)
    cloud = clouds[k]
    xp = namespace(cloud.points)
    middle = weighted_sum([mean_point(c) for c in clouds], shares)
    moved = cloud.points + (middle - mean_point(cloud))
    rng = np.random.default_rng(seed)
    if cloud.weights is None and cloud.n >= n:
        picked = np.arange(n) if n == cloud.n else np.sort(rng.choice(cloud.n, n, replace=False))
        return moved if n == cloud.n else xp.take(moved, xp.asarray(picked, device=device(moved)), axis=0)
    weights = np.full(cloud.n, 1 / cloud.n) if cloud.weights is None else to_numpy(cloud.weights)
    # Systematic sampling: point k is picked `n * weights[k]` times, rounded up or down.
    ends = np.cumsum(weights.astype(np.float64))
    picked = np.searchsorted(ends / ends[-1], (np.arange(n) + rng.random()) / n, side="right")
    points = xp.take(moved, xp.asarray(np.minimum(picked, cloud.n - 1), device=device(moved)), axis=0)
    deviation = math.sqrt(float(mean_square(cloud, mean_point(cloud))) / cloud.dim)
    noise = _APART * deviation * rng.normal(size=(n, cloud.dim))
    return points + xp.asarray(noise, dtype=cloud.dtype, device=device(moved))
