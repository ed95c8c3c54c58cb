"""What is particular to exact answers: p in {1, 2}, the plane, integer masses, scaling.

The checks themselves are those of :mod:`orthoslice.check.inputs` and :mod:`orthoslice.check.options`.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple, cast

import numpy as np

from orthoslice.backend.array_types import IntArray
from orthoslice.check.options import check_p
from orthoslice.clouds.cloud import Cloud, host_clouds
from orthoslice.clouds.masses import integer_masses


class PlaneProblem(NamedTuple):
    """Two checked clouds in the plane, scaled by 2**-exponent so that no p-th power overflows."""

    x: Cloud
    y: Cloud
    p: int
    exponent: int


def check_order(p: Any) -> int:
    """The order 1 or 2, as an integer.

    Examples
    --------
    >>> check_order(2.0)
    2
    """
    order = check_p(p)
    if order not in (1, 2):
        raise ValueError(f"`p` must be 1 or 2, where closed forms exist; got {p!r}.")
    return int(order)


def check_plane(what: str, x: Any, y: Any, p: Any, x_weights: Any, y_weights: Any) -> PlaneProblem:
    """Check all that a function about clouds in the plane is given.

    Examples
    --------
    >>> check_plane("this", [[3, 4]], [[0, 0]], 1, None, None).exponent
    3
    """
    order = check_order(p)
    clouds = host_clouds(what, x, y, x_weights, y_weights)
    if clouds[0].dim != 2:
        raise ValueError(
            f"`x` and `y` must lie in the plane, dim = 2, for `{what}`; got dim = {clouds[0].dim}."
        )
    return PlaneProblem(*shrink(*clouds), order, shared_exponent(*clouds))


def shared_exponent(x: Cloud, y: Cloud) -> int:
    """The power of two just above every coordinate.

    Examples
    --------
    >>> shared_exponent(Cloud(np.array([[3.0]])), Cloud(np.array([[-4.0]])))
    3
    """
    return math.frexp(max(float(np.abs(c.points).max()) for c in (x, y)))[1]


def shrink(x: Cloud, y: Cloud) -> tuple[Cloud, Cloud]:
    """Both clouds divided by 2**shared_exponent, so that the largest coordinate lies in [1/2, 1).

    A power of two changes no digit, and costs of order 1 can be squared, and squared again for variances,
    without overflow. (:func:`orthoslice.clouds.conditioning.unit_scale` scales only where a power needs it.)

    Examples
    --------
    >>> shrink(Cloud(np.array([[3.0]])), Cloud(np.array([[4.0]])))[0].points
    array([[0.375]])
    """
    exponent = shared_exponent(x, y)
    first, second = (Cloud(np.ldexp(c.points, -exponent), c.weights) for c in (x, y))
    return first, second


def unshrink(value: float, exponent: int, degree: int) -> float:
    """A value that is homogeneous of `degree` in the coordinates, back in their own units.

    Examples
    --------
    >>> unshrink(0.5, 3, 2)
    32.0
    """
    try:
        return math.ldexp(value, degree * exponent)
    except OverflowError:
        raise ValueError(
            f"`x` and `y` must be small enough for the answer to fit in float64; "
            f"got coordinates up to 2**{exponent}, which enter with power {degree}."
        ) from None


def shared_masses(x: Cloud, y: Cloud) -> tuple[IntArray, IntArray]:
    """Masses of both clouds as integers with the same sum, so that no edge between masses can drift.

    Without weights they are as small as can be; with weights the sum is that of
    :func:`orthoslice.clouds.masses.integer_masses`, 2**62.

    Examples
    --------
    >>> shared_masses(Cloud(np.zeros((2, 1))), Cloud(np.zeros((3, 1))))
    (array([3, 3]), array([2, 2, 2]))
    """
    if x.weights is None and y.weights is None:
        common = math.lcm(x.n, y.n)
        return np.full(x.n, common // x.n, dtype=np.int64), np.full(y.n, common // y.n, dtype=np.int64)
    return cast(IntArray, integer_masses(x)), cast(IntArray, integer_masses(y))
