"""The projected loss on an NVIDIA GPU, without weights: pairs are priced in full space.

The reference is `price_in_space` of `orthoslice.costs.space`, of couplings in canonical order, averaged over
the rows of `theta`.
"""

from __future__ import annotations

from typing import Any

from orthoslice.backend.array_types import Tensor
from orthoslice.backend.kernels.cuda import Kernel, Program, bind
from orthoslice.backend.kernels.cuda.lexsort import ordering
from orthoslice.backend.kernels.cuda.rows import adding, projecting, sorting

_THREADS = 256
_PROGRAM = Program("pairs", (("THREADS", _THREADS),))
_PRICE_PAIRS = Kernel("price_pairs", 7, "iiiiiidd")
_PULL_POINTS = Kernel("pull_points", 7, "iiiii")

# Scratch for the sums of a block, and room for what its threads have pulled.
_SCRATCH_BYTES, _PULL_BYTES = 256, 4 * 4 * _THREADS

# Pairs of a direction that are one block's share.
_PAIRS = 512

BYTES_A_PAIR = 24
"""Working memory: two projections, over which their places are written, and two matches."""


class ProjectedStep:
    """The loss of clouds of `n` points against each other, for clouds of at most `lexsort.LONGEST_CLOUD`."""

    def __init__(self, device: int, n: int, dim: int, slices: int, p: float) -> None:
        self._order = ordering(device, 2, n, dim)
        self._project = projecting(device, slices, n, n, dim)
        self._sort = sorting(device, 2 * slices, n, places=True)
        parts = -(-n // _PAIRS)
        sizes, mass = (slices, n, dim, parts), 1 / (n * slices)

        def price(of_x: bool, of_y: bool) -> Any:
            shape = (slices * parts, _THREADS, _SCRATCH_BYTES)
            return bind(_PRICE_PAIRS, _PROGRAM, device, *shape, *sizes, of_x, of_y, p, mass)

        def pull(of_x: bool, of_y: bool) -> Any:
            return bind(_PULL_POINTS, _PROGRAM, device, n * (of_x + of_y), _THREADS, _PULL_BYTES, *sizes, of_x)

        some = ((True, False), (False, True), (True, True))
        self._price = {wanted: price(*wanted) for wanted in ((False, False), *some)}
        self._pull = {wanted: pull(*wanted) for wanted in some}
        self._add_up = adding(device, slices * parts)
        self._n, self._dim = n, dim
        # In words: orders and scores, of twice the width; projections; matches, of twice the width.
        self._orders, self._scores, self._rows = 4 * n, 2 * slices * parts, 2 * slices * n

    def __call__(
        self,
        x: Tensor,
        y: Tensor,
        theta: Tensor,
        more_mass: Tensor,
        step: Tensor | None,
        wanted: tuple[bool, bool],
    ) -> tuple[Tensor, Tensor | None]:
        """As :class:`.small.SmallStep`.

        `more_mass` is None, or NaN where a direction is: sorting would lose it, so it is added to every mass.
        """
        x, y, theta = x.contiguous(), y.contiguous(), theta.contiguous()
        some = wanted[0] or wanted[1]
        room = x.new_empty(self._orders + self._scores + (3 if some else 1) * self._rows)
        total = x.new_empty(())
        order = room.data_ptr()
        scores = order + 4 * self._orders
        rows = scores + 4 * self._scores
        matches = rows + 4 * self._rows if some else 0
        self._order(x, y, order)
        self._project(x, y, theta, order, rows, rows + 2 * self._rows)
        # A block has read its row when it writes the places of its numbers.
        self._sort(rows, 0, rows)
        self._price[wanted](x, y, order, rows, more_mass, scores, matches)
        if not some:
            self._add_up(scores, total, step)
            return total, None
        gradient = x.new_empty((self._n * (wanted[0] + wanted[1]), self._dim))
        self._pull[wanted](x, y, matches, gradient, scores, total, step)
        return total, gradient
