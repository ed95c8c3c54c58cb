"""The projected loss on an NVIDIA GPU, without weights: pairs are priced in full space.

The reference is `price_in_space` of `orthoslice.costs.space`, of couplings in canonical order, averaged over
the rows of `theta`.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from orthoslice.backend.array_types import Tensor
from orthoslice.backend.kernels.cuda import Kernel, Program, bind, most_shared_bytes
from orthoslice.backend.kernels.cuda.lexsort import ordering
from orthoslice.backend.kernels.cuda.rows import longest_on_chip, projecting, sort_rows, sorting

_THREADS = 256
_MATCH_POINTS = Kernel("match_points", 5, "iii")
_PRICE_POINTS = Kernel("price_points", 10, "iiiiiiiiidd")

# Of a thread: how many coordinates it loads at once, and runs of these that it holds of a point, by the most
# coordinates that 32 threads so hold; and how many partners it works on at a time. 0 runs take all dimensions.
_HELD = {
    4: ((128, 1, 8), (256, 2, 4), (512, 4, 2), (1024, 8, 1), (None, 0, 4)),
    1: ((32, 1, 8), (256, 8, 4), (None, 0, 4)),
}
_PROGRAMS = {
    (width, chunks): Program(
        "pairs", (("THREADS", _THREADS), ("WIDTH", width), ("CHUNKS", chunks), ("ROWS", rows))
    )
    for width, held in _HELD.items()
    for _, chunks, rows in held
}

# Scratch for the sums of a block.
_SCRATCH_BYTES = 256

# Blocks that there should be to keep the GPU busy.
_BLOCKS = 1024

_MATCH_THREADS = 1024
_PARTNERS = Program("partners", (("THREADS", _MATCH_THREADS),))

BYTES_A_PAIR = 24
"""Working memory: two projections, as many in order, and their places. Partners take the room of the first."""


class _Shape(NamedTuple):
    """How the points of a cloud are shared out: threads that hold one, groups of these for it, and blocks."""

    program: Program
    shared_bytes: int
    lanes: int
    spread: int
    blocks: int

    @classmethod
    def of(cls, n: int, dim: int, slices: int) -> _Shape:
        width = 1 if dim % 4 else 4
        chunks, rows = next((c, r) for most, c, r in _HELD[width] if most is None or dim <= most)
        program = _PROGRAMS[width, chunks]
        if not chunks:
            # Partners of a point, and how they pull it.
            return cls(program, 8 * _THREADS, 32, 1, n)
        # Not fewer than rows, each of which has a cost.
        lanes = min(32, max(rows, 1 << (-(-dim // width) - 1).bit_length()))
        groups, spread = _THREADS // lanes, 1
        while spread < groups and n * spread < groups * _BLOCKS and rows * spread < slices:
            spread *= 2
        sums = 4 * width * chunks * _THREADS if spread > 1 else 0
        return cls(program, max(_SCRATCH_BYTES, sums), lanes, spread, -(-n * spread // groups))


class ProjectedStep:
    """The loss of clouds of `n` points against each other, as many directions at a time as `memory` holds."""

    def __init__(self, device: int, n: int, dim: int, slices: int, p: float, memory: int) -> None:
        parts = -(-slices // max(1, memory // (BYTES_A_PAIR * n)))
        most = -(-slices // parts)
        shape, self._sizes = _Shape.of(n, dim, most), [most] * (slices // most)
        if slices % most:
            self._sizes.append(slices % most)
        self._n, self._dim, self._blocks, mass = n, dim, shape.blocks, 1 / (n * slices)
        self._order = ordering(device, 2, n, dim)
        self._is_short = n <= longest_on_chip(device)
        # Rows that fit on chip are matched by a block each.
        on_chip = 4 * n <= most_shared_bytes(device)
        matched, match_bytes = (1, 4 * n) if on_chip else (max(2, -(-n // _MATCH_THREADS)), 0)
        n_scores = shape.blocks * len(self._sizes)

        def match(size: int, sides: int) -> Any:
            blocks = size * matched * max(1, sides), _MATCH_THREADS, match_bytes
            return bind(_MATCH_POINTS, _PARTNERS, device, *blocks, size, n, matched)

        def price(size: int, k: int, sides: int) -> Any:
            sizes = size, n, dim, shape.lanes, shape.spread, shape.blocks, k * shape.blocks, n_scores, k == 0
            blocks = shape.blocks * max(1, sides)
            return bind(
                _PRICE_POINTS, shape.program, device, blocks, _THREADS, shape.shared_bytes, *sizes, p, mass
            )

        self._project = [projecting(device, size, n, n, dim) for size in self._sizes]
        self._sort = [sorting(device, 2 * size, n, True) if self._is_short else None for size in self._sizes]
        # By how many clouds have partners.
        self._match = [[match(size, sides) for sides in range(3)] for size in self._sizes]
        self._price = [[price(size, k, sides) for sides in range(3)] for k, size in enumerate(self._sizes)]

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
        x, y, theta = _in_fours(x), _in_fours(y), theta.contiguous()
        n, sides = self._n, wanted[0] + wanted[1]
        total, gradient = x.new_empty(()), x.new_empty((n * sides, self._dim)) if sides else None
        # In words: orders, with room for as many, and scores, all of twice the width; a count of blocks.
        room = x.new_empty(8 * n + 2 * self._blocks * len(self._sizes) + 1)
        order = room.data_ptr()
        scores = order + 32 * n
        done = scores + 8 * self._blocks * len(self._sizes)
        # The value is the cost by the points of one of the clouds, whichever has partners.
        of_x, of_y = wanted if sides else (True, False)
        self._order(x, y, order)
        rows = x.new_empty((2 * self._sizes[0], n))
        partners = x.new_empty((2 * self._sizes[0], n)) if self._is_short else rows
        along = theta.data_ptr()
        for k, size in enumerate(self._sizes):
            self._project[k](x, y, along, order, rows, rows.data_ptr() + 4 * size * n)
            places = self._sorted(k, rows[: 2 * size])
            of_both = partners.data_ptr(), partners.data_ptr() + 4 * size * n
            of_each = [at if side else None for at, side in zip(of_both, (of_x, of_y), strict=True)]
            self._match[k][sides](order, places, *of_each, done)
            is_last = k == len(self._sizes) - 1
            ends = (total, step) if is_last else (None, None)
            self._price[k][sides](x, y, *of_each, more_mass, gradient, scores, done, *ends)
            along += 4 * size * self._dim
        return total, gradient

    def _sorted(self, k: int, rows: Tensor) -> Tensor:
        """The places of the numbers of every row in increasing order."""
        sort = self._sort[k]
        if sort is None:
            return sort_rows(rows, places=True).places
        # A block has read its row when it writes the places of its numbers.
        sort(rows, 0, rows)
        return rows


def _in_fours(points: Tensor) -> Tensor:
    """Contiguous points that begin at a multiple of 16 bytes, as what torch allocates does."""
    points = points.contiguous()
    return points.clone() if points.data_ptr() % 16 else points
