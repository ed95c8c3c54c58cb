"""Passes over the directions: draw some, score them, add up, in memory that does not grow with their number."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from orthoslice.backend.arrays import (
    DIRECTIONS,
    PRICES,
    Array,
    Key,
    Wanted,
    add_totals,
    concat_rows,
    device,
    is_readable,
    is_traced,
    library,
    map_sum,
    namespace,
)
from orthoslice.backend.kernels.when_to_compile import expecting
from orthoslice.backend.memory import share_memory
from orthoslice.backend.stopping import stop_asked
from orthoslice.backend.threads import ordered_map
from orthoslice.clouds.cloud import shared_batch
from orthoslice.clouds.ready import ReadyCloud
from orthoslice.costs.draw import Draw, Scored
from orthoslice.couplings.coupling import couples_ranks
from orthoslice.directions import IID, Given, Sampler
from orthoslice.directions.base import DenseDirections, Directions, SteadyDirections, take_rows
from orthoslice.directions.drawing import Blocks, draw_blocks
from orthoslice.directions.walks import Task, cut_share, cut_units
from orthoslice.estimates.request import Request

# Larger pieces fall out of the processor's caches and are slower, not faster.
_HOST_BYTES = 16_000_000

# Waking a thread takes about as long as working on this many projections.
WORTH_SHARING = 1 << 18


Results: TypeAlias = tuple[Array, tuple[Array, ...]]
"""Scores `(slices, ...)`, or scores and controls `(slices, ..., 2)`; and the wanted gradients of their sum."""


@dataclass(frozen=True, eq=False)
class Passes:
    """All that passes over the directions share."""

    request: Request
    x: ReadyCloud
    y: ReadyCloud
    key: Key
    wanted: Wanted
    advance: Callable[[int], None]
    """Called with the number of directions that a task has scored."""

    def run(self, first_unit: int, stop_unit: int) -> Scored:
        """Scores of a range of units in order of (block, row), their summed gradients, and their controls.

        If the request has a `share`, only the rows in it.
        """
        sampler, layout, share = self.request.sampler, self.request.layout, self.request.share
        rows = layout.rows_between(first_unit, stop_unit) if share is None else share[1] - share[0]
        chunk = self._chunk_rows(rows)
        traced = is_traced(self.x.points, self.y.points, self.x.weights, self.y.weights, self.key.high)
        if any(self.wanted) and sampler.weights(layout.longest_block, self.x.dim) is not None:
            # A pass gives the sum of its rows' gradients, but every row has its own weight: one row a pass.
            chunk = 1
        if traced and layout.unit_blocks > 1:
            # A traced row number picks rows of one block, and such a unit has several: it takes one pass.
            chunk = max(chunk, int(layout.unit_rows.max()))
        tasks = list(cut_units(layout, first_unit, stop_unit, chunk, sampler.extends))
        if share is not None:
            tasks = list(cut_share(tasks, *share))
        with expecting(rows * self._row_numbers):
            table, totals = self._run_traced(tasks, chunk) if traced else self._run_eager(tasks, chunk)
        if self.request.control is None:
            return Scored(table, totals)
        return Scored(table[..., 0], totals, table[..., 1])

    def _run_eager(self, tasks: list[Task], chunk: int) -> Results:
        """Results in the order of the tasks; on NumPy arrays, threads work on several at once."""
        workers = min(self._share[0], len(tasks))
        parts: list[Array] = []
        totals: tuple[Array, ...] = ()
        for table, extra in ordered_map(self._work(tasks, chunk), workers):
            parts.append(table)
            totals = add_totals(totals, extra)
            self.advance(table.shape[0])
            # Gradients must be summed over all rows: a partial sum is of no use.
            if stop_asked() and not any(self.wanted):
                break
        return concat_rows(parts), totals

    def _work(self, tasks: list[Task], chunk: int) -> Iterator[Callable[[], Results]]:
        drawn, draw = None, None
        for task in tasks:
            # Tasks that share blocks follow each other: a block is drawn once.
            if draw is None or drawn != task[:4]:
                drawn, draw = task[:4], self._draw(task, task.block, chunk)
            rows = slice(task.row, task.row + task.n_rows)
            yield functools.partial(self._score, task, draw._replace(rows=rows))

    def run_task(self, task: Task) -> Results:
        """What :meth:`run` finds on the rows of one task."""
        draw = self._draw(task, task.block, task.n_rows)
        return self._score(task, draw._replace(rows=slice(task.row, task.row + task.n_rows)))

    def _run_traced(self, tasks: list[Task], chunk: int) -> Results:
        """As :meth:`_run_eager`, by loops of the compiled program: tasks of one shape share one loop."""
        xp = namespace(self.x.points)
        shapes: dict[tuple[int, ...], list[int]] = {}
        for k, task in enumerate(tasks):
            shapes.setdefault((*task[1:4], task.n_rows), []).append(k)
        parts: list[Array] = []
        totals: tuple[Array, ...] = ()
        for members in shapes.values():

            def step(block: Array, row: Array, task: Task = tasks[members[0]]) -> Results:
                whole = task.n_rows == task.drawn_rows
                rows = slice(0, task.n_rows) if whole else xp.arange(task.n_rows) + row[0]
                return self._score(task, self._draw(task, block[0], chunk)._replace(rows=rows))

            blocks = xp.asarray([tasks[k].block for k in members], dtype=xp.int32)
            rows = xp.asarray([tasks[k].row for k in members], dtype=xp.int32)
            table, extra = map_sum(step, (blocks, rows), 1, traced=True)
            parts.append(table)
            totals = add_totals(totals, extra)
        if len(parts) == 1:
            return parts[0], totals
        starts = np.cumsum([0, *(t.n_rows for t in tasks)])
        found = np.concatenate([np.arange(starts[k], starts[k + 1]) for ks in shapes.values() for k in ks])
        return xp.take(concat_rows(parts), xp.asarray(np.argsort(found)), axis=0), totals

    def _draw(self, task: Task, block: object, chunk: int) -> Draw:
        """The blocks of a task, from `block` on, and as many others where the score asks for them."""
        request, dim = self.request, self.x.dim

        def draw(sampler: Sampler, purpose: int) -> Directions:
            size = (task.n_blocks, task.block_rows, dim, request.score.directions_dtype(self.x))
            return draw_lines(Blocks(sampler, self.key, block, *size, purpose), request.steady)

        # No further directions can be drawn like given ones.
        other = IID() if isinstance(request.sampler, Given) else request.sampler
        return Draw(
            directions=draw(request.sampler, DIRECTIONS),
            n_rows=task.drawn_rows,
            block_rows=task.block_rows,
            rows=slice(0, task.drawn_rows),
            is_basis=request.sampler.is_basis(request.layout.longest_block, dim),
            partner=draw(other, PRICES) if request.score.needs_partner else None,
            chunk_rows=chunk,
        )

    def _score(self, task: Task, draw: Draw) -> Results:
        request = self.request
        table, totals, _ = self._evaluate(draw)
        xp = namespace(table)
        if request.control is not None:
            controls = request.control.evaluate(self.x, self.y, request.p, draw.directions, draw.rows)
            table = xp.stack([table, xp.astype(controls, table.dtype)], axis=-1)
        weights = request.sampler.weights(task.block_rows, self.x.dim)
        if weights is None:
            return table, totals
        everyone = xp.asarray(np.tile(weights, task.n_blocks), dtype=table.dtype, device=device(table))
        own = take_rows(everyone, draw.rows)
        weighted = xp.reshape(own, (-1, *(1,) * (table.ndim - 1))) * table
        # Where gradients are wanted, a pass has one row: see `run`.
        return weighted, tuple(xp.astype(own[0], total.dtype) * total for total in totals)

    def _evaluate(self, draw: Draw) -> Scored:
        score = functools.partial(self.request.score.evaluate, self.x, self.y, self.request.p)
        scored = score(draw, self.wanted)
        if not any(self.wanted[2:]):
            return scored
        # At equal weights the value has a kink: the gradient is the mean of the slopes on both sides.
        only_weights = (False, False, *self.wanted[2:])
        other = score(draw._replace(other_side=True), only_weights)
        n_points = sum(self.wanted[:2])
        sides = zip(scored.gradients[n_points:], other.gradients, strict=True)
        halves = tuple((a + b) / 2 for a, b in sides)
        return scored._replace(gradients=(*scored.gradients[:n_points], *halves))

    @functools.cached_property
    def _share(self) -> tuple[int, int]:
        """As many workers as have room for a row each, and the rows that each of them may hold."""
        request, x, y = self.request, self.x, self.y
        per_row = request.score.row_bytes(x, y, request.p, self.wanted)
        if request.score.breaks_ties and x.weights is None and y.weights is None and not couples_ranks(x, y):
            # Besides the pairs, the ranks of both clouds and their masses are held.
            per_row *= 2
        per_row += request.sampler.row_bytes(x.dim)
        workers, rows = share_memory(
            request.memory, per_row, request.workers if library(x.points) == "numpy" else 1
        )
        if is_readable(x.points):
            # Kernels reuse their working space from row to row: at least 4 rows, even if they exceed the cache.
            rows = min(rows, max(4, _HOST_BYTES // per_row))
        return workers, rows

    @property
    def _row_numbers(self) -> int:
        """Projections of both clouds on one direction."""
        return (self.x.n + self.y.n) * math.prod(shared_batch(self.x, self.y))

    def _chunk_rows(self, rows: int) -> int:
        """How many of `rows` rows a pass may hold, by the memory that a row needs."""
        workers, limit = self._share
        if workers == 1 or rows * self._row_numbers <= WORTH_SHARING:
            return limit
        # Every worker has the same number of pieces of the same size, so that all end together.
        pieces = -(-rows // (limit * workers)) * workers
        return -(-rows // pieces)


def draw_lines(blocks: Blocks, steady: bool) -> Directions:
    """Draw blocks of directions; if `steady`, such that the projection of a point depends on it alone."""
    drawn: Directions = draw_blocks(blocks)
    return SteadyDirections(drawn.theta) if steady and isinstance(drawn, DenseDirections) else drawn
