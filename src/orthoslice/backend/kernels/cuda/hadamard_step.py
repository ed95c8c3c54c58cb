"""The sliced loss on Walsh-Hadamard blocks on an NVIDIA GPU: a whole step by transforms.

Directions are never formed. The reference is that of :mod:`.loss`, on the rows that `HadamardRademacher` draws.
"""

from __future__ import annotations

import functools
import itertools
import math
import sys
from typing import TypeAlias

from orthoslice.backend.array_types import Tensor
from orthoslice.backend.kernels.cuda.hadamard import (
    FLAGGED,
    BlockShape,
    carry_back_from_span,
    carrying_back,
    project_on_span,
    projecting_on_blocks,
    projecting_on_drawn_blocks,
    starting_on_blocks,
)
from orthoslice.backend.kernels.cuda.loss import BYTES_DEALT
from orthoslice.backend.kernels.cuda.rows import (
    add_up,
    adding,
    longest_on_chip,
    match_rows,
    matching,
    move_clouds,
)

# What regions of working memory are rounded up to, in numbers.
_ROUNDED = 64

_BOTH, _NEITHER = (True, True), (False, False)

Drawing: TypeAlias = tuple[tuple[Tensor, Tensor], Tensor | None]
"""A key, and the step of a training run that it is folded with, or None."""


class HadamardStep:
    """The loss of clouds of `n` and `m` points on the first `slices` rows of blocks.

    `factor` is what the sum of the costs is multiplied by. Blocks are drawn from a key that is folded with
    `steps` and the step, and for each block with its number and `purpose`.
    """

    def __init__(
        self,
        device: int,
        sizes: tuple[int, int, int],
        blocks: BlockShape,
        slices: int,
        p: float,
        factor: float,
        memory: int,
        steps: int,
        purpose: int,
    ) -> None:
        n, m, dim = self._sizes = sizes
        self._blocks, self._slices, self._p, self._factor = blocks, slices, p, factor
        self._parts = -(-slices // max(1, memory // (BYTES_DEALT * (n + m))))
        self._on_chip = self._parts == 1 and n == m <= longest_on_chip(device)
        self._carry_back = {
            wanted: carrying_back(device, n * wanted[0], m * wanted[1], dim, blocks, True)
            for wanted in ((True, False), (False, True), _BOTH)
            if self._on_chip
        }

        counts = {wanted: carry.n_counts for wanted, carry in self._carry_back.items()} | {_NEITHER: 0}
        of_blocks = device, n, dim, blocks, (steps, purpose)
        self._start = {wanted: starting_on_blocks(*of_blocks, n_counts) for wanted, n_counts in counts.items()}
        self._begin = {
            wanted: projecting_on_drawn_blocks(*of_blocks, n_counts) if self._on_chip else None
            for wanted, n_counts in counts.items()
        }
        self._project = projecting_on_blocks(device, n, m, dim, blocks)
        self._match = functools.partial(matching, device, slices, n, 0, p, factor, 1)
        self._add_up = adding(device, slices)
        self._factors = blocks.n_blocks, blocks.rounds, blocks.columns
        # Scores, of twice the width; factors; the centre and its flags; the projections of both clouds, and
        # over them their slopes. Parts of gradients and their counters follow.
        regions = 2 * slices, math.prod(self._factors), dim, -(-dim // FLAGGED), slices * n, slices * m
        rounded = (-(-count // _ROUNDED) * _ROUNDED for count in regions)
        *self._offsets, self._room = itertools.accumulate(rounded, initial=0)

    def __call__(
        self, x: Tensor, y: Tensor, drawing: Drawing, step: Tensor | None, wanted: tuple[bool, bool]
    ) -> tuple[Tensor, Tensor | None, Tensor]:
        """The loss as a float32 scalar; the wanted gradients, one below the other, or None; and the costs.

        Adds 1 to an int64 `step` unless it is None. What is returned last begins with the costs of the rows,
        times the factor, as float64.
        """
        x, y = x.contiguous(), y.contiguous()
        return (self._make_on_chip if self._on_chip else self._make_in_parts)(x, y, drawing, step, wanted)

    def _make_on_chip(
        self, x: Tensor, y: Tensor, drawing: Drawing, step: Tensor | None, wanted: tuple[bool, bool]
    ) -> tuple[Tensor, Tensor | None, Tensor]:
        """One launch begins, one projects, one sorts and prices, one carries back and adds up.

        Of few points the first two are one.
        """
        (high, low), now = drawing
        of_x, of_y = wanted
        carry_back = self._carry_back.get(wanted)
        more = 0 if carry_back is None else carry_back.n_parts + carry_back.n_counts
        room, total = x.new_empty(self._room + more), x.new_empty(())
        start = room.data_ptr()
        scores, factors, centre, flags, px, py = (start + 4 * offset for offset in self._offsets)
        parts = start + 4 * self._room
        counts = parts if carry_back is None else parts + 4 * carry_back.n_parts
        begin = self._begin[wanted]
        if begin is not None:
            begin(x, y, high, low, now, factors, px, py, counts, 0, self._slices)
        else:
            self._start[wanted](high, low, now, x, factors, centre, flags, counts)
            self._project(x, y, centre, flags, factors, px, py, 0, self._slices)
        x_slopes, y_slopes = px if of_x else 0, py if of_y else 0
        # A block has read its rows when it writes their slopes.
        self._match(of_x or of_y)(px, py, None, scores, x_slopes, y_slopes)
        if carry_back is None:
            self._add_up(scores, total, step)
            return total, None, room
        gradient = x.new_empty((len(x) * of_x + len(y) * of_y, self._sizes[2]))
        sums = gradient, parts, counts, scores, total, step
        carry_back.launch(x_slopes, y_slopes, factors, *sums, 0, self._slices)
        return total, gradient, room

    def _make_in_parts(
        self, x: Tensor, y: Tensor, drawing: Drawing, step: Tensor | None, wanted: tuple[bool, bool]
    ) -> tuple[Tensor, Tensor | None, Tensor]:
        """Clouds of any sizes, some directions at a time."""
        (high, low), now = drawing
        factors, dim, paired = x.new_empty(self._factors), self._sizes[2], self._blocks.paired
        self._start[_NEITHER](high, low, now, None, factors, None, None, None)
        clouds, scores = move_clouds(x, y, x), []
        gradients: dict[int, Tensor] = {}
        rows = -(-self._slices // self._parts)
        for first in range(0, self._slices, rows):
            part = self._rows_of_blocks(first, min(first + rows, self._slices))
            px, py = (project_on_span(cloud, factors, part, paired) for cloud in clouds)
            costs, *slopes = match_rows(px, py, self._p, self._factor, wanted)
            scores.append(costs)
            for k, side in enumerate(slopes):
                if side is not None:
                    gradient = carry_back_from_span(side, factors, part, dim, paired)
                    gradients[k] = gradient if first == 0 else gradients[k].add_(gradient)
        join = sys.modules["torch"].cat
        costs = scores[0] if len(scores) == 1 else join(scores)
        found = list(gradients.values())
        return add_up(costs, step), join(found) if len(found) == 2 else found[0] if found else None, costs

    def _rows_of_blocks(self, first: int, stop: int) -> list[tuple[int, slice]]:
        rows = self._blocks.block_rows
        return [
            (block, slice(max(first - block * rows, 0), min(stop - block * rows, rows)))
            for block in range(first // rows, -(-stop // rows))
        ]
