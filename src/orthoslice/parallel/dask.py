"""Distances of Dask collections: arrays and data frames in chunks, on threads or on a cluster.

The functions of the library take Dask collections as they take arrays; this module is how it is done, and gives
them under their names. Directions, values and error bars are those of the same numbers in memory, to rounding.

**Sliced distances.** Every chunk is projected where it lies; a direction goes to one task, which gets the
pieces of all chunks, sorts and prices them (:func:`orthoslice.parallel.shuffle.shuffle`); pieces come in
rough order, so that this is done in the cache (:mod:`orthoslice.costs.pieces`). So n times the number of
directions is sent. Where directions outnumber `dim` times the workers, less is sent if every worker
gets the points, and projects them itself; that is done where `memory` holds them twice. A direction too long
for `memory` is cut into ranges of ranks (:mod:`orthoslice.parallel.ranges`).

**Projected distances** price pairs of points, which lie in different chunks. They are priced exactly: every
worker gets all points once, and works on its share of the directions. Where `memory` does not hold them, the
couplings are cut into ranges, each of which gets its points (:mod:`orthoslice.parallel.row_ranges`): n times
`dim` numbers are sent a direction.

**Passes over the data.** One to look at it (checks and ranges), one for what tells how far to trust an error
bar (means and some points), and one for every few directions, as many as there are tasks at once. Chunks are
read anew in each: `persist` collections that are slow to make and fit the cluster's memory.

**Lost workers** cost the work that they did: Dask does it again, from the chunks on.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, cast

import numpy as np

from orthoslice.applications.distances import projected_wasserstein, sliced_wasserstein
from orthoslice.applications.pairwise import pairwise
from orthoslice.applications.two_sample.testing import two_sample_test
from orthoslice.backend.arrays import NO_GRADIENTS, RNG, HostArray, Key, Wanted
from orthoslice.backend.progress import progress_bar
from orthoslice.backend.threads import single_threaded_blas
from orthoslice.clouds.cloud import Cloud, Seen
from orthoslice.clouds.ready import ReadyCloud, as_given, make_ready, with_masses
from orthoslice.costs.draw import Draw, Scored
from orthoslice.costs.pieces import RowInPieces, piece_cost
from orthoslice.costs.pools import mean_shortening
from orthoslice.costs.scores import Score, Sliced
from orthoslice.directions.drawing import Blocks
from orthoslice.directions.walks import Task, cut_units
from orthoslice.estimates.control import Gaussian
from orthoslice.estimates.driver import key_for, look_by_look, make_estimate, subject_of
from orthoslice.estimates.passes import Passes
from orthoslice.estimates.request import Request
from orthoslice.estimates.result import Estimate
from orthoslice.estimates.trust import Subject
from orthoslice.parallel.chunk_passes import Summary, covariance, spread, visit_chunks
from orthoslice.parallel.chunks import LazyCloud, common_origin
from orthoslice.parallel.ranges import DRAWN_POINTS, Units, draw_samples, range_costs, units_of, whole_costs
from orthoslice.parallel.reading import Reading, shape_only
from orthoslice.parallel.row_ranges import RowRanges
from orthoslice.parallel.shuffle import COPIES, Cluster, Lines, Received, current_cluster, shuffle

__all__ = ["pairwise", "projected_wasserstein", "sliced_wasserstein", "two_sample_test"]


def estimate_lazily(request: Request, x: Cloud, y: Cloud, rng: RNG, scale: float) -> Estimate:
    """Estimate what is requested of clouds in chunks, which were divided by `scale`."""
    assert isinstance(x, LazyCloud)
    assert isinstance(y, LazyCloud)
    control = request.control
    if not (control is None or isinstance(control, Gaussian)):
        raise TypeError(
            f"`control` must be 'auto', 'gaussian' or None for Dask collections; got {control!r}, which would "
            "look at points that are not here."
        )
    key, seed = key_for(request, rng, np.zeros(1))
    origin = common_origin(x)
    x, y = x.moved(origin), y.moved(origin)
    subject = subject_of(request, x, y)
    x, y = _noted(subject, x, y, spread if control is None else covariance)
    if control is not None:
        control = control.fitted(x, y, key, 0)
    with progress_bar("directions", request.layout.n_directions, request.progress) as advance:
        run = _way(replace(request, control=control), x, y, key, advance)
        _, found = look_by_look(request, run, x, y, key, control)
    value = np.asarray(cast(HostArray, found["scores"]).mean(axis=0), dtype=x.dtype)[()]
    outlines = subject._replace(x=x.outline(), y=y.outline())
    return make_estimate(request, value, found, outlines, seed, scale)


def _noted(subject: Subject, x: LazyCloud, y: LazyCloud, summarise: Callable[..., Summary]) -> list[LazyCloud]:
    """The clouds with `seen`: moments for controls, and points that tell how far to trust an error bar."""
    drawn = [[places for cloud, places in subject.wanted_points if cloud is own] for own in (x, y)]
    noted = []
    for cloud, places, visit in zip((x, y), drawn, visit_chunks((x, y), drawn, summarise), strict=True):
        assert visit.moments is not None
        _, mean, square = visit.moments
        rows = {own.tobytes(): points for own, points in zip(places, visit.points, strict=True)}
        seen = Seen(mean, square, rows) if square.ndim == 0 else Seen(mean, np.trace(square), rows, square)
        noted.append(replace(cloud, seen=seen))
    return noted


def _way(
    request: Request, x: LazyCloud, y: LazyCloud, key: Key, advance: Callable[[int], None]
) -> Callable[[int, int], Scored]:
    """The function that scores a range of units, by sending points or projections."""
    cluster = current_cluster(request.workers)
    request = replace(request, workers=1, progress=False)
    way = _Way(request, x, y, key, advance, cluster)
    # Chunks, and the points that they make.
    size = 2 * (x.n + y.n) * x.dim * x.dtype.itemsize
    if request.score.breaks_ties:
        if size + request.score.row_bytes(x, y, request.p, NO_GRADIENTS) <= request.memory:
            return _ByPoints.of(way).run
        return _ByRowRanges(*way.parts, ranges=RowRanges.of(request, key, x, y, cluster)).run
    if request.layout.n_directions > x.dim * cluster.n_workers and size <= request.memory:
        return _ByPoints.of(way).run
    whole = (_ByProjections if units_of(x, y)[0].each is None else _ByPieces)(*way.parts)
    if whole.longest_chunk > 0:
        return whole.run
    row = COPIES * request.score.row_bytes(x, y, request.p, NO_GRADIENTS)
    n_ranges = min(math.ceil(row / request.memory), x.n, y.n)
    return _ByRanges(*way.parts, n_ranges=n_ranges, samples=draw_samples(x, y, DRAWN_POINTS * n_ranges)).run


@dataclass(frozen=True, eq=False)
class _Way:
    """What all ways of scoring share."""

    request: Request
    x: LazyCloud
    y: LazyCloud
    key: Key
    advance: Callable[[int], None]
    cluster: Cluster

    @property
    def parts(self) -> tuple[Any, ...]:
        return self.request, self.x, self.y, self.key, self.advance, self.cluster

    def lines(self, task: Task) -> Lines:
        blocks = Blocks(self.request.sampler, self.key, *task[:3], self.x.dim, self.x.dtype)
        return Lines(blocks, slice(task.row, task.row + task.n_rows), self.request.steady)

    def scored(self, tables: list[HostArray]) -> Scored:
        table = np.concatenate(tables)
        return Scored(table) if self.request.control is None else Scored(table[..., 0], (), table[..., 1])


@dataclass(frozen=True, eq=False)
class _ByProjections(_Way):
    """Projections are sent; each task has some directions, and all that the clouds are on them."""

    @property
    def longest_chunk(self) -> int:
        """How many directions a task has room for."""
        row = COPIES * self.request.score.row_bytes(self.x, self.y, self.request.p, NO_GRADIENTS)
        return int(self.request.memory // row)

    def run(self, first_unit: int, stop_unit: int) -> Scored:
        layout, sampler = self.request.layout, self.request.sampler
        share = -(-layout.rows_between(first_unit, stop_unit) // self.cluster.n_slots)
        chunk = max(1, min(self.longest_chunk, share))
        tasks = list(cut_units(layout, first_unit, stop_unit, chunk, sampler.extends))
        tables: list[HostArray] = []
        # As many tasks at a time as there are slots: pieces for later tasks are not made early.
        for first in range(0, len(tasks), self.cluster.n_slots):
            wave = tasks[first : first + self.cluster.n_slots]
            tables += self.cluster.compute(*self._delayed(wave))
            self.advance(sum(task.n_rows for task in wave))
        return self.scored(tables)

    def _delayed(self, wave: list[Task]) -> list[Any]:
        score = functools.partial(_score_projections, self.request, self.key, self.x.dim)
        work = [functools.partial(score, task) for task in wave]
        return shuffle((self.x, self.y), [self.lines(task) for task in wave], work)


def _score_projections(
    request: Request,
    key: Key,
    dim: int,
    task: Task,
    *received: tuple[list[HostArray], HostArray | None],
) -> HostArray:
    clouds = []
    for pieces, weights in received:
        rows = np.concatenate(pieces, axis=1)
        points = shape_only((rows.shape[1], dim), rows.dtype)
        clouds.append(Received(points=points, weights=weights, projections=rows))
    passes = Passes(request, *with_masses(*clouds), key, NO_GRADIENTS, _ignore)
    return cast(HostArray, passes.run_task(task)[0])


@dataclass(frozen=True, eq=False)
class _ByPieces(_ByProjections):
    """The same where all points of a cloud weigh the same: pieces of a direction are priced where they lie."""

    @property
    def longest_chunk(self) -> int:
        rows = [shape_only((c.n,), c.dtype) for c in (self.x, self.y)]
        spare = self.request.memory - piece_cost.row_bytes(
            *(RowInPieces([row], 1) for row in rows), 1, self.request.p
        )
        return int(max(0, spare) // sum(row.nbytes for row in rows))

    def _delayed(self, wave: list[Task]) -> list[Any]:
        units = units_of(self.x, self.y)
        score = functools.partial(_score_pieces, self.request, self.key, self.x.dim, units)
        work = [functools.partial(score, task) for task in wave]
        return shuffle((self.x, self.y), [self.lines(task) for task in wave], work, roughly=True)


def _score_pieces(
    request: Request,
    key: Key,
    dim: int,
    units: tuple[Units, Units],
    task: Task,
    *received: tuple[list[HostArray], None],
) -> HostArray:
    sent = [pieces for pieces, _ in received]
    x, y = (ReadyCloud(shape_only((sum(p.shape[1] for p in own), dim), own[0].dtype)) for own in sent)
    costs = whole_costs(units, request.p, *sent)
    passes = Passes(replace(request, score=_Priced(costs)), x, y, key, NO_GRADIENTS, _ignore)
    return cast(HostArray, passes.run_task(task)[0])


def _ignore(_: int) -> None:
    """Report no progress: the process that submits tasks does."""


@dataclass(frozen=True, eq=False, kw_only=True)
class _ByRanges(_Way):
    """Directions are cut into ranges, each small enough for a task."""

    n_ranges: int
    samples: tuple[HostArray, HostArray]

    def run(self, first_unit: int, stop_unit: int) -> Scored:
        layout, sampler, slots = self.request.layout, self.request.sampler, self.cluster.n_slots
        # All ranges of a direction are there at once: as many directions as all tasks together have room for.
        chunk = max(1, slots // self.n_ranges)
        tasks = list(cut_units(layout, first_unit, stop_unit, chunk, sampler.extends))
        lines = [self.lines(task) for task in tasks]
        found = range_costs(self.x, self.y, self.request.p, lines, self.n_ranges, self.samples, self.cluster)
        tables = []
        for task, costs in zip(tasks, found, strict=True):
            request = replace(self.request, score=_Priced(costs))
            passes = Passes(request, as_given(self.x), as_given(self.y), self.key, NO_GRADIENTS, _ignore)
            tables.append(cast(HostArray, passes.run_task(task)[0]))
            self.advance(task.n_rows)
        return self.scored(tables)


@dataclass(frozen=True, eq=False)
class _Priced(Sliced):
    """Sliced scores whose costs on the line are known."""

    costs: HostArray

    def evaluate(self, x: Cloud, y: Cloud, p: float, draw: Draw, wanted: Wanted) -> Scored:
        return Scored(self.costs / mean_shortening(draw.directions.dim, draw.directions.ambient_dim, p))


@dataclass(frozen=True, eq=False, kw_only=True)
class _ByRowRanges(_Way):
    """Couplings are cut into ranges, each small enough for a task, which gets its points."""

    ranges: RowRanges

    def run(self, first_unit: int, stop_unit: int) -> Scored:
        tables, most = [], self.ranges.rows_at_once
        for task in cut_units(self.request.layout, first_unit, stop_unit, most, self.request.sampler.extends):
            tables.append(self.ranges.scores(task))
            self.advance(task.n_rows)
        return self.scored(tables)


@dataclass(frozen=True, eq=False, kw_only=True)
class _ByPoints(_Way):
    """All points are sent to every worker, which does with them what is done in memory."""

    ready: Any

    @classmethod
    def of(cls, way: _Way) -> _ByPoints:
        import dask

        given = [(c.reading, list(c.chunks), c.weight_chunks and list(c.weight_chunks)) for c in (way.x, way.y)]
        ready = dask.delayed(_assemble, pure=False)(way.request.score, *given)
        # Made once, for all looks.
        return cls(*way.parts, ready=dask.persist(ready)[0])

    def run(self, first_unit: int, stop_unit: int) -> Scored:
        import dask

        cuts = np.linspace(first_unit, stop_unit, self.cluster.n_slots + 1).round().astype(int)
        score = dask.delayed(_score_points, pure=False)
        spans = [(int(a), int(b)) for a, b in itertools.pairwise(cuts) if a < b]
        self.cluster.spread(self.ready)
        tables = self.cluster.compute(*(score(self.request, self.key, self.ready, *span) for span in spans))
        self.advance(self.request.layout.rows_between(first_unit, stop_unit))
        return self.scored(list(tables))


def _assemble(
    score: Score, *given: tuple[Reading, list[Any], list[Any] | None]
) -> tuple[ReadyCloud, ReadyCloud]:
    """Both clouds whole, ready to be scored."""
    clouds = []
    for reading, chunks, weights in given:
        points = np.concatenate([reading.points(chunk) for chunk in chunks])
        shares = None if weights is None else np.concatenate([np.asarray(w) for w in weights])
        clouds.append(Cloud(points, shares))
    return make_ready(clouds[0], clouds[1], for_ties=score.breaks_ties)


def _score_points(
    request: Request, key: Key, ready: tuple[ReadyCloud, ReadyCloud], first_unit: int, stop_unit: int
) -> HostArray:
    with single_threaded_blas():
        costs, _, controls = Passes(request, *ready, key, NO_GRADIENTS, _ignore).run(first_unit, stop_unit)
    return cast(HostArray, costs) if controls is None else np.stack([costs, controls], axis=-1)
