"""Sliced distances of points on a sphere: by random great circles, or by stereographic projections."""

from __future__ import annotations

import math
from typing import Any, Literal

import numpy as np

from orthoslice.applications.spherical.circle import UNIFORM, refuse_law
from orthoslice.backend.arrays import (
    RNG,
    Array,
    HostArray,
    detach,
    float_info,
    is_readable,
    is_traced,
    library,
    namespace,
    to_numpy,
)
from orthoslice.check.inputs import as_array, check_finite
from orthoslice.check.names import answers_other_names
from orthoslice.check.options import check_p
from orthoslice.clouds.cloud import make_clouds
from orthoslice.costs.circle import check_circle_p
from orthoslice.costs.spheres import GreatCircles, GreatCirclesToUniform, Spherical, Stereographic
from orthoslice.directions import Planes, Sampler
from orthoslice.directions.planes import GivenPlanes
from orthoslice.estimates.entry import estimate_distance
from orthoslice.estimates.request import Options
from orthoslice.estimates.result import Estimate

_SCORES: dict[str, tuple[str, Spherical]] = {
    "great_circles": ("SSW", GreatCircles()),
    "stereographic": ("S3W", Stereographic()),
}

_PLANES: dict[str, Sampler] = {"auto": Planes(), "orthogonal": Planes(), "iid": Planes(block_size=1)}


@answers_other_names
def spherical_sliced_wasserstein(
    x: Any,
    y: Any,
    p: float = 2,
    *,
    geometry: Literal["great_circles", "stereographic"] = "great_circles",
    x_weights: Any = None,
    y_weights: Any = None,
    directions: Any = "auto",
    n_directions: int | None = None,
    rtol: float | None = None,
    atol: float | None = None,
    rng: RNG = None,
    memory: int | str = "256MB",
    workers: int | None = None,
    progress: bool = False,
) -> Estimate:
    """Estimate the spherical sliced Wasserstein distance of two clouds of unit vectors, with an error bar.

    SSW_p^p is the mean, over random great circles, of W_p^p between the clouds on the circle, where every point
    goes to the nearest point of the circle (Bonet et al., 2023). For normalised embeddings, directions, places
    on the globe. Distances are in turns: half a turn, 0.5, is as far as points can be apart.

    Parameters
    ----------
    x, y
        Unit vectors `(n, dim)` and `(m, dim)`, or `(..., n, dim)`, as in :func:`sliced_wasserstein`. As `y`,
        ``"uniform"`` is the uniform law on the sphere: with ``"great_circles"``, exact on every circle.
    p
        The power, at least 1; at most 19 (5 in JAX without 64 bits).
    geometry
        How a direction, a random plane, makes a line or a circle of the sphere. ``"great_circles"`` cuts the
        sphere with the plane. ``"stereographic"`` takes its first axis as the pole, unrolls the sphere without
        it to a ball of radius 1, and projects that on the second axis (S3W; Tran et al., 2024): a sort in place
        of a search, in other units. The value is the mean over poles and lines at once.
    x_weights, y_weights
        Weights `(..., n)` and `(..., m)` that sum to 1; uniform when None. Great circles give no gradient by
        them.
    directions
        ``"orthogonal"`` or ``"auto"`` for blocks of planes from one orthonormal basis each,
        ``"iid"`` for independent ones; :class:`orthoslice.directions.Planes`; or orthonormal pairs
        `(slices, 2, dim)`, pole first. The same pole in all of them is the distance for that pole.
    n_directions, rtol, atol, rng, memory, workers, progress
        As in :func:`sliced_wasserstein`, for planes.

    Returns
    -------
    Estimate
        `value` (SSW_p^p) and `distance` (SSW_p), their standard errors and intervals, and how to repeat it.
        Gradients by points are along the sphere for ``"great_circles"``.

    Notes
    -----
    Points of the plane lie on one circle already: :func:`circular_wasserstein` is exact there.

    Examples
    --------
    >>> import numpy as np, orthoslice as osl
    >>> rng = np.random.default_rng(0)
    >>> x, y = rng.normal(size=(200, 3)) + 1, rng.normal(size=(300, 3))
    >>> x, y = (c / np.linalg.norm(c, axis=1, keepdims=True) for c in (x, y))
    >>> est = osl.spherical_sliced_wasserstein(x, y, rng=0)
    >>> low, high = est.distance_interval(0.95)
    >>> bool(low < est.distance < high), est.n_directions
    (True, 129)
    >>> bool(osl.spherical_sliced_wasserstein(y, "uniform", rng=0) < est)
    True
    """
    name, score = check_geometry(geometry, y)
    if isinstance(y, str):
        if y_weights is not None:
            raise ValueError("`y_weights` must be None for the uniform law.")
        y, y_weights = _without_tape(x), x_weights
    cloud_x, cloud_y = make_clouds(x, y, x_weights, y_weights)
    for which, cloud in (("x", cloud_x), ("y", cloud_y)):
        check_on_sphere(which, cloud.points)
    check_circle_p(check_p(p), cloud_x.points)
    sampler = check_planes(directions, cloud_x.dim)
    if isinstance(sampler, GivenPlanes):
        rng = 0  # nothing is drawn
    options = Options(sampler, n_directions, rtol, atol, None, rng, memory, workers, progress)
    given = cloud_x.points, cloud_y.points, cloud_x.weights, cloud_y.weights
    return estimate_distance(name, score, given, p, options)


