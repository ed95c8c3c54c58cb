"""Clouds made fit for arithmetic: moved to the origin, and scaled by powers of two."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np

from orthoslice.arrays import Array, Operation, is_readable, namespace, to_numpy
from orthoslice.cloud import Cloud, largest_magnitude
from orthoslice.kernels.cuda import cuda_refusal

# Coordinates that a block of a GPU goes through before a library would have been quicker.
_SMALL_CLOUD = 1 << 21


def unit_scale(x: Cloud, y: Cloud, p: float) -> tuple[Cloud, Cloud, float]:
    """Clouds divided by a power of two, where p-th powers of their distances might leave the floating range.

    Powers of two change no digit. Where values cannot be looked at, nothing is scaled here: see
    :func:`orthoslice.scaling.scale_on_device`.

    Examples
    --------
    >>> import numpy as np
    >>> from orthoslice.cloud import Cloud
    >>> unit_scale(Cloud(np.array([[1e200]])), Cloud(np.array([[0.0]])), 2)[2] > 1e200
    True
    """
    if not (is_readable(x.points) and is_readable(y.points)):
        return x, y, 1.0
    largest = max(largest_magnitude(c.points) if c.largest is None else c.largest for c in (x, y))
    # No two points are further apart than 2**reach.
    reach = math.log2(largest) + math.log2(x.dim) / 2 + 1 if largest else 0.0
    exponent = scale_exponent(reach, p, math.log2(float(namespace(x.points).finfo(x.dtype).max)))
    if exponent == 0:
        return x, y, 1.0
    # In two steps: 2**exponent itself may be out of range.
    halves = (exponent // 2, exponent - exponent // 2)
    scaled = [Cloud(c.points * 2.0 ** -halves[0] * 2.0 ** -halves[1], c.weights) for c in (x, y)]
    return scaled[0], scaled[1], 2.0**exponent


def scale_exponent(reach: float, p: float, max_exponent: float) -> int:
    """By which power of two to divide clouds that reach to 2**reach, in a type that ends at 2**max_exponent.

    0 where all fits as it is.
    """
    # Error bars square p-th powers, norms square distances; a quarter of the range is left for sums.
    return 0 if 2 * p * abs(reach) < 0.75 * max_exponent else math.ceil(reach)


def times_power(quantity: Array, scale: float, p: float) -> Array:
    """`quantity * scale**p`; where that does not fit the type, an OverflowError that says what does."""
    if scale == 1:
        return quantity
    exponent = p * math.log2(scale)
    steps = max(1, math.ceil(abs(exponent) / 100))
    result = quantity
    with np.errstate(over="ignore", under="ignore"):
        # The factor itself may overflow: multiply in steps that cannot, unless the product does.
        for _ in range(steps):
            result = result * 2.0 ** (exponent / steps)
    if is_readable(result) and bool(namespace(result).any(namespace(result).isinf(result))):
        raise OverflowError(
            f"The p-th power of this distance exceeds the range of {quantity.dtype}. "
            "Read `distance`, which does not, or pass smaller units or float64."
        )
    return result


def centred(x: Cloud, y: Cloud) -> tuple[Cloud, Cloud]:
    """Clouds moved to the origin along coordinates in which x sits far from it.

    Projections then keep more digits. The middle of the range does not depend on the order of rows, and clouds
    that are not far away stay where they are, so that exact ties remain ties.
    """
    if is_readable(x.points) and _is_near_origin(to_numpy(x.points)):
        return x, y
    axis = (-2,) if x.batch == y.batch else tuple(range(x.points.ndim - 1))
    centre = far_centre(x.points, axis)
    return replace(x, points=x.points - centre), replace(y, points=y.points - centre)


far_centre = Operation("far_centre")
"""far_centre(points, axis) -> what to take off them.

The middle of their range over those axes where it is more than twice that range from 0, and 0 elsewhere.
"""


def _far_centre_refusal(points: Array, axis: tuple[int, ...]) -> str | None:
    if points.ndim != 2 or points.shape[0] * points.shape[1] > _SMALL_CLOUD:
        return "it takes small single clouds"
    return cuda_refusal(points)


@far_centre.implementation("cuda", _far_centre_refusal)
def _far_centre_cuda(points: Array, axis: tuple[int, ...]) -> Array:
    from orthoslice.kernels.cuda import rows

    return rows.far_centre(points)


@far_centre.implementation("reference", lambda *_: None)
def _far_centre(points: Array, axis: tuple[int, ...]) -> Array:
    xp = namespace(points)
    low, high = (f(points, axis=axis, keepdims=True) for f in (xp.min, xp.max))
    middle = low / 2 + high / 2
    return xp.where(xp.abs(middle) > 2 * (high - low), middle, xp.zeros_like(middle))


def _is_near_origin(points: Any) -> bool:
    """Whether a few points already show that no coordinate of a single cloud is far from 0 for its range."""
    few = points[:32]
    # The middle is at most half a range from any point, and the range is at least that of the few.
    return points.ndim == 2 and bool((np.abs(few[0]) <= 1.5 * (few.max(axis=0) - few.min(axis=0))).all())
