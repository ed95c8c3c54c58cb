"""What has to hold of small clouds before they are scored as they are, looked up in one call.

The plain references are `check_points` (finite numbers), `unit_scale` (magnitudes whose powers fit their type),
`centred` (a cloud that is not far from the origin for its extent) and `check_directions` (unit rows).
"""

from __future__ import annotations

import numpy as np

from orthoslice.backend.array_types import Floats, Words
from orthoslice.backend.kernels.numba._compile import compiled, summing

# Points that are looked at to see whether a cloud is far from the origin.
_FEW = 32


@compiled
def _largest_word(words: Words) -> np.unsignedinteger:
    """The largest magnitude, as bits; those of infinity and NaN are larger than all others."""
    flat = words.reshape(-1)
    magnitude = ~(words.dtype.type(1) << words.dtype.type(8 * words.itemsize - 1))
    largest = words.dtype.type(0)
    for k in range(flat.size):
        largest = max(largest, flat[k] & magnitude)
    return largest


@compiled
def _is_near_origin(points: Floats) -> bool:
    n, dim = points.shape
    step = -(-n // _FEW)
    low, high = points[0].copy(), points[0].copy()
    # Row by row, as they lie in memory.
    for i in range(step, n, step):
        for k in range(dim):
            low[k], high[k] = min(low[k], points[i, k]), max(high[k], points[i, k])
    is_near = True
    for k in range(dim):
        is_near &= abs(points[0, k]) <= 1.5 * (high[k] - low[k])
    return is_near


@summing
def _square(row: Floats) -> np.float64:
    total = np.float64(0.0)
    for k in range(row.size):
        total += np.float64(row[k]) * np.float64(row[k])
    return total


@compiled
def _are_units(rows: Floats, rounding: float) -> bool:
    are_units = True
    for s in range(rows.shape[0]):
        # NaN counts as off.
        are_units &= abs(np.sqrt(_square(rows[s])) - 1.0) <= rounding
    return are_units


@compiled
def are_fit(x: Floats, x_words: Words, y_words: Words, limits: Words, theta: Floats, rounding: float) -> bool:
    """Whether `x` and the cloud of `y_words` can be scored on the rows of `theta` as they are.

    Words are the bits of the points, as unsigned integers. `limits` are the bits of the least and the largest
    magnitude that the larger one of both clouds may have. `theta` has no rows where they need no check.
    """
    largest = max(_largest_word(x_words), _largest_word(y_words))
    is_fit = limits[0] < largest < limits[1]
    return is_fit and _is_near_origin(x) and _are_units(theta, rounding)
