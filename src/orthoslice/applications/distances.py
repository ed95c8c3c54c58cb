"""The two distances, estimated."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any, Literal, NamedTuple

from orthoslice.backend.arrays import RNG, Array, float_info, is_readable, namespace, to_numpy
from orthoslice.check.inputs import is_dask
from orthoslice.check.names import answers_other_names
from orthoslice.check.options import (
    check_control,
    check_directions,
    check_memory,
    check_n_directions,
    check_p,
    check_tolerance,
    check_workers,
)
from orthoslice.clouds.cloud import Cloud, detached, make_clouds
from orthoslice.clouds.conditioning import (
    is_scaled_on_device,
    largest_coordinate,
    rescaled,
    unit_scale,
    widened,
)
from orthoslice.costs.scores import COSTS, Score, Sliced
from orthoslice.estimates.control import Control
from orthoslice.estimates.driver import estimate, value_and_gradient
from orthoslice.estimates.request import Request, plan_control, plan_layout
from orthoslice.estimates.result import Estimate
from orthoslice.estimates.underflow import is_high_power

METHODS: dict[str, Score] = {"sliced": Sliced(), "projected": COSTS["exact"]}


@answers_other_names
def sliced_wasserstein(
    x: Any,
    y: Any,
    p: float = 2,
    *,
    x_weights: Any = None,
    y_weights: Any = None,
    directions: Any = "auto",
    n_directions: int | None = None,
    rtol: float | None = None,
    atol: float | None = None,
    control: Control | Literal["auto", "gaussian"] | None = "auto",
    rng: RNG = None,
    memory: int | str = "256MB",
    workers: int | None = None,
    progress: bool = False,
) -> Estimate:
    """Estimate the sliced Wasserstein distance of two clouds, with an error bar.

    SW_p^p is the mean, over directions uniform on the sphere, of W_p^p between the clouds projected on a
    direction, which needs only a sort (algorithms 1 and 3 of the paper). SW_p <= W_p always.

    Parameters
    ----------
    x, y
        Clouds `(n, dim)` and `(m, dim)` of one array library, or `(..., n, dim)` for many at once: leading
        axes broadcast and share the directions. Lists and data frames become NumPy arrays; the columns of two
        frames are matched by name, those of a frame and an array by position. Single clouds may be Dask arrays
        or data frames, larger than memory: see :mod:`orthoslice.parallel.dask`.
    p
        The power, at least 1.
    x_weights, y_weights
        Weights `(..., n)` and `(..., m)` that sum to 1; uniform when None.
    directions
        ``"auto"`` picks the kind with an error bar that has the least expected error:
        :class:`orthoslice.directions.Auto` says which and why. Or ``"iid"``, ``"orthogonal"``, ``"hadamard"``,
        ``"equispaced"``, ``"optimized"``, ``"kerdock"``, ``"sobol"``, a sampler from
        :mod:`orthoslice.directions`, or unit rows `(slices, dim)`.
    n_directions
        How many. None means about 8 times ``clip(dim, 16, 128)``.
    rtol, atol
        Draw more directions until the 95% half-width of `distance` is at most ``rtol * distance`` or `atol`.
        Starts with 8 blocks and doubles; `n_directions` (100,000 by default) is then the most to draw, and
        `converged` tells whether that was enough. In high dimension each block has at most 128 rows.
    control
        ``"gaussian"``, which takes off what the clouds' means and covariances explain
        (:class:`orthoslice.control.Gaussian`), or a control variate of your own: less variance from the same
        directions, an unbiased value all the same, but no gradient. ``"auto"`` uses the Gaussian one where it
        helps at little cost: sliced distances in dimensions 12 to 128, of values in host memory (NumPy, torch)
        whose gradient is not wanted, with 256 points or more in all and at least 4 independent blocks, but not
        with ``"iid"`` or your own directions. None is none. ``est.control`` says what was used.
    rng
        An integer, a NumPy ``SeedSequence`` or ``Generator``, a torch ``Generator`` or a JAX key. An integer
        gives the same directions on every library. None draws fresh ones; ``est.seed`` repeats them.
    memory
        Working memory in bytes or as text, beyond the clouds. The number of directions does not change it. In
        host memory a direction takes 3 (n + m) numbers of the clouds' type, 8 (n + m) with gradients, and there
        is always room for one; fewer threads work where not each has room. Of Dask collections, what one task
        may hold.
    workers
        Threads that work on NumPy arrays, or on Dask collections without a cluster; all cores by default. Other
        libraries have their own settings.
    progress
        Show a progress bar on stderr.

    Returns
    -------
    Estimate
        `value` (SW_p^p) and `distance` (SW_p), their standard errors and intervals, and how to repeat it.

    Examples
    --------
    >>> import numpy as np, orthoslice as osl
    >>> rng = np.random.default_rng(0)
    >>> x, y = rng.normal(size=(500, 10)), rng.normal(size=(400, 10)) + 0.5
    >>> est = osl.sliced_wasserstein(x, y, rng=0)
    >>> est.n_directions, est.n_blocks
    (130, 13)
    >>> low, high = est.distance_interval(0.95)
    >>> bool(low < est.distance < high)
    True
    """
    options = Options(directions, n_directions, rtol, atol, control, rng, memory, workers, progress)
    return estimate_distance("SW", Sliced(), (x, y, x_weights, y_weights), p, options)


@answers_other_names
def projected_wasserstein(
    x: Any,
    y: Any,
    p: float = 2,
    *,
    cost: Literal["exact", "pooled", "independent", "paper_pooled"] = "exact",
    x_weights: Any = None,
    y_weights: Any = None,
    directions: Any = "auto",
    n_directions: int | None = None,
    rtol: float | None = None,
    atol: float | None = None,
    control: Control | Literal["auto", "gaussian"] | None = "auto",
    rng: RNG = None,
    memory: int | str = "256MB",
    workers: int | None = None,
    progress: bool = False,
) -> Estimate:
    """Estimate the projected Wasserstein distance of two clouds, with an error bar.

    PW_p^p is the mean, over directions uniform on the sphere, of the full-space cost of the coupling that a
    direction induces by order (algorithms 2 and 4 of the paper). It is a metric, and W_p <= PW_p always.

    Parameters
    ----------
    x, y, p, x_weights, y_weights, directions, n_directions, rtol, atol, control, rng, workers, progress
        As in :func:`sliced_wasserstein`.
    memory
        As there, where a direction takes 48 (n + m) bytes, and twice as many with weights or where n and m
        differ. Points of arrays are copied into an order of their own besides; those of memory maps are not.
    cost
        How a coupling is priced; the first three are unbiased for every p.

        - ``"exact"``: by the full distance |x - y|^p, O(n dim) a direction.
        - ``"pooled"``: by the projections on about 32 other directions (Johnson-Lindenstrauss), O(32 n) a
          direction. Noisier, and cheaper in operations where `dim` is many times 32; on the host the compiled
          exact price was still quicker at dim 2048 (see the guide). With
          orthogonal directions pass ``directions=Orthogonal(block_size=16)`` or so: a coupling's own block
          is left out, and blocks of `dim` rows make the pool as large as `dim`. For p = 2 and whole blocks it
          is the exact price.
        - ``"independent"``: by the projection on one other direction, O(n) a direction, much noisier.
        - ``"paper_pooled"``: the formula printed in the paper. It is biased, since the direction that made a
          coupling also prices it, and since its factor fits p = 2 only. For comparison.

    Returns
    -------
    Estimate
        `value` (PW_p^p) and `distance` (PW_p), their standard errors and intervals, and how to repeat it.

    Notes
    -----
    Points with the same projection are taken in lexicographic order of their coordinates, so that the answer
    does not depend on the order of rows. Gradients treat the couplings as locally constant.

    Examples
    --------
    >>> import numpy as np, orthoslice as osl
    >>> rng = np.random.default_rng(0)
    >>> x, y = rng.normal(size=(50, 3)), rng.normal(size=(50, 3)) + 1
    >>> sw, pw = osl.sliced_wasserstein(x, y, rng=0), osl.projected_wasserstein(x, y, rng=0)
    >>> bool(sw.distance < pw.distance)
    True
    """
    if not isinstance(cost, str) or cost not in COSTS:
        raise ValueError(f"`cost` must be one of {sorted(COSTS)}; got {cost!r}.")
    options = Options(directions, n_directions, rtol, atol, control, rng, memory, workers, progress)
    return estimate_distance("PW", COSTS[cost], (x, y, x_weights, y_weights), p, options)


@answers_other_names
def value_and_grad(
    x: Any,
    y: Any,
    p: float = 2,
    *,
    method: Literal["sliced", "projected"] = "sliced",
    x_weights: Any = None,
    y_weights: Any = None,
    directions: Any = "auto",
    n_directions: int | None = None,
    rng: RNG = None,
    memory: int | str = "256MB",
    workers: int | None = None,
) -> tuple[Array, Array]:
    """SW_p^p or PW_p^p and its gradient by the points of x, in one call and without a gradient tape.

    For descents of your own on any array library, NumPy among them. Both come from the same directions, and are
    those of :func:`sliced_wasserstein` or :func:`projected_wasserstein` with the same `rng`; the gradient is
    worked out on the way forward. In a torch training loop, the losses of ``osl.nn`` do the same with less work
    for the host. For barycenters and for moving a cloud onto another see :func:`barycenter` and :func:`flow`,
    which choose their steps themselves.

    Parameters
    ----------
    x, y, p, x_weights, y_weights, directions, n_directions, rng, memory, workers
        As in :func:`sliced_wasserstein`.
    method
        ``"sliced"`` for SW_p^p, ``"projected"`` for PW_p^p.

    Returns
    -------
    value, gradient
        Of shapes `(...)` and `(..., n, dim)`.

    Notes
    -----
    For p = 2, directions in whole orthonormal blocks (``"orthogonal"``, up to 128 dimensions) and n points
    without weights, ``x - n * dim / 2 * gradient`` is the best place for the points of x while their couplings
    last: on these directions, SW_2^2 is not higher there. For PW it is ``x - n / 2 * gradient``.

    Examples
    --------
    >>> import numpy as np, orthoslice as osl
    >>> x, y = np.zeros((4, 3)), np.full((4, 3), 2.0)
    >>> value, gradient = osl.value_and_grad(x, y, directions="orthogonal", rng=0)
    >>> round(float(value), 12)
    4.0
    >>> np.allclose(x - 4 * 3 / 2 * gradient, y)
    True
    """
    score = check_method(method)
    given = Options(directions, n_directions, None, None, None, rng, memory, workers, False)
    request, cloud_x, cloud_y = check_request(method, score, (x, y, x_weights, y_weights), p, given)
    scaled_x, scaled_y, scale = unit_scale(detached(cloud_x), detached(cloud_y), request.p)
    value, gradient = value_and_gradient(request, scaled_x, scaled_y, rng)
    return rescaled(value, scale, request.p), rescaled(gradient, scale, request.p - 1)


def check_method(method: Any) -> Score:
    """The score that `method` names."""
    if method not in METHODS:
        raise ValueError(f"`method` must be one of {sorted(METHODS)}; got {method!r}.")
    return METHODS[method]


class Options(NamedTuple):
    """What both distances take besides clouds and `p`, as the user gave it."""

    directions: Any
    n_directions: Any
    rtol: Any
    atol: Any
    control: Any
    rng: RNG
    memory: Any
    workers: Any
    progress: bool


def estimate_distance(
    name: str,
    score: Score,
    clouds: tuple[Any, Any, Any, Any],
    p: Any,
    given: Options,
    *,
    vouched: bool = True,
) -> Estimate:
    """Check what was given and estimate; if `vouched`, right to the accuracy of the type or an error."""
    request, x, y = (_lazy_request if any(map(is_dask, clouds)) else check_request)(
        name, score, clouds, p, given
    )
    answer = _estimate_scaled(request, x, y, given.rng)
    return _vouched(request, answer, x, y, given.rng) if vouched else answer


def check_request(
    name: str, score: Score, clouds: tuple[Any, Any, Any, Any], p: Any, given: Options
) -> tuple[Request, Cloud, Cloud]:
    """The request and the clouds, checked, from the user's arguments."""
    p = check_p(p)
    x, y = make_clouds(*clouds)
    return make_request(name, score, x, y, p, given), x, y


