"""The order of points on a line, and the order of points that tie there."""

from __future__ import annotations

import numpy as np

from orthoslice.backend.arrays import Array, HostArray, Operation, PlainWork, Tensor, namespace, wide_int
from orthoslice.backend.kernels import rows_refusal
from orthoslice.backend.kernels.cuda import LONGEST_CUDA_ROW, cuda_refusal
from orthoslice.clouds.ready import ReadyCloud

# Clearing its counters costs a radix sort as much as NumPy needs for a row of this length.
_SHORTEST_RADIX = 64


def order_points(projections: Array, cloud: ReadyCloud) -> Array:
    """The order of `projections (slices, ..., n)` of a cloud; ties by `cloud.rounding`, if it has one."""
    order: Array = (
        stable_order(projections) if cloud.rounding is None else tied_order(projections, cloud.rounding)
    )
    return order


stable_order: Operation[Array] = Operation("stable_order")
"""stable_order(projections (..., n)) -> (..., n): the order of every row; equal numbers keep theirs."""


def _order_refusal(projections: Array) -> str | None:
    if projections.shape[-1] < _SHORTEST_RADIX:
        return "it takes longer rows"
    return rows_refusal(projections)


@stable_order.implementation("numba", _order_refusal, plain_work=lambda rows: PlainWork.of(rows, times=2))
def _stable_order_numba(projections: HostArray) -> HostArray:
    from orthoslice.backend.kernels.numba.sliced import order_projections

    return order_projections(projections.reshape(-1, projections.shape[-1])).reshape(projections.shape)


def _order_cuda_refusal(projections: Array) -> str | None:
    if projections.shape[-1] > LONGEST_CUDA_ROW:
        return f"it takes rows of at most {LONGEST_CUDA_ROW} points"
    return cuda_refusal(projections)


@stable_order.implementation("cuda", _order_cuda_refusal)
def _stable_order_cuda(projections: Tensor) -> Tensor:
    from orthoslice.backend.kernels.cuda.rows import sort_rows

    flat = projections.reshape(-1, projections.shape[-1])
    return namespace(projections).astype(
        sort_rows(flat, True).places.reshape(projections.shape), wide_int(flat)
    )


@stable_order.implementation("reference", lambda _: None)
def _stable_order(projections: Array) -> Array:
    return namespace(projections).argsort(projections, axis=-1, stable=True)


tied_order: Operation[Array] = Operation("tied_order")
"""tied_order(projections (slices, ..., n), rounding (..., n)) -> (slices, ..., n): the order of every row.

Neighbours i and j tie if they are at most `rounding[i] + rounding[j]` apart, and so does a chain of such; ties
keep their order. Projections that are equal in exact arithmetic thus tie however products are summed, which
changes with their shape: the answer depends neither on chunks nor on threads.
"""


def _tied_refusal(projections: Array, rounding: Array) -> str | None:
    refusal = rows_refusal(projections)
    if refusal is None and (projections.dtype != np.float64 or rounding.shape[:-1] != projections.shape[1:-1]):
        refusal = "it takes float64, and roundings for each place of the batch"
    return refusal


@tied_order.implementation(
    "numba", _tied_refusal, plain_work=lambda projections, _: PlainWork.of(projections, times=4)
)
def _tied_order_numba(projections: HostArray, rounding: HostArray) -> HostArray:
    from orthoslice.backend.kernels.numba.ties import order_with_ties

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
