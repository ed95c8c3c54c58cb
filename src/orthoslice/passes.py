"""Passes over the directions: draw some, score them, add up, in memory that does not grow with their number."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from orthoslice.arrays import (
    DIRECTIONS,
    PRICES,
    Array,
    Stream,
    Wanted,
    add_totals,
    concat_rows,
    is_readable,
    is_traced,
    library,
    map_sum,
    namespace,
)
from orthoslice.blocks import Layout
from orthoslice.cloud import Cloud, shared_batch
from orthoslice.costs.draw import Draw, Priced
from orthoslice.directions import IID, Given, Sampler
from orthoslice.directions.base import Directions
from orthoslice.directions.drawing import Blocks, draw_blocks
from orthoslice.kernels.cuda import LONGEST_CUDA_ROW, cuda_refusal
from orthoslice.scores import Score
from orthoslice.threads import ordered_map

# Larger pieces fall out of the processor's caches and are slower, not faster.
_HOST_BYTES = 16_000_000

# Projections; waking a thread takes about as long as working on this many.
_WORTH_SHARING = 1 << 18

# Rows that must be of use for each one that is drawn in vain: drawing is a small part of the work.
_WORTH_PADDING = 4


class Task(NamedTuple):
    """Rows `row .. row + n_rows` of `n_blocks` blocks that together hold `drawn_rows` rows."""

    block: int
    n_blocks: int
    drawn_rows: int
    row: int
    n_rows: int


class Drawn(NamedTuple):
    """The blocks of a task, and as many independent ones where the score asks for them."""

    directions: Directions
    partner: Directions | None


@dataclass(frozen=True, eq=False)
class Passes:
    """All that passes over the directions share."""

    score: Score
    sampler: Sampler
    layout: Layout
    p: float
    x: Cloud
    y: Cloud
    stream: Stream
    wanted: Wanted
    memory: int
    workers: int
    advance: Callable[[int], None]

    def run(self, first_unit: int, stop_unit: int) -> Priced:
        """Scores of a range of units in order of (block, row), and their summed gradients."""
        chunk = self._chunk_rows(self.layout.rows_between(first_unit, stop_unit))
        traced = is_traced(self.x.points, self.y.points, self.x.weights, self.y.weights, self.stream.high)
        if traced and self.layout.unit_blocks > 1:
            # Rows of a traced number come from one block, and a unit that prices itself has several.
            chunk = max(chunk, self.layout.unit_rows, self.layout.last_rows)
        tasks = list(cut_units(self.layout, first_unit, stop_unit, chunk))
        if traced:
            return self._run_traced(tasks, chunk)
        parts: list[Array] = []
        totals: tuple[Array, ...] = ()
        for scores, extra in self._run_eager(tasks, chunk):
            parts.append(scores)
            totals = add_totals(totals, extra)
            self.advance(scores.shape[0])
        return concat_rows(parts), totals

    def _run_eager(self, tasks: list[Task], chunk: int) -> Iterator[Priced]:
        """Results in the order of the tasks; on NumPy arrays, threads work on several at once."""
        workers = min(self.workers, len(tasks)) if library(self.x.points) == "numpy" else 1
        return ordered_map(self._work(tasks, chunk), workers)

    def _work(self, tasks: list[Task], chunk: int) -> Iterator[Callable[[], Priced]]:
        key, drawn = None, None
        for task in tasks:
            # Tasks that share blocks follow each other: a block is drawn once.
            if drawn is None or key != task[:3]:
                key, drawn = task[:3], self._draw(task, task.block)
            rows = slice(task.row, task.row + task.n_rows)
            yield functools.partial(self._score, task, drawn, rows, chunk)

    def _run_traced(self, tasks: list[Task], chunk: int) -> Priced:
        """The same as loops of the compiled program: tasks of one shape share one loop."""
        xp = namespace(self.x.points)
        shapes: dict[tuple[int, int, int], list[int]] = {}
        for k, task in enumerate(tasks):
            shapes.setdefault((task.n_blocks, task.drawn_rows, task.n_rows), []).append(k)
        parts: list[Array] = []
        totals: tuple[Array, ...] = ()
        for members in shapes.values():

            def step(block: Array, row: Array, task: Task = tasks[members[0]]) -> Priced:
                whole = task.n_rows == task.drawn_rows
                rows = slice(0, task.n_rows) if whole else xp.arange(task.n_rows) + row[0]
                return self._score(task, self._draw(task, block[0]), rows, chunk)

            blocks = xp.asarray([tasks[k].block for k in members], dtype=xp.int32)
            rows = xp.asarray([tasks[k].row for k in members], dtype=xp.int32)
            scores, extra = map_sum(step, (blocks, rows), 1, traced=True)
            parts.append(scores)
            totals = add_totals(totals, extra)
        if len(parts) == 1:
            return parts[0], totals
        starts = np.cumsum([0, *(t.n_rows for t in tasks)])
        found = np.concatenate([np.arange(starts[k], starts[k + 1]) for ks in shapes.values() for k in ks])
        return xp.take(concat_rows(parts), xp.asarray(np.argsort(found)), axis=0), totals

    def _draw(self, task: Task, block: Any) -> Drawn:
        rows = min(self.layout.block_rows, task.drawn_rows)

        def draw(sampler: Sampler, purpose: int) -> Directions:
            size = (task.n_blocks, rows, self.x.dim, self.score.directions_dtype(self.x))
            drawn: Directions = draw_blocks(Blocks(sampler, self.stream, block, *size, purpose))
            return drawn

        # Given directions know no others like them.
        other = IID() if isinstance(self.sampler, Given) else self.sampler
        partner = draw(other, PRICES) if self.score.needs_partner else None
        return Drawn(draw(self.sampler, DIRECTIONS), partner)

    def _score(self, task: Task, drawn: Drawn, rows: slice | Array, chunk: int) -> Priced:
        draw = Draw(
            directions=drawn.directions,
            n_rows=task.drawn_rows,
            block_rows=self.layout.block_rows,
            rows=rows,
            tight=self.sampler.is_tight(self.layout.block_rows, self.x.dim),
            partner=drawn.partner,
            chunk_rows=chunk,
        )
        scores, gradients = self.score.evaluate(self.x, self.y, self.p, draw, self.wanted)
        if not any(self.wanted[2:]):
            return scores, gradients
        # Equal weights meet at kinks of the value: the mean of the slopes on both sides is the fair answer.
        only_weights = (False, False, *self.wanted[2:])
        other = self.score.evaluate(self.x, self.y, self.p, draw._replace(other_side=True), only_weights)[1]
        n_points = sum(self.wanted[:2])
        halves = tuple((a + b) / 2 for a, b in zip(gradients[n_points:], other, strict=True))
        return scores, (*gradients[:n_points], *halves)

    def _chunk_rows(self, rows: int) -> int:
        """How many of these rows a pass may hold, from what a row needs at its peak (measured, rounded up)."""
        x, y = self.x, self.y
        batch = math.prod(shared_batch(x, y))
        narrow = namespace(x.points).finfo(x.dtype).bits // 8
        uniform = x.weights is None and y.weights is None
        on_host = isinstance(x.points, np.ndarray)
        fits = x.batch == y.batch and max(x.n, y.n) <= LONGEST_CUDA_ROW
        has_kernels = on_host or (uniform and fits and cuda_refusal(x.points) is None)
        if not self.score.breaks_ties and (uniform or has_kernels):
            per_row = batch * narrow * (x.n + y.n) * (8 if any(self.wanted) else 3)
            if not has_kernels:
                # Only kernels do without pairs.
                per_row += 0 if x.n == y.n and not any(self.wanted) else batch * 8 * (x.n + y.n) * 5
        else:
            per_row = batch * 8 * (x.n + y.n) * (6 if uniform else 12)
        # Drawing a row takes a dozen numbers a coordinate.
        per_row += 12 * 8 * self.sampler.ambient_dim(x.dim)
        room = self.memory // (self.workers if on_host else 1)
        if not is_readable(x.points):
            return int(max(1, room // per_row))
        # Kernels reuse their working space from row to row, so a few rows are worth more than the cache.
        limit = int(max(1, min(room, max(_HOST_BYTES, 4 * per_row)) // per_row))
        if self.workers == 1 or rows * (x.n + y.n) * batch <= _WORTH_SHARING:
            return limit
        # As many pieces for every worker, of the same size: nobody waits for a straggler.
        pieces = -(-rows // (limit * self.workers)) * self.workers
        return -(-rows // pieces)


def cut_units(layout: Layout, first_unit: int, stop_unit: int, chunk: int) -> Iterator[Task]:
    """Cut units into passes of at most `chunk` rows, or of one row where not even that fits."""
    unit, n_units = layout.unit_rows, layout.n_units
    at_once = max(1, chunk // unit) if layout.unit_blocks == 1 else 1
    u = first_unit
    while u < stop_unit:
        count = min(at_once, stop_unit - u)
        unused = unit - layout.last_rows if u + count == n_units else 0
        if count > 1 and unused * _WORTH_PADDING > (count - 1) * unit:
            # Whole blocks are drawn: a short one goes with the others only where little of it goes unused.
            count -= 1
        rows = layout.rows_between(u, u + count)
        blocks = -(-rows // layout.block_rows)
        # Parts of a unit are of one size, or nearly: 32 + 32 rows, not 63 + 1.
        part = -(-rows // -(-rows // chunk))
        for row in range(0, rows, part):
            yield Task(u * layout.unit_blocks, blocks, rows, row, min(part, rows - row))
        u += count