def _without_tape(x: Any) -> Any:
    return x if library(x) is None else detach(x)


def check_geometry(geometry: Any, y: Any, name: str = "y") -> tuple[str, Spherical]:
    """The name of the distance and its score, from the names that the user gave."""
    refuse_law(name, y)
    if geometry not in _SCORES:
        raise ValueError(f"`geometry` must be one of {sorted(_SCORES)}; got {geometry!r}.")
    if not isinstance(y, str):
        return _SCORES[geometry]
    if y != UNIFORM:
        raise ValueError(f'The only law that has a name here is "{UNIFORM}"; got {y!r}.')
    if geometry != "great_circles":
        raise ValueError(f'"{UNIFORM}" goes with `geometry="great_circles"`; got {geometry!r}.')
    return "SSW", GreatCirclesToUniform()


def check_on_sphere(name: str, points: Array) -> None:
    """Raise unless points that can be looked at are unit vectors, of dim 2 or more."""
    if points.shape[-1] < 2:
        raise ValueError(f"`{name}` must have dim 2 or more to lie on a sphere; got {tuple(points.shape)}.")
    if not is_readable(points):
        return
    table = to_numpy(points)
    off = np.abs(np.sqrt(np.vecdot(table, table)) - 1)
    tolerance = max(1e-6, math.sqrt(float(float_info(namespace(points), points.dtype).eps)))
    if not off.max() <= tolerance:
        where = tuple(int(k) for k in np.argwhere(~(off <= tolerance))[0])
        raise ValueError(
            f"`{name}` must lie on the unit sphere; the point at {where} has norm "
            f"{np.linalg.norm(table[where]):.6g}. Divide by the norms first."
        )


def check_planes(directions: Any, dim: int) -> Sampler:
    """The sampler of planes that `directions` stands for."""
    if isinstance(directions, str) and directions in _PLANES:
        return _PLANES[directions]
    if isinstance(directions, Planes | GivenPlanes):
        return directions
    if isinstance(directions, str | Sampler) or directions is None:
        raise ValueError(
            f"`directions` must be one of {sorted(_PLANES)}, `osl.directions.Planes()` or orthonormal pairs "
            f"(slices, 2, dim); got {directions!r}."
        )
    array = as_array("directions", directions)
    if is_traced(array):
        raise TypeError("`directions` of planes need values and cannot be traced (jit, grad or vmap).")
    frames = np.asarray(to_numpy(array), dtype=np.float64)
    if frames.ndim != 3 or frames.shape[1:] != (2, dim) or not len(frames):
        raise ValueError(f"`directions` must have shape (slices, 2, {dim}); got {frames.shape}.")
    check_finite("directions", frames)
    return GivenPlanes(frames=_orthonormal(frames))


def _orthonormal(frames: HostArray) -> HostArray:
    """The frames; raises if they are further from orthonormal than float32 rounds."""
    off = np.abs(frames @ np.swapaxes(frames, 1, 2) - np.eye(2)).max(axis=(1, 2))
    if off.max() > 1e-5:
        raise ValueError(
            "`directions` must be orthonormal pairs of rows; "
            f"pair {int(np.argmax(off))} is off by {off.max():.2g}."
        )
    return frames
