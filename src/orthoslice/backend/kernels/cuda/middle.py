"""The sliced loss of clouds of a few times what a chip sorts, on an NVIDIA GPU, in few launches.

The reference is that of :mod:`.loss`.
"""

from __future__ import annotations

from typing import NamedTuple

from orthoslice.backend.array_types import Tensor
from orthoslice.backend.kernels.cuda import Launch
from orthoslice.backend.kernels.cuda.rows import (
    LongSort,
    adding,
    finishing,
    matching_sorted,
    projecting,
    sorting_long_rows,
)


class _Plan(NamedTuple):
    """What depends on the wanted gradients: launches, and words of memory for scores and for all."""

    sort: LongSort
    match: Launch
    end: Launch
    scores: int
    words: int


class MiddleStep:
    """The loss of clouds of `n` points against each other, for clouds that a chip does not sort in one go."""

    def __init__(self, device: int, n: int, dim: int, slices: int, p: float) -> None:
        self._project = projecting(device, slices, n, n, dim)
        self._sizes, self._power = (device, slices, n, dim), p
        self._plans: dict[tuple[bool, bool], _Plan] = {}

    def __call__(
        self, x: Tensor, y: Tensor, theta: Tensor, step: Tensor | None, wanted: tuple[bool, bool]
    ) -> tuple[Tensor, Tensor | None]:
        """As :class:`.small.SmallStep`."""
        x, y, theta = x.contiguous(), y.contiguous(), theta.contiguous()
        _, slices, n, dim = self._sizes
        of_x, of_y = wanted
        some = of_x or of_y
        plan = self._plans.get(wanted) or self._prepare(wanted)
        room, total = x.new_empty(plan.words), x.new_empty(())
        scores, size = room.data_ptr(), 4 * slices * n
        # Projections of both clouds, and over them their slopes; rows in order; places; and what sorting takes.
        px = scores + 4 * plan.scores
        py, keys, places, rest = (px + k * size for k in (1, 2, 4, 6 if some else 4))
        self._project(x, y, theta, None, px, py)
        plan.sort.run(rest, px, keys, places if some else None)
        x_slopes, y_slopes = px if of_x else 0, py if of_y else 0
        plan.match(keys, keys + size, places, places + size, scores, x_slopes, y_slopes)
        if not some:
            plan.end(scores, total, step)
            return total, None
        gradient = x.new_empty((n * (of_x + of_y), dim))
        plan.end(x_slopes, y_slopes, theta, gradient, scores, total, step)
        return total, gradient

    def _prepare(self, wanted: tuple[bool, bool]) -> _Plan:
        device, slices, n, dim = self._sizes
        of_x, of_y = wanted
        some = of_x or of_y
        sort = sorting_long_rows(device, 2 * slices, n, some)
        match, parts = matching_sorted(device, slices, n, self._power, 1 / slices, wanted)
        end = adding(device, slices * parts)
        if some:
            end = finishing(device, slices, n * of_x, n * of_y, dim, parts=parts)
        # Scores are of twice the width, and what follows is at a multiple of 16 bytes.
        scores = -(-slices * parts // 2) * 4
        words = scores + 2 * (3 if some else 2) * slices * n + sort.words
        plan = self._plans[wanted] = _Plan(sort, match, end, scores, words)
        return plan
