"""The sliced loss of small clouds on an NVIDIA GPU, where the host takes longer than the GPU.

For clouds of one shape, all of a step but the addresses of its tensors is prepared once. A step then makes
three allocations and starts two or three kernels. The reference is that of :mod:`.loss`.
"""

from __future__ import annotations

import functools
import math
import sys
from typing import NamedTuple

from orthoslice.backend.array_types import Tensor
from orthoslice.backend.kernels.cuda.rows import adding, finishing, matching, projecting

# What regions of working memory are rounded up to, in numbers.
_ROUNDED = 64


class SmallStep:
    """The loss of clouds of `n` points against each other, for clouds that a chip sorts in one go.

    With `inside`, every direction projects the clouds where it sorts them; otherwise that is a launch before.
    Costs are multiplied by `factor`, and their sums over the directions by `share`.
    """

    def __init__(
        self,
        device: int,
        n: int,
        dim: int,
        slices: int,
        p: float,
        inside: bool,
        clouds: int = 1,
        factor: float | None = None,
        share: float = 1.0,
    ) -> None:
        factor = 1 / slices if factor is None else factor
        self._project = None if inside else projecting(device, slices, n, n, dim, clouds)
        # Rows that are projected already are matched whatever cloud they belong to.
        sizes, rest = ((slices, n, dim), clouds) if inside else ((slices * clouds, n, 0), 1)
        self._match = functools.partial(matching, device, *sizes, p, factor, rest)
        self._add_up = adding(device, slices, clouds, share)
        self._finish = {
            (of_x, of_y): finishing(device, slices, n if of_x else 0, n if of_y else 0, dim, clouds, share)
            for of_x, of_y in ((True, False), (False, True), (True, True))
        }
        self._n, self._dim = n * clouds, dim
        # Scores, of twice the width; then the projections of both clouds, and over them their slopes.
        self._scores, self._rows = (
            -(-count // _ROUNDED) * _ROUNDED for count in (2 * slices * clouds, slices * clouds * n)
        )

    def __call__(
        self, x: Tensor, y: Tensor, theta: Tensor, step: Tensor | None, wanted: tuple[bool, bool]
    ) -> tuple[Tensor, Tensor | None]:
        """The loss as a float32 scalar, and the wanted gradients, one below the other, or None.

        Adds 1 to an int64 `step` unless it is None.
        """
        room = x.new_empty(self._scores + 2 * self._rows)
        total, scores = x.new_empty(()), room.data_ptr()
        return total, self.run(x, y, theta, step, wanted, total, scores, scores + 4 * self._scores)

    def run(
        self,
        x: Tensor,
        y: Tensor,
        theta: Tensor,
        step: Tensor | None,
        wanted: tuple[bool, bool],
        total: Tensor,
        scores: Tensor | int,
        px: int,
    ) -> Tensor | None:
        """The same, with room for the total, for scores, and for projections and slopes, at `px`."""
        x, y, theta = x.contiguous(), y.contiguous(), theta.contiguous()
        of_x, of_y = wanted
        py = px + 4 * self._rows
        x_slopes, y_slopes = px if of_x else 0, py if of_y else 0
        match = self._match(of_x or of_y)
        if self._project is None:
            match(x, y, theta, scores, x_slopes, y_slopes)
        else:
            self._project(x, y, theta, None, px, py)
            # A block has read its rows when it writes their slopes.
            match(px, py, 0, scores, x_slopes, y_slopes)
        if not (of_x or of_y):
            self._add_up(scores, total, step)
            return None
        gradient = x.new_empty((self._n * (of_x + of_y), self._dim))
        self._finish[wanted](x_slopes, y_slopes, theta, gradient, scores, total, step)
        return gradient


class Priced(NamedTuple):
    """What is found for `slices` directions and pairs of clouds `(..., n, dim)`."""

    value: Tensor
    """The means over the directions, float32 `(...)`."""
    scores: Tensor
    """Costs, float64 `(slices, ...)`."""
    gradients: tuple[Tensor | None, Tensor | None]
    """Those of the means by x and by y, of their shapes; None where they were not wanted."""


class SmallDistance:
    """The same for pairs of clouds `(*batch, n, dim)` that keep their costs: two to four allocations."""

    def __init__(
        self, device: int, n: int, dim: int, slices: int, p: float, inside: bool, batch: tuple[int, ...]
    ) -> None:
        clouds = math.prod(batch)
        self._step = SmallStep(device, n, dim, slices, p, inside, clouds, 1.0, 1 / slices)
        self._inside, self._batch, self._scores = inside, batch, (slices, *batch)
        self._room = 2 * slices * clouds * n + 2 * _ROUNDED
        self._double = sys.modules["torch"].float64

    def __call__(self, x: Tensor, y: Tensor, theta: Tensor, wanted: tuple[bool, bool]) -> Priced:
        """Means, costs and gradients of contiguous clouds on unit rows."""
        value, scores = x.new_empty(self._batch), x.new_empty(self._scores, dtype=self._double)
        some = wanted[0] or wanted[1]
        room = None if self._inside and not some else x.new_empty(self._room)
        rows = 0 if room is None else room.data_ptr()
        gradient = self._step.run(x, y, theta, None, wanted, value, scores, rows)
        if gradient is None:
            return Priced(value, scores, (None, None))
        sides = [part.view(x.shape) for part in gradient.chunk(wanted[0] + wanted[1])]
        return Priced(value, scores, (sides[0] if wanted[0] else None, sides[-1] if wanted[1] else None))
