"""The driver: from two clouds and a wish to an estimate, in memory that does not grow with the directions."""

from __future__ import annotations

import contextlib
import math
import os
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from orthoslice.arrays import (
    PRICES,
    RNG,
    Array,
    Outcome,
    Stream,
    Wanted,
    detach,
    differentiable,
    full_precision,
    is_readable,
    is_traced,
    library,
    map_sum,
    namespace,
    resolve_rng,
    stream_index,
    to_numpy,
)
from orthoslice.cloud import Cloud
from orthoslice.coupling import gather_points, in_canonical_order
from orthoslice.directions import Given, Sampler
from orthoslice.directions.base import DEFAULT_BLOCKS, Directions
from orthoslice.pricing import Draw
from orthoslice.result import Estimate, Layout, mean_and_stderr, register_pytree, root, student_quantile
from orthoslice.scores import Score

DEFAULT_CAP = 100_000
"""Most directions of an adaptive run that was given no count."""

# Larger pieces fall out of the processor's caches and are slower, not faster.
_HOST_BYTES = 32_000_000


@dataclass(frozen=True)
class Request:
    """What is to be estimated, checked and complete but for the clouds."""

    name: str
    score: Score
    p: float
    sampler: Sampler
    layout: Layout
    memory: int
    workers: int
    rtol: float | None
    atol: float | None
    """In the units of the clouds as they are handed to :func:`estimate`."""
    progress: bool

    @property
    def looks(self) -> list[int]:
        """After how many units to look whether the tolerance is met; the last is the cap."""
        n = self.layout.n_units
        if self.rtol is None and self.atol is None:
            return [n]
        looks, units = [], DEFAULT_BLOCKS
        while units < n:
            looks.append(units)
            units *= 2
        return [*looks, n]


class Task(NamedTuple):
    """Rows `row .. row + n_rows` of `n_blocks` blocks that together hold `drawn_rows` rows."""

    block: int
    n_blocks: int
    drawn_rows: int
    row: int
    n_rows: int


