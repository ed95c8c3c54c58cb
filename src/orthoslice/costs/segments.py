"""Many clouds side by side in the rows of one table: each sorted on its own, all pairs of them priced."""

from __future__ import annotations

import itertools
from typing import cast

import numpy as np

from orthoslice.backend.arrays import HostArray, Operation, PlainWork
from orthoslice.backend.kernels import rows_refusal
from orthoslice.costs.lines import sorted_scores
from orthoslice.couplings.coupling import powered_norm, rank_pairs
from orthoslice.couplings.orders import tied_order


def order_segments(rows: HostArray, rounding: HostArray, starts: HostArray) -> HostArray:
    """The points of all clouds, each in the order of its projections, `(slices, points)` of uint32."""
    order = np.empty(rows.shape, dtype=np.uint32)
    for first, stop in itertools.pairwise(starts):
        order[:, first:stop] = first + tied_order(rows[:, first:stop], rounding[first:stop])
    return order


sort_segments: Operation[None] = Operation("sort_segments")
"""sort_segments(rows (slices, points), starts (clouds + 1,)): sort each cloud's part of every row, in place."""


@sort_segments.implementation(
    "numba", lambda rows, _: rows_refusal(rows), plain_work=lambda rows, _: PlainWork.of(rows)
)
def _sort_segments_numba(rows: HostArray, starts: HostArray) -> None:
    from orthoslice.backend.kernels.numba.segments import sort_in_segments

    sort_in_segments(rows, starts)


@sort_segments.implementation("reference", lambda *_: None)
def _sort_segments(rows: HostArray, starts: HostArray) -> None:
    for first, stop in itertools.pairwise(starts):
        rows[:, first:stop].sort(axis=-1)


segment_costs: Operation[HostArray] = Operation("segment_costs")
"""segment_costs(rows (slices, points), starts (clouds + 1,), p) -> (clouds (clouds - 1) / 2,), in float64.

Costs on the line of all pairs of clouds, summed over slices, in the order (0, 1), (0, 2), ..., (1, 2), ... The
segments must be sorted.
"""


def _pairs_work(rows: HostArray, starts: HostArray) -> PlainWork:
    # Every cloud meets all others.
    return PlainWork.of(rows, times=len(starts) - 2)


@segment_costs.implementation(
    "numba",
    lambda rows, *_: rows_refusal(rows),
    plain_work=lambda rows, starts, _: _pairs_work(rows, starts),
)
def _segment_costs_numba(rows: HostArray, starts: HostArray, p: float) -> HostArray:
    from orthoslice.backend.kernels.numba.segments import add_segment_costs

    totals: HostArray = add_segment_costs(rows, starts, p)
    return totals


@segment_costs.implementation("reference", lambda *_: None)
def _segment_costs(rows: HostArray, starts: HostArray, p: float) -> HostArray:
    parts = np.split(rows, starts[1:-1], axis=1)
    pairs = ((a, b) for i, a in enumerate(parts) for b in parts[i + 1 :])
    # Copied, since scoring may overwrite them.
    return np.array([float(np.sum(sorted_scores(a.copy(), b.copy(), p))) for a, b in pairs])


segment_space_costs: Operation[HostArray] = Operation("segment_space_costs")
"""segment_space_costs(points (points, dim), order (slices, points), starts (clouds + 1,), p) -> (pairs,).

Costs in full space of couplings by rank; `order` has the points of each cloud in the order of a direction.
"""


@segment_space_costs.implementation(
    "numba",
    lambda points, order, *_: rows_refusal(order),
    plain_work=lambda points, order, starts, _: _pairs_work(order, starts),
)
def _segment_space_costs_numba(points: HostArray, order: HostArray, starts: HostArray, p: float) -> HostArray:
    from orthoslice.backend.kernels.numba.segments import add_segment_space_costs

    totals: HostArray = add_segment_space_costs(points, order, starts, p)
    return totals


@segment_space_costs.implementation("reference", lambda *_: None)
def _segment_space_costs(points: HostArray, order: HostArray, starts: HostArray, p: float) -> HostArray:
    totals = []
    for a, b in itertools.combinations(np.split(order, starts[1:-1], axis=1), 2):
        i, j, mass = rank_pairs(a.shape[1], b.shape[1], points)
        totals.append(float((cast(HostArray, powered_norm(points[a[:, i]] - points[b[:, j]], p)) @ mass).sum()))
    return np.array(totals)
