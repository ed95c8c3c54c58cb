"""Blocks of orthonormal directions, drawn in one compiled call: small blocks would be lost in NumPy's overhead.

The plain references are `orthoslice.backend.arrays.normals` and `orthonormal_rows`, whose triangular factor has
a positive diagonal, so that both make the same rows up to rounding.
"""

from __future__ import annotations

import math

import numpy as np

from orthoslice.backend.array_types import Floats, Indices, Words
from orthoslice.backend.kernels.numba._compile import compiled, summing
from orthoslice.backend.kernels.numba.random import third_key, threefry


@compiled
def _fill_normals(high: np.uint32, low: np.uint32, rows: Floats) -> None:
    """Standard normals `rows (rows, dim)` of one key, by Box-Muller: two words for two numbers."""
    third = third_key(high, low)
    for row in range(rows.shape[0]):
        for column in range(0, rows.shape[1], 2):
            radius, angle = threefry(high, low, third, np.uint32(row), np.uint32(column // 2))
            below = (np.float64(radius) + 0.5) * 2.0**-32
            # log(u) is inaccurate near 1, where log1p(u - 1) is not.
            log = (
                math.log(below)
                if below < 0.5
                else math.log1p(-((4294967295.5 - np.float64(radius)) * 2.0**-32))
            )
            length, turn = math.sqrt(-2.0 * log), 2.0 * math.pi * ((np.float64(angle) + 0.5) * 2.0**-32)
            rows[row, column] = length * math.cos(turn)
            if column + 1 < rows.shape[1]:
                rows[row, column + 1] = length * math.sin(turn)


@summing
def _dot(a: Floats, b: Floats) -> float:
    total = 0.0
    for k in range(a.size):
        total += a[k] * b[k]
    return total


@compiled
def _orthonormalise(rows: Floats) -> None:
    """Gram-Schmidt on the rows in turn. Every row is cleaned twice: once leaves what cancellation rounded."""
    for i in range(rows.shape[0]):
        row = rows[i]
        for _ in range(2 if i else 1):
            for j in range(i):
                part = _dot(row, rows[j])
                for k in range(row.size):
                    row[k] -= part * rows[j, k]
            length = math.sqrt(_dot(row, row))
            for k in range(row.size):
                row[k] /= length


@compiled
def _draw(
    high: Words, low: Words, step: int, steps: int, purpose: int, first: int, size: int, theta: Floats
) -> None:
    """Blocks of `size` rows into `theta (slices, dim)`, whose last block may be cut short."""
    k0, k1 = high[0], low[0]
    if step >= 0:
        k0, k1 = threefry(k0, k1, third_key(k0, k1), np.uint32(step), np.uint32(steps))
    third = third_key(k0, k1)
    block = np.empty((size, theta.shape[1]))
    for start in range(0, theta.shape[0], size):
        some = block[: min(size, theta.shape[0] - start)]
        own = threefry(k0, k1, third, np.uint32(first + start // size), np.uint32(purpose))
        _fill_normals(own[0], own[1], some)
        _orthonormalise(some)
        theta[start : start + some.shape[0]] = some


def draw_rows(
    high: Indices,
    low: Indices,
    step: int | None,
    steps: int,
    purpose: int,
    first: int,
    size: int,
    theta: Floats,
) -> None:
    """Fill `theta (slices, dim)` with blocks of `size` orthonormal rows, from block `first` of the key on.

    `high` and `low` are the key, int32 of shape `(1,)`. It is folded with `step` and `steps` before, unless the
    step is None, and for each block with its number and `purpose`. Blocks of one row are independent.
    """
    words = high.view(np.uint32), low.view(np.uint32)
    _draw(*words, -1 if step is None else step & 0xFFFFFFFF, steps, purpose, first, size, theta)
