"""Walsh-Hadamard transforms of a few points at a time, held in the processor's cache.

Points lie side by side as the columns of a tile `(dim, LANES)`, stored flat. A butterfly adds and subtracts
whole rows of the tile, which is vector code at every stride, and projections are written row by row. The plain
references are the implementations of that name in `orthoslice.backend.arrays.hadamard`.
"""

from __future__ import annotations

import numpy as np

from orthoslice.backend.array_types import Floats
from orthoslice.backend.kernels.numba._compile import compiled

LANES = 16
"""Columns of a tile: one cache line of float32. A fixed number makes the inner loops straight vector code."""


@compiled
def _first_three_stages(tile: Floats, first: Floats) -> None:
    """Combine rows that are 1 apart by the matrices in `first (2, dim)`, then rows that are 2 and 4 apart."""
    for row in range(0, first.shape[1], 8):
        p0, p1, p2, p3 = first[0, row], first[0, row + 1], first[0, row + 2], first[0, row + 3]
        p4, p5, p6, p7 = first[0, row + 4], first[0, row + 5], first[0, row + 6], first[0, row + 7]
        q0, q1, q2, q3 = first[1, row], first[1, row + 1], first[1, row + 2], first[1, row + 3]
        q4, q5, q6, q7 = first[1, row + 4], first[1, row + 5], first[1, row + 6], first[1, row + 7]
        # Indices count from 0 in `part`: with indices that might be negative the loop would not be vector code.
        part = tile[row * LANES : (row + 8) * LANES]
        for k in range(LANES):
            a0, a1, a2, a3 = part[k], part[k + LANES], part[k + 2 * LANES], part[k + 3 * LANES]
            a4, a5, a6, a7 = part[k + 4 * LANES], part[k + 5 * LANES], part[k + 6 * LANES], part[k + 7 * LANES]
            b0, b1, b2, b3 = p0 * a0 + p1 * a1, q0 * a0 + q1 * a1, p2 * a2 + p3 * a3, q2 * a2 + q3 * a3
            b4, b5, b6, b7 = p4 * a4 + p5 * a5, q4 * a4 + q5 * a5, p6 * a6 + p7 * a7, q6 * a6 + q7 * a7
            a0, a1, a2, a3 = b0 + b2, b1 + b3, b0 - b2, b1 - b3
            a4, a5, a6, a7 = b4 + b6, b5 + b7, b4 - b6, b5 - b7
            part[k], part[k + 4 * LANES] = a0 + a4, a0 - a4
            part[k + LANES], part[k + 5 * LANES] = a1 + a5, a1 - a5
            part[k + 2 * LANES], part[k + 6 * LANES] = a2 + a6, a2 - a6
            part[k + 3 * LANES], part[k + 7 * LANES] = a3 + a7, a3 - a7


@compiled
def _one_stage(tile: Floats, half: int) -> None:
    """Combine entries that are `half` apart."""
    for start in range(0, tile.size, 2 * half):
        first, second = tile[start : start + half], tile[start + half : start + 2 * half]
        for k in range(half):
            a0, a1 = first[k], second[k]
            first[k], second[k] = a0 + a1, a0 - a1


@compiled
def _two_stages(tile: Floats, half: int) -> None:
    """Combine entries that are `half`, then `2 * half` apart, in one pass over the tile."""
    for start in range(0, tile.size, 4 * half):
        first, second = tile[start : start + half], tile[start + half : start + 2 * half]
        third, fourth = tile[start + 2 * half : start + 3 * half], tile[start + 3 * half : start + 4 * half]
        for k in range(half):
            a0, a1, a2, a3 = first[k], second[k], third[k], fourth[k]
            b0, b1, b2, b3 = a0 + a1, a0 - a1, a2 + a3, a2 - a3
            first[k], second[k], third[k], fourth[k] = b0 + b2, b1 + b3, b0 - b2, b1 - b3


@compiled
def _combine_pairs(tile: Floats, pairs: Floats) -> None:
    """Multiply rows 2k and 2k + 1 of a tile by the matrix that is columns 2k and 2k + 1 of `pairs (2, dim)`."""
    if pairs.shape[1] == 1:
        for k in range(LANES):
            tile[k] *= pairs[0, 0]
    for row in range(0, pairs.shape[1] - 1, 2):
        p0, p1, q0, q1 = pairs[0, row], pairs[0, row + 1], pairs[1, row], pairs[1, row + 1]
        part = tile[row * LANES : (row + 2) * LANES]
        for k in range(LANES):
            a0, a1 = part[k], part[k + LANES]
            part[k], part[k + LANES] = p0 * a0 + p1 * a1, q0 * a0 + q1 * a1


