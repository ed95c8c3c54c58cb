"""The sliced loss of small clouds on an NVIDIA GPU, where the host takes longer than the GPU.

For clouds of one shape, all of a step but the addresses of its tensors is prepared once. A step then makes
three allocations and starts two or three kernels. The reference is that of :mod:`.loss`.
"""

from __future__ import annotations

import functools

from orthoslice.backend.array_types import Tensor
from orthoslice.backend.kernels.cuda.rows import adding, finishing, matching, projecting

# What regions of working memory are rounded up to, in numbers.
_ROUNDED = 64


class SmallStep:
    """The loss of clouds of `n` points against each other, for clouds that a chip sorts in one go.

    With `inside`, every direction projects the clouds where it sorts them; otherwise that is a launch before.
    """

    def __init__(self, device: int, n: int, dim: int, slices: int, p: float, inside: bool) -> None:
        self._project = None if inside else projecting(device, slices, n, n, dim)
        self._match = functools.partial(matching, device, slices, n, dim if inside else 0, p, 1 / slices)
        self._add_up = adding(device, slices)
        self._finish = {
            (of_x, of_y): finishing(device, slices, n if of_x else 0, n if of_y else 0, dim)
            for of_x, of_y in ((True, False), (False, True), (True, True))
        }
        self._n, self._dim = n, dim
        # Scores, of twice the width; then the projections of both clouds, and over them their slopes.
        self._scores, self._rows = (-(-count // _ROUNDED) * _ROUNDED for count in (2 * slices, slices * n))

    def __call__(
        self, x: Tensor, y: Tensor, theta: Tensor, step: Tensor | None, wanted: tuple[bool, bool]
    ) -> tuple[Tensor, Tensor | None]:
        """The loss as a float32 scalar, and the wanted gradients, one below the other, or None.

        Adds 1 to an int64 `step` unless it is None.
        """
        x, y, theta = x.contiguous(), y.contiguous(), theta.contiguous()
        of_x, of_y = wanted
        room = x.new_empty(self._scores + 2 * self._rows)
        total = x.new_empty(())
        scores = room.data_ptr()
        px = scores + 4 * self._scores
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
            return total, None
        gradient = x.new_empty((self._n * (of_x + of_y), self._dim))
        self._finish[wanted](x_slopes, y_slopes, theta, gradient, scores, total, step)
        return total, gradient
