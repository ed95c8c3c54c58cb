"""Quantiles of weighted points on a line."""

from __future__ import annotations

from typing import Any

from orthoslice.backend.arrays import Array, detach, device, is_readable, namespace, to_numpy, wide_float
from orthoslice.check.inputs import as_array, as_floating, as_line, check_same_library
from orthoslice.check.names import answers_other_names
from orthoslice.clouds.cloud import one_cloud
from orthoslice.couplings.orders import stable_order


def count_below(numbers: Array, ends: Array) -> Array:
    """How many of `ends (..., n)` are less than each of `numbers (..., k)`, `(..., k)`; leading axes agree."""
    xp = namespace(ends)
    # Numbers come before equal ends, so that these are not counted.
    order = xp.argsort(xp.concat([numbers, ends], axis=-1), axis=-1, stable=True)
    passed = xp.cumulative_sum(xp.astype(order >= numbers.shape[-1], order.dtype), axis=-1)
    places = xp.argsort(order, axis=-1)
    return xp.take_along_axis(passed, places[..., : numbers.shape[-1]], axis=-1)


@answers_other_names
def quantile_function(x: Any, levels: Any, *, weights: Any = None) -> Array:
    """Quantiles of weighted points on a line: at level q, the least point with cumulative weight q or more.

    The inverse of the cumulative distribution: SW prices the differences between those of two projected clouds.
    Nothing is interpolated. ``np.quantile(x, q, method="inverted_cdf")`` is the same of NumPy arrays; here any
    array library is taken, with leading axes, and there are gradients by the points.

    Parameters
    ----------
    x
        Points `(n,)` or `(..., n)`, in any order.
    levels
        Levels from 0 to 1, `(k,)`. Level 0 is the least point that weighs something.
    weights
        Weights `(n,)` or `(..., n)` that sum to 1; uniform when None.

    Returns
    -------
    Array
        Quantiles `(k,)` or `(..., k)`.

    Examples
    --------
    >>> import numpy as np, orthoslice as osl
    >>> osl.quantile_function([5.0, 1.0, 3.0], [0.0, 0.5, 1.0]).tolist()
    [1.0, 3.0, 5.0]
    >>> osl.quantile_function([5.0, 1.0, 3.0], [0.5], weights=[0.75, 0.25, 0.0]).tolist()
    [5.0]
    """
    points = as_line("x", x)
    cloud = one_cloud(points, weights, "weights")
    values = cloud.points[..., 0]
    xp, wide = namespace(values), wide_float(values)
    levels = as_array("levels", levels, like=values)
    check_same_library({"x": values, "levels": levels})
    levels = as_floating("levels", levels, wide)
    if levels.ndim != 1:
        raise ValueError(f"`levels` must have shape (k,); got {tuple(levels.shape)}.")
    if is_readable(levels) and not ((to_numpy(levels) >= 0) & (to_numpy(levels) <= 1)).all():
        raise ValueError(f"`levels` must lie between 0 and 1; got {to_numpy(levels).tolist()}.")
    order, n = stable_order(detach(values)), cloud.n
    if cloud.weights is None:
        ends = xp.arange(1, n + 1, dtype=wide, device=device(values)) / n
        ends = xp.broadcast_to(ends, values.shape)
    else:
        own = xp.take_along_axis(xp.astype(detach(cloud.weights), wide), order, axis=-1)
        ends = xp.cumulative_sum(own, axis=-1)
        ends = ends / ends[..., -1:]
    # A level within rounding of a cumulative weight is that; and the least point that weighs something is at 0.
    eps = float(xp.finfo(wide).eps)
    reached = xp.maximum(levels * (1 - 4 * eps), xp.full_like(levels, float(xp.finfo(wide).smallest_normal)))
    place = count_below(xp.broadcast_to(reached, (*values.shape[:-1], reached.shape[0])), ends)
    index = xp.take_along_axis(order, xp.clip(place, 0, n - 1), axis=-1)
    quantiles: Array = xp.take_along_axis(values, index, axis=-1)
    return quantiles
