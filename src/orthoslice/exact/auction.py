"""W_p to any accuracy, with a certificate: an auction whose prices fall into place level by level.

A level is an auction with a least raise `eps`: it ends with a coupling that costs at most `eps` more than the
least, and with prices that prove it. Levels go on with smaller `eps` until the bracket is narrow enough.
The first prices come from clouds of fewer points, the means of groups near each other, so that what has to
travel far is settled where that is cheap.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from orthoslice.backend.array_types import FloatArray, HostArray, IntArray
from orthoslice.backend.kernels.numba.auction import (
    DONE,
    FULL,
    Costs,
    Lists,
    Pieces,
    Rows,
    fill_costs,
    fill_room,
    look_up,
    place_mass,
    reach_room,
    row_minima,
)
from orthoslice.backend.kernels.numba.grouping import cut_groups
from orthoslice.backend.kernels.numba.simplex import cheapest_pairs
from orthoslice.clouds.lengths import pair_lengths
from orthoslice.exact.certificate import Problem, dual_value, share_rows, transform
from orthoslice.exact.simplex import Limits, Placed, Settled, settle

_EPS = float(np.finfo(np.float64).eps)

# `eps` falls by this factor from level to level.
_SHRINK = 6.0
# Where a level took fewer bids a row than this, hardly anything changes any more, and `eps` falls faster.
_FEW_BIDS, _LATE_SHRINK = 2.5, 1e4
# Columns that a row keeps where all costs are in memory, and where they have to be worked out anew.
_SHORT_LIST, _LONG_LIST = 32, 96
# Groups of the coarsest clouds, and how many times more the next ones have.
_COARSEST, _FINER = 64, 4
# Coarse clouds are matched until the bracket is this narrow. That costs next to nothing, and with heavy tails
# prices of wider ones cost ten times as much later.
_COARSE_RTOL = 0.002
# The first `eps` as a share of the gap that the first prices leave, and at least as a share of the cost. With
# heavy tails a larger one is more than most points pay at all: a bid then makes a whole list too dear. Masses
# that differ take many more bids at a smaller one.
_FIRST_EPS, _LEAST_FIRST_EPS, _UNEVEN_FIRST_EPS = 0.25, 3e-4, 3e-3
# Where a level takes more bids a row than this, as with weights, those after it take as many. With all costs in
# memory the network simplex method is then sooner done from where it ended.
_MANY_BIDS = 50
# Numbers that a level looks at for bids, in units of all pairs, before it goes on with shortest paths. The last
# is for costs in memory, where it goes on with the network simplex method.
_BIDDING, _BIDDING_AGAIN, _BIDDING_FIRST = 6, 1, 2
# Numbers that a kernel looks at before it returns to see whether it shall stop: some hundredths of a second.
_PATIENCE = 1 << 24
# Pieces beyond one a point, to begin with; masses that split need more.
_SPARE_PIECES = 256
# Tables of all costs take this part of the memory at most, beside all copies of the points.
_TABLE_SHARE, _COPIES = 0.8, 4
# Rows and columns take turns to bid. A turn looks at an eighth of all pairs, up to _PATIENCE of them.
_TURNS = 8


@dataclass(frozen=True, eq=False)
class Solution:
    """A coupling and potentials of x and y, and the bracket of the least cost that they prove.

    `lower` is a lower bound on the least cost of a unit of mass, whatever was rounded; `cost` is what the
    coupling costs, to rounding; `is_done` is False where the time limit or Ctrl-C came first.
    """

    placed: Placed
    f: FloatArray
    g: FloatArray
    lower: float
    cost: float
    is_done: bool


def solve(
    problem: Problem, limits: Limits, memory: int, advance: Callable[[int], None] = lambda levels: None
) -> Solution:
    """The least cost of a coupling, to the accuracy and within the time that `limits` say.

    Examples
    --------
    >>> points, ones = np.array([[0.0], [1.0], [3.0]]), np.ones(3, dtype=np.int64)
    >>> problem = Problem(points, points + 0.5, ones, ones, 1.0)
    >>> solution = solve(problem, Limits(0.0, math.inf), 1 << 20)
    >>> solution.cost, bool(0.499999 < solution.lower <= 0.5)
    (0.5, True)
    """
    if _has_twins(problem.x) or _has_twins(problem.y):
        return _solve_sites(problem, limits, memory, advance)
    if len(problem.x) < len(problem.y):
        # The cloud with more points bids: a point of it then goes to one or two points of the other.
        turned = solve(problem.flipped, limits, memory, advance)
        ix, iy, mass = turned.placed
        return Solution(Placed(iy, ix, mass), turned.g, turned.f, turned.lower, turned.cost, turned.is_done)
    # Shuffled: a list is made faster where cheap columns do not come last.
    at_y = np.random.default_rng(0).permutation(len(problem.y))
    # By columns: kernels want them, and there is one copy.
    y = np.ascontiguousarray(problem.y[at_y].T).T
    auction = _prepared(problem._replace(y=y, b=problem.b[at_y]), limits, memory)
    auction.run(limits, advance)
    ix, iy, mass = auction.placed
    f, g = auction.best_minima, np.empty(len(at_y))
    g[at_y] = -auction.best_price
    return Solution(Placed(ix, at_y[iy], mass), f, g, auction.lower, auction.cost, auction.is_done)


def _costs(problem: Problem, has_table: bool) -> Costs:
    n, m = len(problem.x), len(problem.y)
    x, y_columns = np.ascontiguousarray(problem.x), np.ascontiguousarray(problem.y.T)
    table = np.empty((n, m) if has_table else (0, 0))
    if has_table:
        share_rows(n, lambda first, stop: fill_costs(x, y_columns, problem.p, first, stop, table))
    return Costs(x, y_columns, problem.p, table)


def _has_twins(points: FloatArray) -> bool:
    return bool((points[1:] == points[:-1]).all(axis=1).any())


def _solve_sites(problem: Problem, limits: Limits, memory: int, advance: Callable[[int], None]) -> Solution:
    """As :func:`solve`, where equal points that follow each other are one point with their mass."""
    (first_x, site_x), (first_y, site_y) = _sites(problem.x), _sites(problem.y)
    a, b = np.add.reduceat(problem.a, first_x), np.add.reduceat(problem.b, first_y)
    merged = problem._replace(x=problem.x[first_x], y=problem.y[first_y], a=a, b=b)
    solution = solve(merged, limits, memory, advance)
    ix, iy, mass = solution.placed
    ix, iy, mass = _dealt_out(ix, iy, mass, problem.a)
    iy, ix, mass = _dealt_out(iy, ix, mass, problem.b)
    f, g = solution.f[site_x], solution.g[site_y]
    return Solution(Placed(ix, iy, mass), f, g, solution.lower, solution.cost, solution.is_done)


def _sites(points: FloatArray) -> tuple[IntArray, IntArray]:
    """The first of all equal points that follow each other, and for every point the number of its site."""
    is_first = np.append(True, (points[1:] != points[:-1]).any(axis=1))
    return np.flatnonzero(is_first), np.cumsum(is_first) - 1


def _dealt_out(site: IntArray, other: IntArray, mass: IntArray, masses: IntArray) -> tuple[IntArray, ...]:
    """Pairs of sites and something else, with the points of the sites, whose masses follow each other."""
    order = np.argsort(site, kind="stable")
    pairs, points = np.cumsum(mass[order]), np.cumsum(masses)
    ends = np.union1d(pairs, points)
    return np.searchsorted(points, ends), other[order][np.searchsorted(pairs, ends)], np.diff(ends, prepend=0)


class Auction:
    """Prices of the columns of a problem, and the best coupling and the best prices so far."""

    def __init__(self, problem: Problem, memory: int, price: FloatArray | None) -> None:
        n, m = len(problem.x), len(problem.y)
        copies = 8 * _COPIES * (n + m) * problem.x.shape[1]
        has_table = 8 * n * m <= min(_TABLE_SHARE * memory, memory - copies)
        self.problem = problem
        self.total = float(problem.a.sum())
        self.costs = _costs(problem, has_table)
        self.price = np.zeros(m) if price is None else price
        size = min(m, _SHORT_LIST if has_table else _LONG_LIST)
        self.lists = Lists(np.zeros((n, size), dtype=np.int32), np.empty((n, size)), np.empty(n))
        self._look_up(np.arange(n))
        # A coupling to begin with, and what is certain without any work.
        self.placed, self.cost = Placed(*(np.zeros(0, dtype=np.int64),) * 3), math.inf
        self.keep(_in_order(problem))
        self.reached = self.placed
        self.lower, self.best_minima, self.best_price = -math.inf, np.zeros(n), np.zeros(m)
        self.raise_lower()
        self.eps, self.bids, self.is_done = 0.0, 0, False

    def _look_up(self, rows: IntArray) -> None:
        share_rows(
            len(rows),
            lambda first, stop: look_up(rows[first:stop], self.costs, self.price, self.lists),
        )

    def raise_lower(self) -> None:
        """Take the bound that the present prices prove, where it is the best one."""
        minima = np.empty(len(self.problem.x))
        row_minima(self.price, self.lists, minima)
        # Where the bound of the other columns is below the list, the list has to be made anew to know better.
        stale = np.flatnonzero(minima == self.lists.bound)
        if len(stale):
            self._look_up(stale)
            row_minima(self.price, self.lists, minima)
        value = dual_value(self.problem, minima, self.price)
        if value > self.lower:
            self.lower, self.best_minima, self.best_price = value, minima, self.price.copy()

    def keep(self, placed: Placed) -> None:
        """Take this coupling, where it is the cheapest one."""
        lengths = pair_lengths(self.problem.x, self.problem.y, placed.ix, placed.iy)
        cost = math.fsum(lengths**self.problem.p * (placed.mass / self.total))
        if cost < self.cost:
            self.placed, self.cost = placed, cost

    def _is_wide(self, limits: Limits) -> bool:
        return self.cost > 0 and self.cost - self.lower > limits.width * self.cost

    def run(self, limits: Limits, advance: Callable[[int], None]) -> None:
        """Levels, until the bracket is narrow enough, no digits are left or time is up."""
        self.is_done, n = False, len(self.problem.x)
        while self._is_wide(limits):
            if limits.passed:
                return
            # Less is lost in the rounding of prices.
            least = 8 * _EPS * float(np.abs(self.price - np.median(self.price)).max() + self.cost)
            self.eps = max(self.eps, least)
            was_whole = self.level(limits)
            is_slow = not was_whole or self.bids > _MANY_BIDS * n
            is_over = not was_whole and bool(limits.passed)
            if was_whole or is_over:
                self.raise_lower()
                advance(1)
            if is_over:
                return
            if was_whole and self.eps == least:
                break
            if is_slow and len(self.costs.table) and self._is_wide(limits):
                self.is_done = self.settle(limits)
                return
            # No smaller than will do.
            needed = limits.width * self.cost / 2
            shrink = _LATE_SHRINK if self.bids < _FEW_BIDS * n else _SHRINK
            self.eps = max(self.eps / shrink, min(needed, self.eps / 2))
        self.is_done = True

    def level(self, limits: Limits) -> bool:
        """One auction of all mass; False if it was stopped, or if bids go on and on and all costs are there."""
        n, m = len(self.problem.x), len(self.problem.y)
        pieces = _free_columns(self.problem.b, self.price, n + m + _SPARE_PIECES)
        rows = Rows(self.problem.a.copy(), np.arange(n), np.array([0, n]))
        counts = np.zeros(3, dtype=np.int64)
        room = (_BIDDING_FIRST if len(self.costs.table) else _BIDDING) * n * m
        turn = min(_PATIENCE, 1 + n * m // _TURNS)
        while True:
            if room > 0:
                work = min(room, turn)
                state = place_mass(self.costs, self.price, self.lists, self.eps, pieces, rows, work, counts)
                room -= work
            elif len(self.costs.table):
                self.reached = self._filled(pieces, rows.left)
                return False
            else:
                state = reach_room(self.costs, self.price, self.lists, pieces, rows, counts)
                room = _BIDDING_AGAIN * n * m
            if state == DONE:
                break
            if state == FULL:
                pieces = _with_more(pieces)
            elif limits.passed:
                return False
            else:
                fill_room(self.costs, self.price, self.lists, self.eps, pieces, rows, turn)
        self.bids = int(counts[0])
        self.reached = _held(pieces)
        self.keep(self.reached)
        return True

    def _filled(self, pieces: Pieces, left: IntArray) -> Placed:
        """What rows hold, and what is left at its cheapest in the room that there is."""
        held, free = _held(pieces), (pieces.owner == -1) & (pieces.mass > 0)
        room = np.zeros_like(self.problem.b)
        np.add.at(room, pieces.column[free], pieces.mass[free])
        rest = cheapest_pairs(self.costs.table, left, room, self.price, np.flatnonzero(left))
        return Placed(*(np.append(*parts) for parts in zip(held, rest, strict=True)))

    def settle(self, limits: Limits) -> bool:
        """The cheapest coupling by the network simplex method; False if it was stopped."""
        start = Settled(self.reached, self.price, False)
        placed, price, is_done = settle(self.costs.table, self.problem.a, self.problem.b, limits, start)
        self.keep(placed)
        self.price[:] = price
        self._look_up(np.arange(len(self.problem.x)))
        self.raise_lower()
        return is_done


def _free_columns(masses: IntArray, price: FloatArray, capacity: int) -> Pieces:
    """Columns in which no row has room yet, each a single piece."""
    m = len(masses)
    unused = np.zeros(capacity - m, dtype=np.int64)
    free = np.append(np.arange(capacity - 1, m - 1, -1), [*[0] * m, capacity - m])
    return Pieces(
        np.arange(m),
        np.full(capacity, -1),
        np.append(np.arange(m), unused),
        np.full(capacity, -1),
        np.append(masses, unused),
        np.append(price, unused.astype(np.float64)),
        free,
    )


def _held(pieces: Pieces) -> Placed:
    """What rows hold."""
    held = np.flatnonzero((pieces.owner >= 0) & (pieces.mass > 0))
    return Placed(pieces.owner[held], pieces.column[held], pieces.mass[held])


def _with_more(pieces: Pieces) -> Pieces:
    """Twice as many pieces, the new ones not in use."""
    size, left = len(pieces.owner), int(pieces.free[-1])
    free = np.zeros(2 * size + 1, dtype=np.int64)
    free[:left], free[left : left + size] = pieces.free[:left], np.arange(size, 2 * size)
    free[-1] = left + size
    longer: list[HostArray] = [np.append(part, np.zeros_like(part)) for part in pieces[1:-1]]
    following, column, owner, mass, paid = longer
    return Pieces(pieces.head, following, column, owner, mass, paid, free)


def _in_order(problem: Problem) -> Placed:
    """The coupling by the order of the coordinate that varies most."""
    k = int(np.argmax(np.ptp(problem.x, axis=0)))
    at_x, at_y = np.argsort(problem.x[:, k]), np.argsort(problem.y[:, k])
    ends_x, ends_y = np.cumsum(problem.a[at_x]), np.cumsum(problem.b[at_y])
    ends = np.union1d(ends_x, ends_y)
    ix, iy = np.searchsorted(ends_x, ends), np.searchsorted(ends_y, ends)
    return Placed(at_x[ix], at_y[iy], np.diff(ends, prepend=0))


def _prepared(problem: Problem, limits: Limits, memory: int) -> Auction:
    """An auction of the problem that begins with the prices of coarse clouds."""
    n = len(problem.y)
    sizes: list[int] = []
    while _COARSEST * _FINER ** len(sizes) * 2 <= n:
        sizes.append(_COARSEST * _FINER ** len(sizes))
    coarse: Auction | None = None
    if sizes:
        cut_x, cut_y = (
            cut_groups(np.ascontiguousarray(points.T), masses.astype(np.float64), problem.p, sizes[-1])
            for points, masses in ((problem.x, problem.a), (problem.y, problem.b))
        )
    for size in sizes:
        x, a = _grouped(problem.x, problem.a, *cut_x, size)
        y, b = _grouped(problem.y, problem.b, *cut_y, size)
        coarse = _begun(Problem(x, y, a, b, problem.p), coarse, memory)
        coarse.run(limits._replace(width=_COARSE_RTOL), lambda levels: None)
    return _begun(problem, coarse, memory)


def _begun(problem: Problem, coarse: Auction | None, memory: int) -> Auction:
    """An auction with prices at which columns are as dear as the coarse rows would pay, and its first `eps`."""
    if coarse is None:
        auction = Auction(problem, memory, None)
        auction.eps = _FIRST_EPS * (auction.cost - auction.lower)
        return auction
    turned = Problem(problem.y, coarse.problem.x, problem.b, coarse.problem.a, problem.p)
    auction = Auction(problem, memory, -transform(turned, -coarse.best_minima))
    least = _LEAST_FIRST_EPS if _is_even(problem) else _UNEVEN_FIRST_EPS
    auction.eps = max(_FIRST_EPS * (coarse.cost - auction.lower), least * coarse.cost)
    return auction


def _is_even(problem: Problem) -> bool:
    """Whether all masses are equal, those of x and those of y."""
    return bool(np.ptp(np.append(problem.a, problem.b)) == 0)


def _grouped(
    points: FloatArray, masses: IntArray, group: IntArray, parent: IntArray, size: int
) -> tuple[FloatArray, IntArray]:
    """Means and masses of the first `size` groups: those of later ones belong to what they were cut from."""
    while group.max() >= size:
        group = np.where(group < size, group, parent[group])
    order = np.argsort(group, kind="stable")
    group, starts = group[order], np.searchsorted(group[order], np.arange(size))
    mass = np.add.reduceat(masses[order], starts)
    members = points[order]
    members *= (masses[order] / mass[group])[:, None]
    return np.add.reduceat(members, starts), mass
