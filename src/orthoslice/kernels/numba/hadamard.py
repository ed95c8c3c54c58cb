"""Walsh-Hadamard transforms of a few points at a time, held in the processor's cache.

Points lie side by side as the columns of a tile `(dim, LANES)`, stored flat. A butterfly adds and subtracts
whole rows of the tile, which is vector code at every stride, and projections are written row by row. The plain
references are the implementations of that name in `orthoslice.arrays.hadamard`.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from orthoslice.kernels.numba._compile import compiled

LANES = 16
"""Columns of a tile: one cache line of float32. A fixed number makes the inner loops straight vector code."""


@compiled
def _first_three_stages(tile: Any, factors: Any) -> None:
    """Multiply the rows of a tile by `factors (dim,)`, then combine rows that are 1, 2 and 4 apart."""
    for row in range(0, factors.size, 8):
        f0, f1, f2, f3 = factors[row], factors[row + 1], factors[row + 2], factors[row + 3]
        f4, f5, f6, f7 = factors[row + 4], factors[row + 5], factors[row + 6], factors[row + 7]
        for k in range(row * LANES, (row + 1) * LANES):
            a0, a1 = f0 * tile[k], f1 * tile[k + LANES]
            a2, a3 = f2 * tile[k + 2 * LANES], f3 * tile[k + 3 * LANES]
            a4, a5 = f4 * tile[k + 4 * LANES], f5 * tile[k + 5 * LANES]
            a6, a7 = f6 * tile[k + 6 * LANES], f7 * tile[k + 7 * LANES]
            b0, b1, b2, b3 = a0 + a1, a0 - a1, a2 + a3, a2 - a3
            b4, b5, b6, b7 = a4 + a5, a4 - a5, a6 + a7, a6 - a7
            a0, a1, a2, a3 = b0 + b2, b1 + b3, b0 - b2, b1 - b3
            a4, a5, a6, a7 = b4 + b6, b5 + b7, b4 - b6, b5 - b7
            tile[k], tile[k + 4 * LANES] = a0 + a4, a0 - a4
            tile[k + LANES], tile[k + 5 * LANES] = a1 + a5, a1 - a5
            tile[k + 2 * LANES], tile[k + 6 * LANES] = a2 + a6, a2 - a6
            tile[k + 3 * LANES], tile[k + 7 * LANES] = a3 + a7, a3 - a7


@compiled
def _one_stage(tile: Any, half: int) -> None:
    """Combine entries that are `half` apart."""
    for start in range(0, tile.size, 2 * half):
        first, second = tile[start : start + half], tile[start + half : start + 2 * half]
        for k in range(half):
            a0, a1 = first[k], second[k]
            first[k], second[k] = a0 + a1, a0 - a1


@compiled
def _two_stages(tile: Any, half: int) -> None:
    """Combine entries that are `half`, then `2 * half` apart, in one pass over the tile."""
    for start in range(0, tile.size, 4 * half):
        first, second = tile[start : start + half], tile[start + half : start + 2 * half]
        third, fourth = tile[start + 2 * half : start + 3 * half], tile[start + 3 * half : start + 4 * half]
        for k in range(half):
            a0, a1, a2, a3 = first[k], second[k], third[k], fourth[k]
            b0, b1, b2, b3 = a0 + a1, a0 - a1, a2 + a3, a2 - a3
            first[k], second[k], third[k], fourth[k] = b0 + b2, b1 + b3, b0 - b2, b1 - b3


@compiled
def _transform(tile: Any, factors: Any) -> None:
    """Multiply the rows of a tile by `factors (dim,)`, then its columns by the Hadamard matrix of 1 and -1."""
    half = LANES
    if factors.size >= 8:
        _first_three_stages(tile, factors)
        half *= 8
    else:
        for row in range(factors.size):
            for k in range(row * LANES, (row + 1) * LANES):
                tile[k] *= factors[row]
    while 4 * half <= tile.size:
        _two_stages(tile, half)
        half *= 4
    if half < tile.size:
        _one_stage(tile, half)


@compiled
def _load(tile: Any, points: Any, first: int) -> None:
    """Put points from `first` on into the columns of a tile, as many as there are; all else is 0."""
    count, dim = min(LANES, points.shape[0] - first), points.shape[1]
    if count < LANES:
        tile[:] = 0
    tile[dim * LANES :] = 0
    for lane in range(count):
        for row in range(dim):
            tile[row * LANES + lane] = points[first + lane, row]


@compiled
def walsh_hadamard_rows(rows: Any) -> None:
    """Multiply every row of `rows (n, dim)` by the orthonormal Hadamard matrix, in place.

    `dim` is a power of two.

    Examples
    --------
    >>> rows = np.array([[3.0, 1.0, 0.0, 0.0]])
    >>> walsh_hadamard_rows(rows)
    >>> rows.tolist()
    [[2.0, 1.0, 2.0, 1.0]]
    """
    n, dim = rows.shape
    factors = np.full(dim, rows.dtype.type(dim**-0.5))
    tile = np.empty(dim * LANES, dtype=rows.dtype)
    for first in range(0, n, LANES):
        _load(tile, rows, first)
        _transform(tile, factors)
        for lane in range(min(LANES, n - first)):
            for row in range(dim):
                rows[first + lane, row] = tile[row * LANES + lane]


@compiled
def hadamard_project(points: Any, signs: Any, first_row: int, n_rows: int, out: Any) -> None:
    """Project points on some rows of a block H D_k ... H D_1.

    Parameters
    ----------
    points
        `(n, dim_user)`, taken as if zeros followed up to `dim`.
    signs
        The diagonals D_1, ..., D_k, `(rounds, dim)`; `dim` is a power of two.
    first_row, n_rows
        Which rows of the block are wanted.
    out
        `(n_rows, n)`; overwritten.

    Examples
    --------
    >>> out = np.empty((2, 1))
    >>> hadamard_project(np.array([[3.0, 1.0]]), np.array([[1.0, -1.0, 1.0, 1.0]]), 1, 2, out)
    >>> out.tolist()
    [[2.0], [1.0]]
    """
    n, dim = points.shape[0], signs.shape[1]
    factors = signs * points.dtype.type(dim**-0.5)
    tile = np.empty(dim * LANES, dtype=points.dtype)
    for first in range(0, n, LANES):
        _load(tile, points, first)
        for step in range(signs.shape[0]):
            _transform(tile, factors[step])
        if n - first >= LANES:
            for row in range(n_rows):
                for lane in range(LANES):
                    out[row, first + lane] = tile[(first_row + row) * LANES + lane]
        else:
            for row in range(n_rows):
                for lane in range(n - first):
                    out[row, first + lane] = tile[(first_row + row) * LANES + lane]


@compiled
def hadamard_adjoint(slopes: Any, signs: Any, first_row: int, total: Any) -> None:
    """Carry slopes on some rows of a block back to the points: the transpose of :func:`hadamard_project`.

    Parameters
    ----------
    slopes
        `(n_rows, n)`, for the rows of the block from `first_row` on.
    signs
        As in :func:`hadamard_project`.
    first_row
        The first of the rows.
    total
        `(n, dim_user)`; what comes back is added to it.

    Examples
    --------
    >>> total = np.ones((1, 2))
    >>> hadamard_adjoint(np.array([[2.0], [1.0]]), np.array([[1.0, -1.0, 1.0, 1.0]]), 1, total)
    >>> total.tolist()
    [[2.5, 1.5]]
    """
    n_rows, n = slopes.shape
    dim = signs.shape[1]
    scale = slopes.dtype.type(dim**-0.5)
    factors, no_signs = signs * scale, np.full(dim, scale)
    tile = np.empty(dim * LANES, dtype=slopes.dtype)
    for first in range(0, n, LANES):
        tile[:] = 0
        if n - first >= LANES:
            for row in range(n_rows):
                for lane in range(LANES):
                    tile[(first_row + row) * LANES + lane] = slopes[row, first + lane]
        else:
            for row in range(n_rows):
                for lane in range(n - first):
                    tile[(first_row + row) * LANES + lane] = slopes[row, first + lane]
        _transform(tile, no_signs)
        for step in range(signs.shape[0] - 1, 0, -1):
            _transform(tile, factors[step])
        for lane in range(min(LANES, n - first)):
            for row in range(total.shape[1]):
                total[first + lane, row] += signs[0, row] * tile[row * LANES + lane]


def _few_rows(signs: Any, rows: slice, dim_user: int) -> Any:
    """Some rows of a block as a matrix `(rows, dim_user)`, or None where there are too many for that to pay.

    The transform takes `rounds * log2(dim)` steps a coordinate, however few of the rows are wanted.
    """
    count = rows.stop - rows.start
    if count > signs.shape[0] * (signs.shape[1].bit_length() - 1):
        return None
    theta = np.zeros((count, dim_user), dtype=signs.dtype)
    hadamard_adjoint(np.eye(count, dtype=signs.dtype), signs, rows.start, theta)
    return theta


def project_on_blocks(points: Any, signs: Any, parts: list[tuple[int, slice]]) -> Any:
    """Project `points (n, dim_user)` on rows of blocks with `signs (blocks, rounds, dim)`: `(rows, n)`.

    A part is a block and a slice of its rows.
    """
    points, signs = np.ascontiguousarray(points), np.ascontiguousarray(signs)
    out = np.empty((sum(rows.stop - rows.start for _, rows in parts), points.shape[0]), dtype=points.dtype)
    used = 0
    for block, rows in parts:
        part = out[used : used + rows.stop - rows.start]
        theta = _few_rows(signs[block], rows, points.shape[1])
        if theta is None:
            hadamard_project(points, signs[block], rows.start, len(part), part)
        else:
            np.matmul(theta, points.T, out=part)
        used += len(part)
    return out


def carry_back_from_blocks(slopes: Any, signs: Any, parts: list[tuple[int, slice]], dim_user: int) -> Any:
    """The transpose of :func:`project_on_blocks`: from `slopes (rows, n)` to `(n, dim_user)`."""
    slopes, signs = np.ascontiguousarray(slopes), np.ascontiguousarray(signs)
    total = np.zeros((slopes.shape[1], dim_user), dtype=slopes.dtype)
    used = 0
    for block, rows in parts:
        part = slopes[used : used + rows.stop - rows.start]
        theta = _few_rows(signs[block], rows, dim_user)
        if theta is None:
            hadamard_adjoint(part, signs[block], rows.start, total)
        else:
            total += part.T @ theta
        used += len(part)
    return total
