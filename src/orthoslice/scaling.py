"""Powers of two that keep p-th powers of distances inside the floating range."""

from __future__ import annotations

import math

import numpy as np

from orthoslice.arrays import Array, is_readable, namespace
from orthoslice.cloud import Cloud, largest_magnitude


def unit_scale(x: Cloud, y: Cloud, p: float) -> tuple[Cloud, Cloud, float]:
    """Clouds divided by a power of two, where p-th powers of their distances might leave the floating range.

    Powers of two change no digit. Where values cannot be looked at, nothing is scaled.

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
    # Error bars square p-th powers, norms square distances; a quarter of the range is left for sums.
    if 2 * p * abs(reach) < 0.75 * math.log2(float(namespace(x.points).finfo(x.dtype).max)):
        return x, y, 1.0
    exponent = math.ceil(reach)
    # In two steps: 2**exponent itself may be out of range.
    halves = (exponent // 2, exponent - exponent // 2)
    scaled = [Cloud(c.points * 2.0 ** -halves[0] * 2.0 ** -halves[1], c.weights) for c in (x, y)]
    return scaled[0], scaled[1], 2.0**exponent


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