def plan_layout(
    sampler: Sampler, n_directions: int | None, dim: int, score: Score, p: float, adaptive: bool
) -> tuple[Sampler, Layout]:
    """Settle how many directions there are and how they are grouped."""
    if n_directions is None or adaptive:
        sampler, default = sampler.with_default_size(dim)
        if n_directions is None:
            n_directions = default if not adaptive or isinstance(sampler, Given) else DEFAULT_CAP
    rows = sampler.block_rows(n_directions, dim)
    n_blocks = -(-n_directions // rows)
    unit = score.blocks_per_unit(n_blocks, rows, sampler.is_tight(rows, dim), p)
    return sampler, Layout(n_directions, rows, unit)


def estimate(request: Request, x: Cloud, y: Cloud, rng: RNG, scale: float) -> Estimate:
    """Estimate what is requested; the clouds were divided by `scale`."""
    stream, seed = resolve_rng(rng, x.points)
    theta = request.sampler.theta if isinstance(request.sampler, Given) else None
    inputs = (x.points, y.points, x.weights, y.weights)

    def compute(inputs: tuple[Array | None, ...], constants: Any, wanted: Wanted) -> Outcome:
        stream, theta = constants
        sampler = request.sampler if theta is None else Given(theta=theta)
        clouds = (Cloud(inputs[0], inputs[2]), Cloud(inputs[1], inputs[3]))
        return _run(replace(request, sampler=sampler), *clouds, stream, wanted)

    with full_precision(x.points):
        value, scores = differentiable(compute, inputs, (stream, theta), (2, 2, 1, 1))
        layout = _used(request.layout, scores)
        scores = detach(scores)
        _, stderr, dof = mean_and_stderr(scores, layout)
    register_pytree(library(x.points))
    xp = namespace(x.points)
    adaptive = request.rtol is not None or request.atol is not None
    return Estimate(
        name=request.name,
        p=request.p,
        unit_value=value,
        unit_stderr=xp.astype(stderr, x.dtype),
        scale=scale,
        dof=dof,
        looks=len(request.looks),
        n_directions=layout.n_directions,
        n_blocks=layout.n_units,
        directions=request.sampler,
        seed=seed,
        converged=_meets_tolerance(request, scores, layout) if adaptive else None,
        scores=scores,
    )


def _used(layout: Layout, scores: Array) -> Layout:
    return layout.first(max(1, scores.shape[0] // layout.unit_rows))


def _run(request: Request, x: Cloud, y: Cloud, stream: Stream, wanted: Wanted) -> Outcome:
    """Scores of all directions, their mean, and its wanted gradients."""
    xp = namespace(x.points)
    orders: list[Array | None] = [None, None]
    if request.score.breaks_ties:
        (orders[0], x), (orders[1], y) = in_canonical_order(x), in_canonical_order(y)
    else:
        # Differences of projections keep more digits when the clouds do not sit far from the origin.
        centre = xp.mean(x.points, axis=-2, keepdims=True)
        centre = xp.mean(xp.reshape(centre, (-1, x.dim)), axis=0)
        x, y = replace(x, points=x.points - centre), replace(y, points=y.points - centre)
    parts: list[Array] = []
    totals: tuple[Array, ...] = ()
    done = 0
    with _progress(request) as advance:
        for units in request.looks:
            scores, extra = _walk(request, x, y, stream, wanted, done, units, advance)
            parts.append(scores)
            totals = tuple(a + b for a, b in zip(totals, extra, strict=True)) if totals else extra
            done = units
            if units < request.layout.n_units:
                so_far = parts[0] if len(parts) == 1 else xp.concat(parts, axis=0)
                if _meets_tolerance(request, so_far, request.layout.first(units)):
                    break
    scores = parts[0] if len(parts) == 1 else xp.concat(parts, axis=0)
    value = xp.sum(scores, axis=0) / scores.shape[0]
    for cloud in (x, y):
        if cloud.weights is not None and not is_readable(cloud.weights):
            # Weights that failed their check are NaN, which integer masses would swallow.
            value = value + 0 * xp.sum(xp.astype(cloud.weights, value.dtype), axis=-1)
    totals = tuple(t / scores.shape[0] for t in totals)
    return Outcome(xp.astype(value, x.dtype), scores, _spread(totals, wanted, orders))


def _spread(totals: tuple[Array, ...], wanted: Wanted, orders: list[Array | None]) -> tuple[Array | None, ...]:
    """Put the wanted gradients in their places, with rows in the order of the user's points."""
    gradients: list[Array | None] = []
    given = iter(totals)
    for k, want in enumerate(wanted):
        gradient, order = (next(given) if want else None), orders[k % 2]
        if gradient is not None and order is not None:
            xp = namespace(gradient)
            points = gradient if k < 2 else gradient[..., None]
            place = xp.broadcast_to(xp.argsort(order, axis=-1), points.shape[:-1])
            points = gather_points(points, place)
            gradient = points if k < 2 else points[..., 0]
        gradients.append(gradient)
    return tuple(gradients)


def _meets_tolerance(request: Request, scores: Array, layout: Layout) -> bool:
    """Whether the 95% half-width of every distance is within the tolerance."""
    on_device = mean_and_stderr(scores, layout)
    mean, stderr = to_numpy(on_device[0]), to_numpy(on_device[1])
    half = student_quantile(0.95, on_device[2], len(request.looks)) * stderr
    distance = root(mean, request.p)
    width = (root(mean + half, request.p) - root(mean - half, request.p)) / 2
    allowed = np.maximum(request.atol or 0.0, (request.rtol or 0.0) * distance)
    return bool(np.all(width <= allowed))


def _walk(
    request: Request,
    x: Cloud,
    y: Cloud,
    stream: Stream,
    wanted: Wanted,
    first_unit: int,
    stop_unit: int,
    advance: Callable[[int], None],
) -> tuple[Array, tuple[Array, ...]]:
    """Scores and summed gradients of a range of units, task by task."""
    traced = is_traced(x.points, y.points, x.weights, y.weights, stream.high)
    chunk = _chunk_rows(request, x, y, wanted)
    if traced and request.layout.unit_blocks > 1:
        # Rows of a traced number come from one block, and a unit that prices itself has several.
        chunk = max(chunk, request.layout.unit_rows, request.layout.last_rows)
    tasks = list(_tasks(request.layout, first_unit, stop_unit, chunk))
    if traced:
        return _walk_traced(request, x, y, stream, wanted, tasks, chunk)
    results = _walk_eager(request, x, y, stream, wanted, tasks, chunk, advance)
    xp = namespace(x.points)
    parts, totals = [], ()
    for scores, extra in results:
        parts.append(scores)
        totals = tuple(a + b for a, b in zip(totals, extra, strict=True)) if totals else extra
    return (parts[0] if len(parts) == 1 else xp.concat(parts, axis=0)), totals


def _walk_eager(
    request: Request,
    x: Cloud,
    y: Cloud,
    stream: Stream,
    wanted: Wanted,
    tasks: list[Task],
    chunk: int,
    advance: Callable[[int], None],
) -> Iterator[tuple[Array, tuple[Array, ...]]]:
    """Results in the order of the tasks; NumPy works on several at once."""
    workers = min(request.workers, len(tasks)) if library(x.points) == "numpy" else 1

    def evaluate(task: Task, drawn: tuple[Directions, Directions | None]) -> Any:
        draw = _draw(request, drawn, task, slice(task.row, task.row + task.n_rows), chunk)
        return request.score.evaluate(x, y, request.p, draw, wanted)

    with ThreadPoolExecutor(workers) if workers > 1 else contextlib.nullcontext() as pool:
        waiting: deque[tuple[Task, Future[Any]]] = deque()
        key, drawn = None, None
        for task in tasks:
            # Tasks that share blocks follow each other: a block is drawn once.
            if drawn is None or key != task[:3]:
                key, drawn = task[:3], _blocks(request, x, stream, task, task.block)
            if pool is None:
                yield evaluate(task, drawn)
                advance(task.n_rows)
                continue
            waiting.append((task, pool.submit(evaluate, task, drawn)))
            if len(waiting) > workers:
                yield from _collect(waiting, advance)
        while waiting:
            yield from _collect(waiting, advance)


def _collect(waiting: deque[tuple[Task, Future[Any]]], advance: Callable[[int], None]) -> Iterator[Any]:
    task, future = waiting.popleft()
    yield future.result()
    advance(task.n_rows)


def _walk_traced(
    request: Request, x: Cloud, y: Cloud, stream: Stream, wanted: Wanted, tasks: list[Task], chunk: int
) -> tuple[Array, tuple[Array, ...]]:
    """The same as a loop of the compiled program: runs of tasks of one shape share one body."""
    xp = namespace(x.points)
    parts, totals = [], ()
    while tasks:
        shape = (tasks[0].n_blocks, tasks[0].drawn_rows, tasks[0].n_rows)
        run = [t for t in tasks if (t.n_blocks, t.drawn_rows, t.n_rows) == shape]
        tasks = tasks[len(run) :]

        def step(block: Array, row: Array, task: Task = run[0]) -> tuple[Array, tuple[Array, ...]]:
            drawn = _blocks(request, x, stream, task, block[0])
            whole = task.n_rows == task.drawn_rows
            rows = slice(0, task.n_rows) if whole else xp.arange(task.n_rows) + row[0]
            draw = _draw(request, drawn, task, rows, chunk)
            return request.score.evaluate(x, y, request.p, draw, wanted)

        starts = tuple(xp.asarray([t[k] for t in run], dtype=xp.int32) for k in (0, 3))
        scores, extra = map_sum(step, starts, 1, traced=True)
        parts.append(scores)
        totals = tuple(a + b for a, b in zip(totals, extra, strict=True)) if totals else extra
    return (parts[0] if len(parts) == 1 else xp.concat(parts, axis=0)), totals


def _blocks(
    request: Request, x: Cloud, stream: Stream, task: Task, block: Any
) -> tuple[Directions, Directions | None]:
    """Draw the blocks of a task, and as many independent ones where the score asks for them."""
    index = stream_index(stream, block, task.n_blocks)
    rows = min(request.layout.block_rows, task.drawn_rows)

    def draw(purpose: int = 0) -> Directions:
        return request.sampler.blocks(stream, index, rows, x.dim, x.dtype, purpose)

    return draw(), (draw(PRICES) if request.score.needs_partner else None)


def _draw(
    request: Request, drawn: tuple[Directions, Directions | None], task: Task, rows: Any, chunk: int
) -> Draw:
    layout = request.layout
    tight = request.sampler.is_tight(layout.block_rows, drawn[0].dim)
    return Draw(drawn[0], task.drawn_rows, layout.block_rows, rows, tight, drawn[1], chunk)


def _tasks(layout: Layout, first_unit: int, stop_unit: int, chunk: int) -> Iterator[Task]:
    """Cut units into passes of at most `chunk` rows, or of one row where not even that fits."""
    unit, n_units = layout.unit_rows, layout.n_units
    at_once = max(1, chunk // unit) if layout.unit_blocks == 1 else 1
    u = first_unit
    while u < stop_unit:
        last = u == n_units - 1
        # The last unit may have another size, so it goes alone.
        count = 1 if last else min(at_once, min(stop_unit, n_units - 1) - u)
        rows = layout.last_rows if last else count * unit
        blocks = -(-rows // layout.block_rows)
        for row in range(0, rows, chunk):
            yield Task(u * layout.unit_blocks, blocks, rows, row, min(chunk, rows - row))
        u += count


def _chunk_rows(request: Request, x: Cloud, y: Cloud, wanted: Wanted) -> int:
    """How many rows one pass may hold, from what a row needs at its peak (measured, rounded up)."""
    batch = math.prod(np.broadcast_shapes(x.batch, y.batch))
    narrow = namespace(x.points).finfo(x.dtype).bits // 8
    uniform = x.weights is None and y.weights is None
    if not request.score.breaks_ties and uniform and not any(wanted):
        pairs = 0 if x.n == y.n else x.n + y.n
        per_row = batch * (narrow * 3 * (x.n + y.n) + 4 * 8 * pairs)
    else:
        per_row = batch * 8 * (x.n + y.n) * (6 if uniform else 12)
    room = request.memory // request.workers
    if is_readable(x.points):
        room = min(room, _HOST_BYTES)
    return int(max(1, room // per_row))


@contextlib.contextmanager
def _progress(request: Request) -> Iterator[Callable[[int], None]]:
    if not request.progress:
        yield lambda rows: None
        return
    from rich.console import Console
    from rich.progress import Progress

    with Progress(console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("directions", total=request.layout.n_directions)
        yield lambda rows: bar.advance(task, rows)


def default_workers() -> int:
    """As many threads as this process may run on."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
