"""In which order points lie: on a line, and where a line does not tell them apart."""

from __future__ import annotations

import math

import numpy as np

from orthoslice.arrays import Array, Operation, at_rank, detach, device, lexsort_rows, namespace, wide_int
from orthoslice.cloud import Cloud
from orthoslice.kernels import rows_refusal
from orthoslice.kernels.cuda import LONGEST_CUDA_ROW, cuda_refusal
from orthoslice.mapped import MappedPoints, stored_points

# Clearing its counters costs a radix sort as much as NumPy needs for a row of this length.
_SHORTEST_RADIX = 64

# Coordinates whose lengths are worked out at a time.
_LENGTH_ITEMS = 1 << 18


stable_order = Operation("stable_order")
"""stable_order(projections (..., n)) -> (..., n): the order of every row; equal numbers keep theirs."""


def _order_refusal(projections: Array) -> str | None:
    if projections.shape[-1] < _SHORTEST_RADIX:
        return "it takes longer rows"
    return rows_refusal(projections)


@stable_order.implementation("numba", _order_refusal)
def _stable_order_numba(projections: Array) -> Array:
    from orthoslice.kernels.numba.sliced import order_projections

    return order_projections(projections.reshape(-1, projections.shape[-1])).reshape(projections.shape)


def _order_cuda_refusal(projections: Array) -> str | None:
    if projections.shape[-1] > LONGEST_CUDA_ROW:
        return f"it takes rows of at most {LONGEST_CUDA_ROW} points"
    return cuda_refusal(projections)


@stable_order.implementation("cuda", _order_cuda_refusal)
def _stable_order_cuda(projections: Array) -> Array:
    from orthoslice.kernels.cuda.rows import sort_rows

    flat = projections.reshape(-1, projections.shape[-1])
    return namespace(projections).astype(
        sort_rows(flat, True).places.reshape(projections.shape), wide_int(flat)
    )


@stable_order.implementation("reference", lambda _: None)
def _stable_order(projections: Array) -> Array:
    return namespace(projections).argsort(projections, axis=-1, stable=True)


tied_order = Operation("tied_order")
"""tied_order(projections (slices, ..., n), rounding (..., n)) -> (slices, ..., n): the order of every row.

Neighbours that are no further apart than rounding may have put them are a tie, and so is a chain of such; ties
keep their order. What ties in exact arithmetic is thus a tie whatever the products' order of summation, which
changes with their shape: the answer depends neither on chunks nor on threads.
"""


def _tied_refusal(projections: Array, rounding: Array) -> str | None:
    refusal = rows_refusal(projections)
    if refusal is None and (projections.dtype != np.float64 or rounding.shape[:-1] != projections.shape[1:-1]):
        refusal = "it takes float64, and roundings for each place of the batch"
    return refusal


@tied_order.implementation("numba", _tied_refusal)
def _tied_order_numba(projections: Array, rounding: Array) -> Array:
    from orthoslice.kernels.numba.ties import order_with_ties

    n = projections.shape[-1]
    return order_with_ties(projections.reshape(-1, n), rounding.reshape(-1, n)).reshape(projections.shape)


@tied_order.implementation("reference", lambda *_: None)
def _tied_order(projections: Array, rounding: Array) -> Array:
    xp, n = namespace(projections), projections.shape[-1]
    order = stable_order(projections)
    ordered = xp.take_along_axis(projections, order, axis=-1)
    reach = xp.take_along_axis(xp.broadcast_to(rounding, projections.shape), order, axis=-1)
    apart = xp.diff(ordered, axis=-1) > reach[..., :-1] + reach[..., 1:]
    group = xp.cumulative_sum(xp.astype(apart, order.dtype), axis=-1, include_initial=True)
    return xp.sort(group * n + order, axis=-1) % n


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
    """Whether weighted clouds may be the same points in another order, as far as extremes of them tell."""
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
        # Their squares have a place in float64, whatever their size.
        wide = points.astype(np.float64)
        return np.sqrt(np.vecdot(wide, wide))
    largest = xp.astype(xp.max(xp.abs(points), axis=-1, keepdims=True), xp.float64)
    # Coordinates may be of a size whose square has no place in the type.
    unit = points / xp.where(largest > 0, largest, xp.ones_like(largest))
    return largest[..., 0] * xp.sqrt(xp.sum(unit * unit, axis=-1))


def gather_points(points: Array, index: Array) -> Array:
    """Points `(..., n, dim)` at `index (slices, ..., pairs)`: `(slices, ..., pairs, dim)`."""
    if isinstance(points, MappedPoints):
        return points.gather(index)
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
