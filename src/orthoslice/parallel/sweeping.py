"""Tests and tables of distances of Dask collections: more is done with a direction than to score two clouds."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from orthoslice.applications.pairwise import PairwiseJob, UnitSums, each_ready_for_ties, unit_sums
from orthoslice.applications.two_sample.permutations import (
    PermutationTest,
    add_costs,
    priced_piece,
    ready_to_order,
    values_of,
)
from orthoslice.backend.arrays import DType, HostArray, Key
from orthoslice.backend.progress import progress_bar
from orthoslice.backend.threads import single_threaded_blas
from orthoslice.clouds.cloud import Cloud
from orthoslice.costs.scores import Score
from orthoslice.directions import Sampler
from orthoslice.directions.layout import Layout
from orthoslice.directions.walks import Piece, sweep_blocks
from orthoslice.estimates.underflow import power_may_underflow
from orthoslice.parallel.chunks import LazyCloud, common_origin, pool_outline
from orthoslice.parallel.reading import Reading, shape_only
from orthoslice.parallel.shuffle import Cluster, Known, Lines, current_cluster, shuffle


def lazy_unit_sums(
    job: PairwiseJob, score: Score, clouds: Sequence[Cloud], sampler: Sampler, key: Key
) -> Iterator[UnitSums]:
    """Summed scores of all pairs of clouds in chunks, some directions after the others; see `pairwise`."""
    pool = job.pool
    assert isinstance(pool, LazyCloud)
    _refuse_underflow(job.p, pool.dtype)
    cluster = current_cluster(job.workers)
    origin, exponent = common_origin(pool), pool.reading.exponent
    moved = []
    for cloud in clouds:
        assert isinstance(cloud, LazyCloud)
        moved.append((cloud.divided(exponent) if exponent else cloud).moved(origin))
    dtype = np.dtype(score.directions_dtype(pool))
    row = 4 * dtype.itemsize * pool.n
    name = f"{'projected' if score.breaks_ties else 'sliced'}_wasserstein"
    instead = f"`{name}` of a pair at a time, with one `rng`, does with less"
    _check_room(job.memory, pool, row, instead, in_space=score.breaks_ties)
    at_once = _rows_at_once(job.memory, row, job.layout, cluster)
    # Tasks need only the shape of the points, and know n from what they receive: `(0, dim)` is sent.
    told = job._replace(pool=Cloud(pool.points[:0]), unit_ends=np.asarray(job.unit_ends), workers=1)
    sweep = sweep_blocks(sampler, job.layout, key, pool.dim, dtype, at_once)
    if score.breaks_ties:
        return _swept_points(moved, functools.partial(_ready_job, told), unit_sums, sweep, cluster)
    return _swept(moved, sweep, functools.partial(_sum_units, told), cluster)


def _sum_units(job: PairwiseJob, first: int, *received: tuple[list[HostArray], HostArray | None]) -> UnitSums:
    piece, points = _piece(first, job.pool.points, received)
    return unit_sums(job._replace(pool=Cloud(points)), piece)


def _piece(
    first: int, none: HostArray, received: Sequence[tuple[list[HostArray], HostArray | None]]
) -> tuple[Piece, HostArray]:
    """The projections of all points on some directions, and an array of the points' shape without values.

    `none (0, dim)` gives its dimension and type.
    """
    rows = np.concatenate([piece for own, _ in received for piece in own], axis=1)
    points = shape_only((rows.shape[1], none.shape[1]), none.dtype)
    return Piece(first, slice(0, len(rows)), Known(rows)), points


def _rows_at_once(memory: int, row: int, layout: Layout, cluster: Cluster) -> int:
    """Directions of a task: as many as its memory holds, and no more than give every task some."""
    return max(1, min(memory // row, -(-layout.n_directions // cluster.n_slots)))


def _swept(
    clouds: Sequence[LazyCloud],
    sweep: Iterator[tuple[int, slice, Any]],
    work: Callable[..., Any],
    cluster: Cluster,
) -> Iterator[Any]:
    """What `work(first, *projections)` makes of every piece of a sweep, in order."""
    while wave := list(itertools.islice(sweep, cluster.n_slots)):
        lines = [Lines(blocks, rows) for _, rows, blocks in wave]
        yield from cluster.compute(
            *shuffle(clouds, lines, [functools.partial(work, first) for first, *_ in wave])
        )


def _refuse_underflow(p: float, dtype: DType) -> None:
    if power_may_underflow(p, np.finfo(dtype)):
        raise OverflowError(
            f"`p` is too high for Dask collections of {dtype} here; got {p:g}. Whether small costs are lost "
            "could only be told from all points at once. Pass a smaller `p`."
        )


def lazy_labelled_values(test: PermutationTest, x: Cloud, y: Cloud, progress: bool) -> tuple[HostArray, float]:
    """Powers of distances under every labelling, the observed one first; and how far points are from 0.

    The points of the test only have the shape of both clouds together.
    """
    assert isinstance(x, LazyCloud)
    assert isinstance(y, LazyCloud)
    _refuse_underflow(max(own.p for own in test.statistics), x.dtype)
    pool, cluster = pool_outline([x, y]), current_cluster(test.workers)
    origin = common_origin(pool)
    clouds = [c.moved(origin) for c in (x, y)]
    none = test.pooled.points[:0]
    test = test._replace(workers=1, pooled=replace(test.pooled, points=none))
    row = 80 * pool.n
    in_space = test.n_in_space > 0
    instead = "a random part of the rows does with less"
    instead = f'`method="sliced"`, or {instead}' if in_space else instead
    _check_room(test.memory, pool, row, instead, in_space=in_space)
    at_once = _rows_at_once(test.memory, row, test.layout, cluster)
    dtype = np.dtype(np.float64)
    sweep = sweep_blocks(test.sampler, test.layout, test.key, pool.dim, dtype, at_once)
    if in_space:
        priced = _swept_points(clouds, functools.partial(_ready_test, test), _price_piece, sweep, cluster)
    else:
        priced = _swept(clouds, sweep, functools.partial(_price_lines, test), cluster)
    totals = np.zeros((test.n_distances, test.n_labellings))
    with progress_bar("permutations", test.layout.n_directions, progress) as advance:
        for first, n_rows, found in priced:
            add_costs(test, totals, first, found)
            advance(n_rows)
    ends = [end if origin is None else end - origin for end in (pool.low, pool.high)]
    farthest = float(np.linalg.norm(np.maximum(*np.abs(ends))))
    return values_of(test, totals), farthest


def _price_lines(
    test: PermutationTest, first: int, *received: tuple[list[HostArray], HostArray | None]
) -> tuple[int, int, HostArray]:
    piece, points = _piece(first, test.pooled.points, received)
    return _price_piece(test._replace(pooled=replace(test.pooled, points=points)), piece)


def _price_piece(test: PermutationTest, piece: Piece) -> tuple[int, int, HostArray]:
    return piece.first, piece.n_rows, priced_piece(test, piece)


def _check_room(memory: int, pool: LazyCloud, row: int, instead: str, *, in_space: bool) -> None:
    """Refuse what a task has no room for: `row` bytes for a direction, and all points if priced in space."""
    # Chunks, the points that they make, and those in order, in float64.
    needed = row + (3 * 8 * pool.n * pool.dim if in_space else 0)
    if needed > memory:
        what = "all points where pairs are priced in space" if in_space else "a direction of all points"
        raise ValueError(
            f"`memory` must hold {what}, for many labellings or clouds at once: {needed / 1e6:.4g}MB; got "
            f"{memory / 1e6:.4g}MB. Pass more, if workers have it; {instead}."
        )


def _swept_points(
    clouds: Sequence[LazyCloud],
    prepare: Callable[[HostArray], Any],
    work: Callable[[Any, Piece], Any],
    sweep: Iterator[tuple[int, slice, Any]],
    cluster: Cluster,
) -> Iterator[Any]:
    """As :func:`_swept`, where pairs are priced in space: every worker gets all points, made ready once."""
    import dask

    chunks = [(cloud.reading, list(cloud.chunks)) for cloud in clouds]
    (ready,) = dask.persist(dask.delayed(_prepared, pure=False)(prepare, chunks))
    do = dask.delayed(_work_on_points, pure=False)
    while wave := list(itertools.islice(sweep, cluster.n_slots)):
        cluster.spread(ready)
        yield from cluster.compute(
            *(do(work, ready, first, Lines(blocks, rows)) for first, rows, blocks in wave)
        )


def _prepared(prepare: Callable[[HostArray], Any], chunks: list[tuple[Reading, list[Any]]]) -> Any:
    return prepare(np.concatenate([reading.points(chunk) for reading, own in chunks for chunk in own]))


def _work_on_points(work: Callable[[Any, Piece], Any], ready: object, first: int, lines: Lines) -> Any:
    with single_threaded_blas():
        return work(ready, Piece(first, lines.rows, lines.draw()))


def _ready_test(test: PermutationTest, points: HostArray) -> PermutationTest:
    return ready_to_order(test._replace(pooled=replace(test.pooled, points=points)))


def _ready_job(job: PairwiseJob, points: HostArray) -> PairwiseJob:
    return job._replace(pool=each_ready_for_ties(Cloud(points.astype(np.float64)), job.starts))