def _lazy_request(
    name: str, score: Score, clouds: tuple[Any, Any, Any, Any], p: Any, given: Options
) -> tuple[Request, Cloud, Cloud]:
    """As :func:`check_request`, if any of the clouds or weights is a Dask collection."""
    from orthoslice.parallel.chunks import lazy_clouds

    p = check_p(p)
    x, y = lazy_clouds(("x", clouds[0], clouds[2]), ("y", clouds[1], clouds[3]))
    return make_request(name, score, x, y, p, given), x, y


def make_request(name: str, score: Score, x: Cloud, y: Cloud, p: float, given: Options) -> Request:
    """Check the options for these clouds, and settle how many directions there are."""
    sampler = check_directions(given.directions, x)
    count = check_n_directions(given.n_directions, sampler)
    control = check_control(given.control)
    rtol, atol = check_tolerance("rtol", given.rtol, x, y), check_tolerance("atol", given.atol, x, y)
    adaptive = not (rtol is None and atol is None)
    sampler, layout = plan_layout(sampler, count, x.dim, score, p, adaptive)
    control = plan_control(control, x, y, p, score, sampler, layout)
    return Request(
        name=name,
        score=score,
        p=p,
        sampler=sampler,
        layout=layout,
        memory=check_memory(given.memory),
        workers=check_workers(given.workers),
        rtol=rtol,
        atol=atol,
        progress=given.progress,
        control=control,
        fit=not is_scaled_on_device(x, y),
    )


