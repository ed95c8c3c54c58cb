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
_MATCH_SHORT_ROWS = Kernel("match_short_rows", 5, "iiii")
_MATCH_LONG_ROWS = Kernel("match_long_rows", 5, "iii")
_PRICE_POINTS = Kernel("price_points", 12, "iiiiiiidd")

# Of a thread: how many coordinates it loads at once, and runs of these that it holds of a point, by the most
# coordinates that 32 threads so hold; and how many partners it works on at a time. 0 runs take all dimensions.
_HELD = {
    4: ((128, 1, 8), (256, 2, 4), (512, 4, 2), (1024, 8, 2), (None, 0, 4)),
    1: ((32, 1, 8), (64, 2, 8), (128, 4, 8), (256, 8, 4), (None, 0, 4)),
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

# Blocks that keep the GPU busy: of few threads, and of many, which take one row after the other.
_BLOCKS, _MATCH_BLOCKS = 1024, 264

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
        # Sums of groups, and where there are many runs the points themselves.
        sums = 4 * width * chunks * _THREADS if spread > 1 or chunks > 4 else 0
        return cls(program, max(_SCRATCH_BYTES, sums), lanes, spread, -(-n * spread // groups))


class _Part:
    """What is launched for `size` directions."""

    def __init__(
        self, device: int, n: int, dim: int, size: int, shape: _Shape, n_scores: int, *numbers: float
    ) -> None:
        self._n, self._count = n, 2 * size * n
        # What fits on chip is sorted there in one go.
        self._sort = sorting(device, 2 * size, n, True) if n <= longest_on_chip(device) else None
        # In 16 bits: both orders, and partners.
        match_bytes = 6 * n

        def match(sides: int) -> Any:
            rows = size * sides
            if n > 1 << 16 or match_bytes > most_shared_bytes(device):
                parts = -(-n // _MATCH_THREADS)
                grid = rows * parts, _MATCH_THREADS, 0
                return bind(_MATCH_LONG_ROWS, _PARTNERS, device, *grid, size, n, parts)
            blocks = min(rows, _MATCH_BLOCKS)
            grid = blocks, _MATCH_THREADS, match_bytes
            return bind(_MATCH_SHORT_ROWS, _PARTNERS, device, *grid, size, n, rows, blocks)

        def price(sides: int) -> Any:
            blocks = shape.blocks * sides, _THREADS, shape.shared_bytes
            sizes = size, n, dim, shape.lanes, shape.spread, shape.blocks, n_scores
            return bind(_PRICE_POINTS, shape.program, device, *blocks, *sizes, *numbers)

        self.project = projecting(device, size, n, n, dim)
        # By how many clouds have partners.
        self.match = {sides: match(sides) for sides in (1, 2)}
        self.price = {sides: price(sides) for sides in (1, 2)}

    def sort(self, room: Tensor, rows: int) -> Tensor:
        """The places of the numbers of the rows at an address in `room`, in increasing order."""
        if self._sort is None:
            start = (rows - room.data_ptr()) // 4
            numbers = room[start : start + self._count].view(-1, self._n)
            return sort_rows(numbers, places=True).places
        # A block has read its row when it writes the places of its numbers.
        self._sort(rows, 0, rows)
        return rows


class ProjectedStep:
    """The loss of clouds of `n` points against each other, as many directions at a time as `memory` holds."""

    def __init__(self, device: int, n: int, dim: int, slices: int, p: float, memory: int) -> None:
        n_parts = -(-slices // max(1, memory // (BYTES_A_PAIR * n)))
        most = -(-slices // n_parts)
        self._sizes = [min(most, slices - start) for start in range(0, slices, most)]
        shape = _Shape.of(n, dim, most)
        self._n, self._dim, self._blocks = n, dim, shape.blocks
        self._order, n_scores = ordering(device, 2, n, dim), shape.blocks * len(self._sizes)
        numbers = shape, n_scores, p, 1 / (n * slices)
        self._parts = {size: _Part(device, n, dim, size, *numbers) for size in set(self._sizes)}
        # Words to work in: of the order, orders and scores of twice the width, a count, and projections. Places
        # are written over those of short rows, and partners over those of long ones.
        self._words = self._order.words, 4 * n, 4 * -(-n_scores // 2), 4, 2 * most * n
        self._are_apart = n <= longest_on_chip(device)

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
        n, sizes, wants = self._n, self._sizes, wanted[0] or wanted[1]
        # The value is the cost by the points of one of the clouds, whichever has partners.
        of_x, of_y = wanted if wants else (True, False)
        total, gradient = x.new_empty(()), x.new_empty((n * (of_x + of_y), self._dim)) if wants else None
        # One allocation for all: allocating takes longer than splitting.
        before_partners = sum(self._words) if self._are_apart else sum(self._words[:-1])
        room = x.new_empty(sum(self._words) + self._are_apart * (of_x + of_y) * sizes[0] * n)
        order, scores, done, rows = (room.data_ptr() + 4 * sum(self._words[:k]) for k in range(1, 5))
        partners = room.data_ptr() + 4 * before_partners
        self._order(x, y, order, room)
        start, own_scores = 0, scores
        for size in sizes:
            part = self._parts[size]
            both = partners if of_x else None, partners + of_x * 4 * size * n if of_y else None
            along = theta.data_ptr() + 4 * start * self._dim
            part.project(x, y, along, order, rows, rows + 4 * size * n)
            part.match[of_x + of_y](order, part.sort(room, rows), *both, done)
            ends = (total, step) if start + size == sum(sizes) else (None, None)
            price = part.price[of_x + of_y]
            price(x, y, *both, more_mass, gradient, own_scores, scores, done, *ends, int(start == 0))
            start += size
            own_scores += 8 * self._blocks
        return total, gradient


def _in_fours(points: Tensor) -> Tensor:
    """Contiguous points that begin at a multiple of 16 bytes, as what torch allocates does."""
    points = points.contiguous()
    return points.clone() if points.data_ptr() % 16 else points
