"""The two distances, estimated."""

from __future__ import annotations

from typing import Any, Literal

from orthoslice.backend.arrays import RNG, Array
from orthoslice.check.names import answers_other_names
from orthoslice.clouds.cloud import detached
from orthoslice.clouds.conditioning import (
    rescaled,
    unit_scale,
)
from orthoslice.costs.scores import COSTS, Sliced
from orthoslice.estimates.control import Control
from orthoslice.estimates.driver import value_and_gradient
from orthoslice.estimates.entry import check_method, check_request, estimate_distance
from orthoslice.estimates.request import Options
from orthoslice.estimates.result import Estimate


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
        or data frames, larger than memory: see :mod:`orthoslice.parallel.dask`. `y` can be a known law instead,
        such as ``osl.laws.Normal(8)``, of which nothing is sampled.
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
        helps more than further directions would in the same time even if both clouds are samples of one law:
        sliced distances in dimensions 12 to 1,024 of some 1,000 to 3,000 points a side or more, in host memory
        (NumPy, torch), whose gradient is not wanted, with at least 4 independent blocks, but not with ``"iid"``
        or your own directions. None is none.
        ``est.control`` says what was used.
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

        - ``"exact"``: by the full distance ``|x - y|^p``, O(n dim) a direction.
        - ``"pooled"``: by the projections on about 32 other directions (Johnson-Lindenstrauss), O(32 n) a
          direction. Noisier, and cheaper in operations where `dim` is many times 32; on the host the compiled
          exact price was still quicker at dim 2048 (see "Three prices for PW" in the docs). With
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