def _estimate_scaled(request: Request, x: Cloud, y: Cloud, rng: RNG) -> Estimate:
    x, y, scale = unit_scale(x, y, request.p)
    if request.atol is not None:
        request = replace(request, atol=request.atol / scale)
    return estimate(request, x, y, rng, scale)


# A distance below 2^-_DWARF_BITS times the largest coordinate has few correct digits in float32.
_DWARF_BITS = 12


def _vouched(request: Request, answer: Estimate, x: Cloud, y: Cloud, rng: RNG) -> Estimate:
    """The answer, computed anew in a wider type where far points dwarf it, or an error where it underflows.

    Checked only where the clouds were scaled or p is high; elsewhere the type holds both scales.
    """
    if not is_readable(answer._raw):
        return answer
    p, info = request.p, float_info(namespace(x.points), x.dtype)
    if answer._scale == 1 and not is_high_power(p, info):
        return answer
    least = float(info.smallest_normal) / float(info.eps)
    dwarf = p * (math.log2(max(largest_coordinate(x, y), least)) - math.log2(answer._scale) - _DWARF_BITS)
    if _means(answer).min() >= max(least, 2.0 ** min(dwarf, 0.0)):
        return answer
    # A wider type holds both scales, if equal far points of x and y have equal projections (`steady`).
    wide_x, wide_y = widened(x, y)
    steady = replace(request, steady=True)
    rng = rng if answer.seed is None else answer.seed
    answer = _estimate_scaled(steady, wide_x, wide_y, rng)
    # Error bars square scores: the square of the least score must not underflow.
    least = 2.0**-480 if wide_x.dtype != x.dtype or info.bits == 64 else least
    lost = _means(answer) < least
    if lost.any():
        # SW_1 does not underflow, and tells which clouds differ at all.
        lengths = _estimate_scaled(replace(steady, p=1.0, score=Sliced()), wide_x, wide_y, rng)
        if (lost & (_means(lengths) > 0)).any():
            raise OverflowError(
                f"`p` is too high for these clouds: beside their largest coordinate, "
                f"{largest_coordinate(x, y):.3g}, their distance is so small that |x - y|^{p:g} underflows in "
                f"{wide_x.dtype}. Pass a smaller `p`, or leave out points that are far from all others."
            )
    return answer if wide_x.dtype == x.dtype else replace(answer, _dtype=x.dtype)


def _means(answer: Estimate) -> Any:
    return to_numpy(answer._raw).mean(axis=0)