@compiled
def _factors(signs: Floats, paired: bool) -> Floats:
    """The factors D_1, ..., D_k as matrices of neighbouring rows, `(rounds, 2, dim)`."""
    rounds, dim = signs.shape
    pairs = np.zeros((rounds, 2, dim), dtype=signs.dtype)
    for step in range(rounds):
        for row in range(dim):
            pairs[step, row % 2, row] = signs[step, row]
        if paired:
            for row in range(0, dim, 2):
                cosine, sine = signs[step, row], signs[step, row + 1]
                pairs[step, 0, row + 1], pairs[step, 1, row], pairs[step, 1, row + 1] = sine, sine, -cosine
    return pairs


@compiled
def _first_stage(pairs: Floats) -> Floats:
    """Matrices of neighbouring rows `(..., 2, dim)`, times the first stage of a transform and its scale."""
    dim = pairs.shape[-1]
    scale = pairs.dtype.type(dim**-0.5)
    if dim == 1:
        return scale * pairs
    first = np.empty_like(pairs)
    given, made = pairs.reshape(-1, 2, dim), first.reshape(-1, 2, dim)
    for k in range(given.shape[0]):
        for j in range(dim):
            made[k, 0, j] = scale * (given[k, 0, j] + given[k, 1, j])
            made[k, 1, j] = scale * (given[k, 0, j] - given[k, 1, j])
    return first


@compiled
def _transform(tile: Floats, first: Floats) -> None:
    """Multiply the columns of a tile by the orthonormal Hadamard matrix, whose first stage is `first (2, dim)`.

    Factors applied before the transform are folded into that stage, and so cost nothing: see
    :func:`_first_stage`.
    """
    if first.shape[1] >= 8:
        _first_three_stages(tile, first)
        half = 8 * LANES
    else:
        _combine_pairs(tile, first)
        half = 2 * LANES
    while 4 * half <= tile.size:
        _two_stages(tile, half)
        half *= 4
    if half < tile.size:
        _one_stage(tile, half)


@compiled
def _load(tile: Floats, points: Floats, first: int) -> None:
    """Put points from `first` on into the columns of a tile, as many as there are; all else is 0."""
    count, dim = min(LANES, points.shape[0] - first), points.shape[1]
    if count < LANES:
        tile[:] = 0
    tile[dim * LANES :] = 0
    for lane in range(count):
        for row in range(dim):
            tile[row * LANES + lane] = points[first + lane, row]


@compiled
def walsh_hadamard_rows(rows: Floats) -> None:
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
    first_stage = _first_stage(_factors(np.ones((1, dim), dtype=rows.dtype), False))[0]
    tile = np.empty(dim * LANES, dtype=rows.dtype)
    for first in range(0, n, LANES):
        _load(tile, rows, first)
        _transform(tile, first_stage)
        for lane in range(min(LANES, n - first)):
            for row in range(dim):
                rows[first + lane, row] = tile[row * LANES + lane]


@compiled
def hadamard_project(
    points: Floats, signs: Floats, paired: bool, first_row: int, n_rows: int, out: Floats
) -> None:
    """Project points on some rows of a block H D_k ... H D_1.

    Parameters
    ----------
    points
        `(n, dim_user)`, taken as if zeros followed up to `dim`.
    signs
        The diagonals D_1, ..., D_k, `(rounds, dim)`; `dim` is a power of two.
    paired
        Whether they hold cosine and sine of reflections of neighbouring coordinates instead.
    first_row, n_rows
        Which rows of the block are wanted.
    out
        `(n_rows, n)`; overwritten.

    Examples
    --------
    >>> out = np.empty((2, 1))
    >>> hadamard_project(np.array([[3.0, 1.0]]), np.array([[1.0, -1.0, 1.0, 1.0]]), False, 1, 2, out)
    >>> out.tolist()
    [[2.0], [1.0]]
    """
    n, dim = points.shape[0], signs.shape[1]
    first_stages = _first_stage(_factors(signs, paired))
    tile = np.empty(dim * LANES, dtype=points.dtype)
    for first in range(0, n, LANES):
        _load(tile, points, first)
        for step in range(signs.shape[0]):
            _transform(tile, first_stages[step])
        if n - first >= LANES:
            for row in range(n_rows):
                for lane in range(LANES):
                    out[row, first + lane] = tile[(first_row + row) * LANES + lane]
        else:
            for row in range(n_rows):
                for lane in range(n - first):
                    out[row, first + lane] = tile[(first_row + row) * LANES + lane]


