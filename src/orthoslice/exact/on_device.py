"""A bracket of W_p on a GPU: potentials by soft minima over all pairs, then an auction of all rows at once.

Clouds of one size without weights. Potentials come from soft minima with a temperature that falls from level to
level: f of g, and g of f (Sinkhorn's iteration). They settle what has to travel far, so that an auction from
their prices takes some ten bids a point. A row bids by a short list of its cheapest columns and by a bound on
all others, as in :mod:`orthoslice.exact.auction`; lists that have become dearer than their bound are made anew
together, in one pass over all pairs. Where few rows are left that outbid each other for long, columns without
a buyer bid for rows: both sides take turns.

Lists are found in float32; what proves anything is float64.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from orthoslice.backend.array_types import FloatArray, IntArray, Tensor
from orthoslice.backend.arrays import Operation
from orthoslice.backend.kernels.cuda import cuda_refusal, free_bytes, sweep
from orthoslice.backend.kernels.cuda.sweep import FEW_BIDDERS, PADDING, TILE, Hall, Lists, Tiles, new_hall
from orthoslice.clouds.lengths import pair_lengths
from orthoslice.exact.certificate import Problem, dual_value
from orthoslice.exact.simplex import Limits

_EPS = float(np.finfo(np.float64).eps)

# The first temperature as a share of the mean cost of random pairs, and by how much it falls.
_HOTTEST, _COOLING = 0.2, 0.5
# Potentials go this much farther than to their soft minima: they settle in half as many turns (measured). At
# each temperature they take turns until f changes by less than a share of what is proved, or so many times.
_STRIDE, _SETTLED, _MOST_TURNS = 1.7, 2e-3, 8
# The last temperature as a share of what potentials prove; and at least, where costs up to 1 are float32.
_COLDEST, _LEAST_HEAT, _MOST_LEVELS = 0.006, 2.0**-21, 20
# Random pairs whose mean cost sets the first temperature.
_SAMPLE = 4096
# Of more points than this so many are warmed first, until the temperature is this share of what is proved.
_MOST_WARMED, _FEW_WARMED, _COOL = 1 << 18, 1 << 17, 0.05
# Columns of a list.
_LIST = 16
# The first least raise of an auction as a share of the cost, by how much it falls, and the last one as a share
# of the gap that is asked for: about half of a raise ends up in the gap.
_FIRST_EPS, _SHRINK, _LAST_EPS = 0.01, 5.0, 0.8
# A level that leaves more of the gap than this gains nothing, and after so many of them it stays as it is.
_LEAST_GAIN, _MOST_STAYS = 0.95, 3
# Rounds before the host looks how many rows are left: of many rows, and of few. Rounds before lists are made
# anew, though rows still bid.
_ROUNDS, _LAST_ROUNDS, _LONGEST_PLAY = 8, 512, 4096
# How often lists are made anew before the other side bids, and before a level is given up: so many times, and
# once more for so many points.
_TURN, _PATIENCE, _POINTS_A_TURN = 10, 300, 1000
# Rows that are left over are matched with the columns left over by SciPy, up to this many.
_MOST_LEFT = 2048
# Up to _FEW_DIMS dimensions points of a tile are near each other, and what is far is left out, for clouds of
# more tiles than _FEW_TILES. Soft minima reach that many temperatures up: exp(-25) of 10^6 points is 10^-5.
_FEW_DIMS, _FEW_TILES, _HEAT_REACH = 6, 64, 25.0
# The share by which costs in float32 may be off.
_BOX_ROUNDING = 1e-5
# Without `memory`, minima take this part of what is free on the device.
_FREE_SHARE = 4
# Pairs at a time in plain code.
_PIECE = 1 << 22


class Points(NamedTuple):
    """Points by rows `(n, dim)`, and by columns in whole tiles: as they are, and rounded near their middle."""

    rows: Tensor
    wide: Tensor
    narrow: Tensor

    @property
    def n(self) -> int:
        return int(self.rows.shape[0])

    @property
    def box(self) -> tuple[Tensor, Tensor]:
        """The least and the largest coordinates in every tile, `(dim, tiles)`."""
        tiles = self.wide.reshape(len(self.wide), -1, TILE)
        return tiles.amin(dim=2), tiles.amax(dim=2)

    def chosen(self, at: Tensor) -> Points:
        """Some of the points, in whole tiles: the last one fills the last."""
        whole = at[-1].repeat(_whole(len(at)))
        whole[: len(at)] = at
        return Points(self.rows[at], self.wide[:, whole], self.narrow[:, whole])


def _whole(n: int) -> int:
    return -(-n // TILE) * TILE


def held_bytes(problem: Problem) -> int:
    """What an auction holds of a problem on the device, beside minima."""
    n, dim = problem.x.shape
    return int(_whole(n) * (2 * 20 * dim + 12 * _LIST + 128))


def room_refusal(problem: Problem, place: Any) -> str | None:
    """Why an auction of a problem cannot be held on a GPU, or None if it can."""
    device = sys.modules["torch"].empty(0, device=place).get_device()
    return sweep.lists_refusal(device, _LIST, problem.x.shape[1])


def _both(problem: Problem, place: Any) -> tuple[Points, Points]:
    middle = (problem.x.mean(axis=0) + problem.y.mean(axis=0)) / 2
    return _points(problem.x, middle, place), _points(problem.y, middle, place)


def _points(points: FloatArray, middle: FloatArray, place: Any) -> Points:
    torch = sys.modules["torch"]
    rows = torch.as_tensor(np.ascontiguousarray(points), device=place)
    wide = rows[-1:].T.repeat(1, _whole(len(rows)))
    wide[:, : len(rows)] = rows.T
    narrow = (wide - torch.as_tensor(middle, device=place)[:, None]).float()
    return Points(rows, wide, narrow)


def _padded(price: Tensor, like: Tensor) -> Tensor:
    """Prices for all columns of whole tiles, in the type of their points."""
    whole = like.new_full((like.shape[1],), PADDING)
    whole[: len(price)] = price
    return whole


def _refusal(x: Points, *_: object) -> str | None:
    return cuda_refusal(x.rows, dtype="float64")


def by_neighbours(rows: Tensor) -> Tensor:
    """An order of points in which those of a tile are near each other: halves of halves along coordinates."""
    torch = sys.modules["torch"]
    n, dim = rows.shape
    order, place, size = torch.arange(n, device=rows.device), torch.arange(n, device=rows.device), TILE
    while size < n:
        size *= 2
    widest = (rows.amax(dim=0) - rows.amin(dim=0)).argsort(descending=True).tolist()
    for turn in range((size // TILE).bit_length() - 1):
        by_value = rows[order, widest[turn % dim]].argsort(stable=True)
        order = order[by_value[(place // size)[by_value].argsort(stable=True)]]
        size //= 2
    return order


def nearby(
    x: Points, y: Points, price: Tensor, p: float, *, count: int = 1, slack: float = 0.0, is_wide: bool = False
) -> Tiles | None:
    """The tiles of y that the tiles of x need to be held against, or None if those are most of them.

    In a tile that is left out every |x - y|^p + price is above what the point of x finds in other tiles, in
    each of `count` of them, by more than `slack`.
    """
    torch, dim = sys.modules["torch"], len(x.wide)
    n_tiles, m_tiles = x.wide.shape[1] // TILE, y.wide.shape[1] // TILE
    if dim > _FEW_DIMS or min(n_tiles, m_tiles) < _FEW_TILES:
        return None
    prices = _padded(price, y.wide)
    least = prices.reshape(-1, TILE).amin(dim=1)
    (low_x, high_x), (low_y, high_y) = x.box, y.box
    # Tiles whose middles are nearest show how little the points of x have to pay.
    steps = torch.arange(n_tiles, device=least.device).split(max(1, _PIECE // m_tiles))
    guesses = []
    for at in steps:
        gaps = ((low_x + high_x)[:, at, None] - (low_y + high_y)[:, None]) / 2
        guesses.append((gaps.square().sum(dim=0) ** (p / 2) + least).topk(count, dim=1, largest=False).indices)
    starts = torch.arange(n_tiles + 1, device=least.device) * count
    guess = Tiles(torch.cat(guesses).int().reshape(-1), starts)
    points = (x.wide, y.wide, prices) if is_wide else (x.narrow, y.narrow, prices.float())
    reach = sweep.minima_of(*points, p, guess, count).amax(dim=1).reshape(n_tiles, TILE).amax(dim=1) + slack
    found, counts = [], []
    for at in steps:
        gaps = torch.maximum(low_x[:, at, None] - high_y[:, None], low_y[:, None] - high_x[:, at, None])
        # No point of one box is nearer to one of the other, to all that is rounded.
        cost = gaps.clamp_(min=0).square().sum(dim=0) ** (p / 2) * (1 - _BOX_ROUNDING)
        is_near = cost + least <= reach[at, None]
        found.append(is_near.nonzero()[:, 1].int())
        counts.append(is_near.sum(dim=1))
    tiles, total = torch.cat(found), torch.cat(counts).cumsum(dim=0)
    if 2 * len(tiles) > n_tiles * m_tiles:
        return None
    starts[1:] = total
    return Tiles(tiles, starts)


least_totals: Operation[Tensor] = Operation("least_totals")
"""least_totals(x, y, price (m,), p) -> (n,): the least |x - y|^p + price of every point of x, in float64."""

soft_totals: Operation[Tensor] = Operation("soft_totals")
"""soft_totals(x, y, price (m,), p, eps) -> (n,): -eps log(mean(exp(-(|x - y|^p + price) / eps)))."""

nearest: Operation[None] = Operation("nearest")
"""nearest(x, y, price (m,), p, rows, lists, memory): make the lists of these rows anew."""

play: Operation[None] = Operation("play")
"""play(points, lists, hall, rounds, count): an even number of rounds of the `count` rows in the first queue."""


@least_totals.implementation("cuda", _refusal)
def _least_totals_cuda(x: Points, y: Points, price: Tensor, p: float) -> Tensor:
    near = nearby(x, y, price, p, is_wide=True)
    return sweep.least_totals(x.wide, y.wide, _padded(price, y.wide), p, near)[: x.n]


@soft_totals.implementation("cuda", _refusal)
def _soft_totals_cuda(x: Points, y: Points, price: Tensor, p: float, eps: float) -> Tensor:
    near = nearby(x, y, price, p, slack=_HEAT_REACH * eps)
    soft = sweep.soft_totals(x.narrow, y.narrow, _padded(price, y.narrow), p, eps, near)[: x.n]
    return eps * (soft.double() + math.log(y.n))


@nearest.implementation("cuda", _refusal)
def _nearest_cuda(
    x: Points, y: Points, price: Tensor, p: float, rows: Tensor, lists: Lists, memory: int
) -> None:
    columns = x.narrow, y.narrow, _padded(price, y.narrow)
    # Minima, and the same again while the least ones are looked for.
    step = max(1, memory // (12 * columns[1].shape[1])) * TILE
    size = lists.columns.shape[1]
    for part in rows.split(step):
        chosen = x.chosen(part)
        near = nearby(chosen, y, price, p, count=size)
        minima = sweep.tile_minima(chosen.narrow, *columns[1:], p, near)[: len(part)]
        limit, groups = minima.topk(size, dim=1, largest=False, sorted=False)
        sweep.make_lists(columns, (x.rows, y.rows), part, groups, limit.amax(dim=1), p, lists)


@play.implementation("cuda", _refusal)
def _play_cuda(_: Points, lists: Lists, hall: Hall, rounds: int, count: int) -> None:
    sweep.play(lists, hall, rounds, count)


def _costs(x: Tensor, y: Tensor, p: float) -> Tensor:
    """|x - y|^p of all pairs of points."""
    total = x.new_zeros((len(x), len(y)))
    for k in range(x.shape[1]):
        total += (x[:, k, None] - y[:, k]).square()
    return total if p == 2 else total.sqrt() if p == 1 else total ** (p / 2)


def _totals(x: Points, y: Points, price: Tensor, p: float) -> Any:
    """|x - y|^p + price of all pairs, some rows at a time."""
    for part in x.rows.split(max(1, _PIECE // y.n)):
        yield _costs(part, y.rows, p) + price


@least_totals.implementation("reference", lambda *_: None)
def _least_totals(x: Points, y: Points, price: Tensor, p: float) -> Tensor:
    return sys.modules["torch"].cat([part.amin(dim=1) for part in _totals(x, y, price, p)])


@soft_totals.implementation("reference", lambda *_: None)
def _soft_totals(x: Points, y: Points, price: Tensor, p: float, eps: float) -> Tensor:
    soft = [(-part / eps).logsumexp(dim=1) for part in _totals(x, y, price, p)]
    return -eps * (sys.modules["torch"].cat(soft) - math.log(y.n))


@nearest.implementation("reference", lambda *_: None)
def _nearest(x: Points, y: Points, price: Tensor, p: float, rows: Tensor, lists: Lists, memory: int) -> None:
    first = 0
    for part in _totals(x._replace(rows=x.rows[rows]), y, price, p):
        at = rows[first : first + len(part)]
        first += len(part)
        values, columns = part.topk(lists.columns.shape[1], dim=1, largest=False)
        lists.columns[at], lists.near[at] = columns.int(), values - price[columns]
        lists.bound[at] = values.amax(dim=1)


@play.implementation("reference", lambda *_: None)
def _play(_: Points, lists: Lists, hall: Hall, rounds: int, count: int) -> None:
    torch = sys.modules["torch"]
    columns, near, bound = lists
    queue = hall.queue[0, :count].long()
    for _round in range(rounds):
        if len(queue) == 0:
            break
        values = near[queue] + hall.price[columns[queue].long()]
        (best, second), at = values.topk(2, dim=1, largest=False)[0].T, values.argmin(dim=1)
        is_stale = best > bound[queue]
        n_stale = int(hall.counts[2])
        stale = queue[is_stale]
        hall.stale[n_stale : n_stale + len(stale)] = stale.int()
        hall.counts[2] += len(stale)
        queue, at, best, second = (a[~is_stale] for a in (queue, at, best, second))
        wanted = columns[queue, at].long()
        bid = hall.price[wanted] + (torch.minimum(second, bound[queue]) - best) + hall.eps
        highest = torch.full_like(hall.price, -math.inf).scatter_reduce(0, wanted, bid, "amax")
        rows = torch.where(bid == highest[wanted], queue, len(hall.column))
        keenest = torch.full_like(hall.owner, len(hall.column), dtype=torch.int64)
        is_won = keenest.scatter_reduce(0, wanted, rows, "amin")[wanted] == queue
        won, winners = wanted[is_won], queue[is_won]
        left = hall.owner[won].long()
        left = left[left >= 0]
        hall.column[left] = -1
        hall.owner[won], hall.column[winners] = winners.int(), won.int()
        hall.price[won] = bid[is_won]
        queue = torch.cat([queue[~is_won], left])
    hall.queue[0, : len(queue)] = queue.int()
    hall.counts[0] = len(queue)


def transform_on(place: Any, problem: Problem, price: FloatArray) -> FloatArray:
    """As :func:`orthoslice.exact.certificate.transform`, on a device of torch."""
    x, y = _both(problem, place)
    least: FloatArray = least_totals(x, y, y.rows.new_tensor(price), problem.p).cpu().numpy()
    return least


class Bracket(NamedTuple):
    """Partners in y of all points of x, the potential of y, and the bracket of the mean cost they prove."""

    partner: IntArray
    g: FloatArray
    lower: float
    cost: float
    is_done: bool


class Auction:
    """Prices of the columns of one side, who has which, and the best coupling and the best prices so far.

    Side 0 is that of the points of x, which bid for those of y; side 1 is the other way round.
    """

    def __init__(self, problem: Problem, memory: int | None, place: Any) -> None:
        torch = sys.modules["torch"]
        n, dim = problem.x.shape
        self.orders = np.arange(n), np.arange(n)
        if dim <= _FEW_DIMS:
            rows = (torch.as_tensor(np.ascontiguousarray(c), device=place) for c in problem[:2])
            self.orders = tuple(by_neighbours(c).cpu().numpy() for c in rows)
            problem = problem._replace(x=problem.x[self.orders[0]], y=problem.y[self.orders[1]])
        self.problem = problem
        self.clouds = _both(problem, place)
        rows, n = self.clouds[0].rows, self.clouds[0].n
        if memory is None:
            self.memory = free_bytes(rows) // _FREE_SHARE if rows.is_cuda else 1 << 28
        else:
            self.memory = max(1, memory - held_bytes(problem))
        self.side, self.price = 0, rows.new_zeros(n)
        self.mates = [torch.full((n,), -1, dtype=torch.int32, device=place) for _ in range(2)]
        size = min(_LIST, _whole(n) // TILE)
        self.lists = Lists(
            torch.zeros((n, size), dtype=torch.int32, device=place),
            rows.new_zeros((n, size)),
            rows.new_zeros(n),
        )
        self._forget()
        self.partner, self.cost = np.arange(n), math.inf
        self.lower, self.g = -math.inf, np.zeros(n)
        k = int(np.argmax(np.ptp(problem.x, axis=0)))
        order = np.empty(n, dtype=np.int64)
        order[np.argsort(problem.x[:, k])] = np.argsort(problem.y[:, k])
        self.keep(order)
        if self.cost == 0:
            self.lower = 0.0

    @property
    def bidders(self) -> Points:
        return self.clouds[self.side]

    @property
    def goods(self) -> Points:
        return self.clouds[1 - self.side]

    def _forget(self) -> None:
        """Have every row make its list anew before it bids."""
        self.lists.near.fill_(math.inf)
        self.lists.bound.fill_(-math.inf)

    def keep(self, partner: IntArray) -> None:
        """Take this matching, where it is the cheapest one."""
        problem = self.problem
        lengths = pair_lengths(problem.x, problem.y, np.arange(len(partner)), partner)
        cost = math.fsum(lengths**problem.p) / len(partner)
        if cost < self.cost:
            self.partner, self.cost = partner, cost

    def raise_lower(self) -> None:
        """Take the bound that the present prices prove, where it is the best one."""
        least = least_totals(self.bidders, self.goods, self.price, self.problem.p)
        minima, price = least.cpu().numpy(), self.price.cpu().numpy()
        problem = self.problem.flipped if self.side else self.problem
        value = dual_value(problem, minima, price)
        if value > self.lower:
            self.lower, self.g = value, minima if self.side else -price

    def anneal(self, limits: Limits, advance: Callable[[int], None]) -> None:
        """First prices, by soft minima with falling temperature; many points begin with some of them."""
        (x, y), p, n = self.clouds, self.problem.p, self.clouds[0].n
        draws = np.random.default_rng(0)
        at, to = (draws.permutation(n)[:_SAMPLE] for _ in range(2))
        costs = pair_lengths(self.problem.x, self.problem.y, at, to) ** p
        eps, proved = max(_HOTTEST * float(costs.mean()), _LEAST_HEAT), 0.0
        if n > _MOST_WARMED:
            # Sorted, neighbours stay neighbours.
            some = [np.sort(draws.permutation(n)[:_FEW_WARMED]) for _ in range(2)]
            at, to = (sys.modules["torch"].as_tensor(c, device=x.rows.device) for c in some)
            x, y = x.chosen(at), y.chosen(to)
        f = g = self.price[: x.n]
        for _ in range(_MOST_LEVELS):
            if x.n < n and eps <= _COOL * proved:
                g = soft_totals(self.clouds[1], x, -f, p, eps)
                x, y = self.clouds
                f = soft_totals(x, y, -g, p, eps)
            for turn in range(_MOST_TURNS):
                if limits.passed:
                    break
                step = soft_totals(x, y, -g, p, eps) - f
                f = f + (_STRIDE if turn else 1.0) * step
                g = g + (_STRIDE if turn else 1.0) * (soft_totals(y, x, -f, p, eps) - g)
                proved = float(f.mean() + g.mean())
                if turn and float(step.abs().mean()) <= _SETTLED * proved:
                    break
            advance(1)
            if limits.passed or eps <= max(_COLDEST * proved, _LEAST_HEAT):
                break
            eps = max(eps * _COOLING, _LEAST_HEAT)
        g = least_totals(self.clouds[1], x, -f, p)
        self.price = g.mean() - g

    def run(self, limits: Limits, advance: Callable[[int], None]) -> bool:
        """Levels, until the bracket is narrow, stays as it is, or time is up; whether it is narrow."""
        needed = _LAST_EPS * limits.width * self.lower
        eps, gap, stays = max(_FIRST_EPS * self.lower, needed), math.inf, 0
        while not self.is_narrow(limits):
            if limits.passed:
                return False
            price = self.price - self.price.median()
            least = 8 * _EPS * (float(price.abs().max()) + self.cost)
            eps = max(eps, least)
            self.level(eps, limits)
            self.raise_lower()
            self.complete()
            advance(1)
            stays = 0 if self.cost - self.lower < _LEAST_GAIN * gap else stays + 1
            gap = min(gap, self.cost - self.lower)
            if eps == least or stays == _MOST_STAYS:
                return self.is_narrow(limits)
            needed = _LAST_EPS * limits.width * self.cost
            eps = max(eps / _SHRINK, min(needed, eps / 2))
        return True

    def is_narrow(self, limits: Limits) -> bool:
        return self.cost - self.lower <= limits.width * self.cost

    def level(self, eps: float, limits: Limits) -> None:
        """One auction, until every row has a column, patience is lost or time is up."""
        self._release(eps)
        rows, hall = self._free(self.side), self._hall(eps)
        turn, begun = 0, len(rows)
        for _ in range(_PATIENCE + self.bidders.n // _POINTS_A_TURN):
            if len(rows) == 0 or limits.passed:
                return
            rows = self._play(rows, hall, limits)
            turn += 1
            if turn >= _TURN and len(free := self._free(self.side)) < begun:
                turn, begun = 0, len(free)
                self._turn_round()
                rows, hall = self._free(self.side), self._hall(eps)

    def _hall(self, eps: float) -> Hall:
        return new_hall(self.price, self.mates[1 - self.side], self.mates[self.side], eps)

    def _free(self, side: int) -> Tensor:
        return (self.mates[side] < 0).nonzero()[:, 0]

    def _release(self, eps: float) -> None:
        """Part the pairs that cost their row more than `eps` above its cheapest column."""
        self._look_up((self.lists.bound == -math.inf).nonzero()[:, 0])
        columns, near, bound = self.lists
        best = (near + self.price[columns.long()]).amin(dim=1).minimum(bound)
        rows = (self.mates[self.side] >= 0).nonzero()[:, 0]
        rows = rows[self._paid(rows) > best[rows] + eps]
        self.mates[1 - self.side][self.mates[self.side][rows].long()] = -1
        self.mates[self.side][rows] = -1

    def _paid(self, rows: Tensor) -> Tensor:
        """What the columns of some rows cost them, with their prices."""
        own = self.mates[self.side][rows].long()
        squares = (self.bidders.rows[rows] - self.goods.rows[own]).square().sum(dim=1)
        return squares ** (self.problem.p / 2) + self.price[own]

    def _look_up(self, rows: Tensor) -> None:
        if len(rows) == 0:
            return
        nearest(self.bidders, self.goods, self.price, self.problem.p, rows, self.lists, self.memory)
        # Bounds are rounded, and columns may tie: a list that was just made is one to bid by.
        best = (self.lists.near[rows] + self.price[self.lists.columns[rows].long()]).amin(dim=1)
        self.lists.bound[rows] = best.maximum(self.lists.bound[rows])

    def _play(self, rows: Tensor, hall: Hall, limits: Limits) -> Tensor:
        """Rounds of some rows; those that are left have new lists."""
        hall.queue[0, : len(rows)] = rows
        count, played, n_stale = len(rows), 0, 0
        hall.counts.zero_()
        hall.counts[0] = count
        while count > 0 and played < _LONGEST_PLAY and not limits.passed:
            rounds = _ROUNDS if count > FEW_BIDDERS else _LAST_ROUNDS
            play(self.bidders, self.lists, hall, rounds, count)
            count, _, n_stale = hall.counts.tolist()
            played += rounds
        stale = hall.stale[:n_stale].long().sort().values
        self._look_up(stale)
        return sys.modules["torch"].cat([hall.queue[0, :count].long(), stale])

    def _turn_round(self) -> None:
        """Have the other side bid: the price of a row is what it pays, less what it would like to."""
        rows = self._free(self.side)
        paid = self.price.new_empty(self.bidders.n)
        has_column = (self.mates[self.side] >= 0).nonzero()[:, 0]
        paid[has_column] = self._paid(has_column)
        if len(rows):
            paid[rows] = least_totals(self.bidders.chosen(rows), self.goods, self.price, self.problem.p)
        self.price, self.side = -paid, 1 - self.side
        self._forget()

    def complete(self) -> None:
        """Keep the matching, with what is left over on both sides matched as cheaply as can be."""
        partner = self.mates[0].cpu().numpy().astype(np.int64)
        left, free = np.flatnonzero(partner < 0), self._free(1).cpu().numpy()
        if len(left) > _MOST_LEFT:
            return
        if len(left):
            from scipy.optimize import linear_sum_assignment
            from scipy.spatial.distance import cdist

            costs = cdist(self.problem.x[left], self.problem.y[free]) ** self.problem.p
            at, to = linear_sum_assignment(costs)
            partner[left[at]] = free[to]
        self.keep(partner)


def solve(
    problem: Problem,
    limits: Limits,
    memory: int | None,
    place: Any,
    advance: Callable[[int], None] = lambda levels: None,
) -> Bracket:
    """A bracket of the least mean cost of a matching, on the device `place` of torch.

    Examples
    --------
    >>> import torch
    >>> points, ones = np.random.default_rng(0).normal(size=(200, 2)) / 16, np.ones(200, dtype=np.int64)
    >>> found = solve(Problem(points, points + 0.25, ones, ones, 2.0), Limits(0.01, math.inf), 1 << 20, "cpu")
    >>> bool(0.1237 < found.lower <= 0.125 <= found.cost < 0.1263)
    True
    """
    auction = Auction(problem, memory, place)
    is_done = auction.cost == 0
    if not is_done:
        auction.anneal(limits, advance)
        auction.raise_lower()
        is_done = auction.run(limits, advance)
    (at_x, at_y), partner, g = auction.orders, np.empty_like(auction.partner), np.empty_like(auction.g)
    partner[at_x], g[at_y] = at_y[auction.partner], auction.g
    return Bracket(partner, g, auction.lower, auction.cost, is_done)
