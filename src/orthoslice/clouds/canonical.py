"""Lexicographic order of points, which breaks ties on a line, and how far projections may be rounded."""

from __future__ import annotations

import math
from typing import cast

import numpy as np

from orthoslice.backend.arrays import Array, HostArray, at_rank, detach, device, lexsort_rows, namespace
from orthoslice.clouds.cloud import Cloud
from orthoslice.clouds.mapped import MappedPoints, Points, stored_points

# Coordinates whose lengths are worked out at a time.
_LENGTH_ITEMS = 1 << 18


def canonical_order(points: Array, weights: Array | None) -> Array:
    """Lexicographic order of the points of every cloud, `(..., n)`; equal points are in order of their weights.

    A stable sort of points in this order breaks ties by coordinates, so that the coupling depends on the
    points and not on the order of their rows.
    """
    xp = namespace(points)
    points, by_weight = detach(points), None
    if weights is not None:
        by_weight = xp.argsort(detach(weights), axis=-1, stable=True)
        points = gather_points(points, by_weight)
    order = xp.reshape(lexsort_rows(xp.reshape(points, (-1, *points.shape[-2:]))), points.shape[:-1])
    return order if by_weight is None else xp.take_along_axis(by_weight, order, axis=-1)


def may_be_shuffled(x: Cloud, y: Cloud) -> bool:
    """Whether weighted clouds may be shuffled copies: the ranges of weights and of first coordinates agree."""
    if x.weights is None or y.weights is None or x.points.shape != y.points.shape:
        return False
    xp = namespace(x.points)
    points = (stored_points(c.points)[0][..., 0] for c in (x, y))
    pairs = ((x.weights, y.weights), tuple(points))
    return all(bool(xp.all(f(a, axis=-1) == f(b, axis=-1))) for a, b in pairs for f in (xp.min, xp.max))


def roundings(points: Array) -> Array:
    """How far off the projections in float64 of points `(..., n, dim)` may be, `(..., n)`.

    A sum of `dim` products is off by at most `dim` roundings of the product of both lengths, in whatever order
    it is taken; a few more allow for transforms.
    """
    n, dim = points.shape[-2:]
    # A few points at a time, as a cache holds them: lengths take several tables as large as the points.
    step = max(1, _LENGTH_ITEMS // math.prod((*points.shape[:-2], dim)))
    if not isinstance(points, np.ndarray) or n <= step:
        return (dim + 8) * 2.0**-53 * _lengths(points)
    parts = [_lengths(points[..., first : first + step, :]) for first in range(0, n, step)]
    return (dim + 8) * 2.0**-53 * np.concatenate(parts, axis=-1)


def _lengths(points: Array) -> Array:
    """Euclidean lengths of points `(..., n, dim)`, in float64."""
    xp = namespace(points)
    if isinstance(points, np.ndarray) and points.dtype == np.float32:
        # Squares of float32 numbers neither overflow nor underflow in float64.
        wide = points.astype(np.float64)
        return cast(HostArray, np.sqrt(np.vecdot(wide, wide)))
    largest = xp.astype(xp.max(xp.abs(points), axis=-1, keepdims=True), xp.float64)
    # Squares of coordinates may overflow or underflow.
    unit = points / xp.where(largest > 0, largest, xp.ones_like(largest))
    return largest[..., 0] * xp.sqrt(xp.sum(unit * unit, axis=-1))


def gather_points(points: Points, index: Array) -> Array:
    """Points `(..., n, dim)` at `index (slices, ..., pairs)`: `(slices, ..., pairs, dim)`."""
    if isinstance(points, MappedPoints):
        return points.gather(cast(HostArray, index))
    xp = namespace(points)
    n, dim = points.shape[-2:]
    index_in_all = flat_index(index, tuple(points.shape[:-2]), n)
    rows = xp.take(xp.reshape(points, (-1, dim)), xp.reshape(index_in_all, (-1,)), axis=0)
    return xp.reshape(rows, (*index_in_all.shape, dim))


def flat_index(index: Array, batch: tuple[int, ...], n: int) -> Array:
    """Indices into clouds `(*batch, n)` laid end to end, from indices into each."""
    if not batch:
        return index
    xp = namespace(index)
    offsets = xp.arange(math.prod(batch), dtype=index.dtype, device=device(index)) * n
    return index + at_rank(xp.reshape(offsets, (*batch, 1)), index.ndim)