@compiled
def hadamard_adjoint(slopes: Floats, signs: Floats, paired: bool, first_row: int, total: Floats) -> None:
    """Carry slopes on some rows of a block back to the points: the transpose of :func:`hadamard_project`.

    Parameters
    ----------
    slopes
        `(n_rows, n)`, for the rows of the block from `first_row` on.
    signs, paired
        As in :func:`hadamard_project`.
    first_row
        The first of the rows.
    total
        `(n, dim_user)`; what comes back is added to it.

    Examples
    --------
    >>> total = np.ones((1, 2))
    >>> hadamard_adjoint(np.array([[2.0], [1.0]]), np.array([[1.0, -1.0, 1.0, 1.0]]), False, 1, total)
    >>> total.tolist()
    [[2.5, 1.5]]
    """
    n_rows, n = slopes.shape
    dim = signs.shape[1]
    # Factors are symmetric, so that the transpose is D_1 H ... D_k H.
    factors = _factors(signs, paired)
    first_stages = _first_stage(factors)
    no_factor = _first_stage(_factors(np.ones((1, dim), dtype=slopes.dtype), False))[0]
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
        _transform(tile, no_factor)
        for step in range(signs.shape[0] - 1, 0, -1):
            _transform(tile, first_stages[step])
        _combine_pairs(tile, factors[0])
        for lane in range(min(LANES, n - first)):
            for row in range(total.shape[1]):
                total[first + lane, row] += tile[row * LANES + lane]


def _few_rows(signs: Floats, paired: bool, rows: slice, dim_user: int) -> Floats | None:
    """Some rows of a block as a matrix `(rows, dim_user)`, or None where there are too many for that to pay.

    The transform takes `rounds * log2(dim)` steps a coordinate, however few of the rows are wanted.
    """
    count = rows.stop - rows.start
    if count > signs.shape[0] * (signs.shape[1].bit_length() - 1):
        return None
    theta = np.zeros((count, dim_user), dtype=signs.dtype)
    hadamard_adjoint(np.eye(count, dtype=signs.dtype), signs, paired, rows.start, theta)
    return theta


def project_on_blocks(points: Floats, signs: Floats, parts: list[tuple[int, slice]], paired: bool) -> Floats:
    """Project `points (n, dim_user)` on rows of blocks with `signs (blocks, rounds, dim)`: `(rows, n)`.

    A part is a block and a slice of its rows; `paired` is as in :func:`hadamard_project`.
    """
    points, signs = np.ascontiguousarray(points), np.ascontiguousarray(signs)
    out = np.empty((sum(rows.stop - rows.start for _, rows in parts), points.shape[0]), dtype=points.dtype)
    used = 0
    for block, rows in parts:
        part = out[used : used + rows.stop - rows.start]
        theta = _few_rows(signs[block], paired, rows, points.shape[1])
        if theta is None:
            hadamard_project(points, signs[block], paired, rows.start, len(part), part)
        else:
            np.matmul(theta, points.T, out=part)
        used += len(part)
    return out


def carry_back_from_blocks(
    slopes: Floats, signs: Floats, parts: list[tuple[int, slice]], dim_user: int, paired: bool
) -> Floats:
    """The transpose of :func:`project_on_blocks`: from `slopes (rows, n)` to `(n, dim_user)`."""
    slopes, signs = np.ascontiguousarray(slopes), np.ascontiguousarray(signs)
    total = np.zeros((slopes.shape[1], dim_user), dtype=slopes.dtype)
    used = 0
    for block, rows in parts:
        part = slopes[used : used + rows.stop - rows.start]
        theta = _few_rows(signs[block], paired, rows, dim_user)
        if theta is None:
            hadamard_adjoint(part, signs[block], paired, rows.start, total)
        else:
            total += part.T @ theta
        used += len(part)
    return total
