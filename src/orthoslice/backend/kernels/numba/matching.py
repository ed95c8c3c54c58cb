"""Matchings of clouds in host memory, made better: halved into groups, merged, and matched anew in groups.

The plain references are those of `orthoslice.applications.match.regroup`. Groups share no points, so that
threads may work on different ones at once, and the answer does not depend on which of them does.
"""

from __future__ import annotations

import numpy as np

from orthoslice.backend.array_types import Flags, Floats, Indices
from orthoslice.backend.kernels.numba._compile import compiled
from orthoslice.backend.kernels.numba.pairs import full_power, full_square


@compiled
def _is_before(key: float, place: int, other: float, other_place: int) -> bool:
    return key < other or (key == other and place < other_place)


@compiled
def select_least(keys: Floats, order: Indices, first: int, stop: int, middle: int) -> None:
    """Put the least `middle - first` of the places `order[first:stop]` in front; equal keys go by place."""
    while stop - first > 1:
        a, b, c = order[first], order[(first + stop) // 2], order[stop - 1]
        # The median of three.
        if _is_before(keys[b], b, keys[a], a):
            a, b = b, a
        if _is_before(keys[c], c, keys[b], b):
            b = a if _is_before(keys[c], c, keys[a], a) else c
        pivot = keys[b]
        i, j = first, stop - 1
        while i <= j:
            while _is_before(keys[order[i]], order[i], pivot, b):
                i += 1
            while _is_before(pivot, b, keys[order[j]], order[j]):
                j -= 1
            if i <= j:
                order[i], order[j] = order[j], order[i]
                i += 1
                j -= 1
        if middle <= j:
            stop = j + 1
        elif middle >= i:
            first = i
        else:
            return


@compiled
def halve_places(keys: Floats, order: Indices) -> None:
    """Put `order (n,)` of all places in the order of the groups that halving by `keys (levels, n)` makes.

    Examples
    --------
    >>> order = np.arange(4)
    >>> halve_places(np.array([[0.0, 3.0, 1.0, 2.0], [5.0, 1.0, 4.0, 2.0]]), order)
    >>> order.tolist()
    [2, 0, 1, 3]
    """
    levels, n = keys.shape
    for level in range(levels):
        for group in range(1 << level):
            first, stop = group_start(n, level, group), group_start(n, level, group + 1)
            select_least(keys[level], order, first, stop, group_start(n, level + 1, 2 * group + 1))
    owner, following = np.empty(n, dtype=np.int64), np.empty(1 << levels, dtype=np.int64)
    for group in range(1 << levels):
        following[group] = group_start(n, levels, group)
        for k in range(following[group], group_start(n, levels, group + 1)):
            owner[order[k]] = group
    for place in range(n):
        order[following[owner[place]]] = place
        following[owner[place]] += 1


@compiled
def group_start(n: int, level: int, group: int) -> int:
    """Where a group begins if n places are halved `level` times: as the reference `group_starts`.

    Examples
    --------
    >>> [group_start(5, 1, group) for group in range(3)]
    [0, 2, 5]
    """
    return (2 * group * n + (1 << level) - 1) >> (level + 1)


@compiled
def merge_cycles(x: Floats, y: Floats, p: float, partner: Indices, cost: Floats, other: Indices) -> None:
    """Make the matching `partner (n,)` cheaper wherever `other (n,)` is, in place, with its costs `(n,)`.

    The two matchings together form cycles, from point i of x to `other[i]` and on to the point of x that
    `partner` matches with it. Both matchings of a cycle have the same points, and the cheaper one is kept.

    Examples
    --------
    >>> x = np.array([[0.0], [1.0], [5.0], [6.0]])
    >>> partner, cost = np.array([1, 0, 2, 3]), np.array([1.0, 1.0, 0.0, 0.0])
    >>> merge_cycles(x, x, 2.0, partner, cost, np.array([0, 1, 3, 2]))
    >>> partner.tolist(), cost.tolist()
    ([0, 1, 2, 3], [0.0, 0.0, 0.0, 0.0])
    """
    n = partner.size
    owner = np.empty(n, dtype=np.int64)
    price = np.empty(n)
    for i in range(n):
        owner[partner[i]] = i
        price[i] = full_power(full_square(x, y, i, other[i]), p)
    seen = np.zeros(n, dtype=np.bool_)
    for start in range(n):
        gain, i = 0.0, start
        while not seen[i]:
            seen[i] = True
            gain += cost[i] - price[i]
            i = owner[other[i]]
        if gain > 0.0:
            while partner[i] != other[i]:
                following = owner[other[i]]
                partner[i], cost[i] = other[i], price[i]
                i = following


@compiled
def _bid(costs: Floats, size: int, i: int, column: Indices, row: Indices, v: Floats) -> int:
    """Give row `i` the column j of least `costs[i, j] - v[j]`; `v[j]` falls until the second best is as good.

    Returns the row that loses column j, or -1. If j is taken and the second best is as good, nothing changes.
    """
    least, second, at = np.inf, np.inf, 0
    for j in range(size):
        left = costs[i, j] - v[j]
        if left < least:
            least, second, at = left, least, j
        elif left < second:
            second = left
    outbid = row[at]
    if outbid != -1 and not second > least:
        return -1
    if second < np.inf:
        v[at] -= second - least
    column[i], row[at] = at, i
    if outbid != -1:
        column[outbid] = -1
    return int(outbid)


@compiled
def _assign(
    costs: Floats,
    size: int,
    column: Indices,
    row: Indices,
    u: Floats,
    v: Floats,
    path: Floats,
    came: Indices,
    done: Flags,
) -> None:
    """Match the first `size` rows and columns of `costs` as cheaply as can be: `column` of every row.

    Shortest augmenting paths (Jonker and Volgenant 1987): prices keep `costs[i, j] - u[i] - v[j]` at least 0,
    and 0 on matched pairs, so that a search in order of length finds how best to match one more row. At first
    `v[j]` is the least cost of column j, and rows bid for columns in turn, which matches most of them.
    """
    column[:size], row[:size], v[:size] = -1, -1, np.inf
    for i in range(size):
        for j in range(size):
            v[j] = min(v[j], costs[i, j])
    for _ in range(2):
        for start in range(size):
            i = start if column[start] == -1 else -1
            # Bounded: rows may outbid each other again and again, by ever smaller steps.
            for _ in range(size):
                if i != -1:
                    i = _bid(costs, size, i, column, row, v)
    for i in range(size):
        if column[i] != -1:
            u[i] = costs[i, column[i]] - v[column[i]]
        else:
            u[i] = np.inf
            for j in range(size):
                u[i] = min(u[i], costs[i, j] - v[j])
    for start in range(size):
        if column[start] != -1:
            continue
        path[:size], done[:size] = np.inf, False
        i, length, end = start, 0.0, -1
        while end == -1:
            nearest, shortest = -1, np.inf
            for j in range(size):
                if not done[j]:
                    through = length + (costs[i, j] - u[i] - v[j])
                    if through < path[j]:
                        path[j], came[j] = through, i
                    if nearest == -1 or path[j] < shortest:
                        nearest, shortest = j, path[j]
            length = shortest
            done[nearest] = True
            if row[nearest] == -1:
                end = nearest
            else:
                i = row[nearest]
        u[start] += length
        for j in range(size):
            if done[j] and j != end:
                u[row[j]] += length - path[j]
                v[j] -= length - path[j]
        j = end
        while j != -1:
            i = came[j]
            row[j] = i
            j, column[i] = (-1 if i == start else column[i]), j


@compiled
def rematch_groups(
    x: Floats, y: Floats, p: float, order: Indices, starts: Indices, partner: Indices, cost: Floats
) -> None:
    """Match the points of every group `order[starts[g]:starts[g + 1]]` with their partners as well as can be.

    `partner (n,)` and its costs `(n,)` are changed in place, where that is cheaper.

    Examples
    --------
    >>> x, y = np.array([[0.0], [1.0], [2.0]]), np.array([[2.0], [0.0], [1.0]])
    >>> partner, cost = np.arange(3), np.array([4.0, 1.0, 1.0])
    >>> rematch_groups(x, y, 2.0, np.arange(3), np.array([0, 3]), partner, cost)
    >>> partner.tolist(), cost.tolist()
    ([1, 2, 0], [0.0, 0.0, 0.0])
    """
    most = 0
    for g in range(starts.size - 1):
        most = max(most, starts[g + 1] - starts[g])
    costs = np.empty((most, most))
    column, row = np.empty(most, dtype=np.int64), np.empty(most, dtype=np.int64)
    came, theirs = np.empty(most, dtype=np.int64), np.empty(most, dtype=np.int64)
    u, v, path = np.empty(most), np.empty(most), np.empty(most)
    done = np.empty(most, dtype=np.bool_)
    for g in range(starts.size - 1):
        places = order[starts[g] : starts[g + 1]]
        size = places.size
        before = 0.0
        for i in range(size):
            theirs[i] = partner[places[i]]
            before += cost[places[i]]
        for i in range(size):
            for j in range(size):
                costs[i, j] = full_power(full_square(x, y, places[i], theirs[j]), p)
        _assign(costs, size, column, row, u, v, path, came, done)
        after = 0.0
        for i in range(size):
            after += costs[i, column[i]]
        if after < before:
            for i in range(size):
                partner[places[i]], cost[places[i]] = theirs[column[i]], costs[i, column[i]]


@compiled
def _transport(costs: Floats, supply: Indices, demand: Indices, flow: Indices) -> None:
    """Move whole masses `supply (rows,)` to `demand (columns,)` as cheaply as can be; both are used up.

    As :func:`_assign`, where a column may hold mass of several rows, and a path may lead on to each of them.
    """
    rows, columns = costs.shape
    flow[:] = 0
    u, v = np.zeros(rows), np.empty(columns)
    for j in range(columns):
        v[j] = costs[:, j].min()
    path, came = np.empty(columns), np.empty(columns, dtype=np.int64)
    reached, through = np.empty(rows), np.empty(rows, dtype=np.int64)
    done, seen = np.empty(columns, dtype=np.bool_), np.empty(rows, dtype=np.bool_)
    for start in range(rows):
        while supply[start] > 0:
            path[:], done[:], seen[:] = np.inf, False, False
            seen[start], reached[start] = True, 0.0
            for j in range(columns):
                path[j], came[j] = costs[start, j] - u[start] - v[j], start
            end, length = -1, 0.0
            while end == -1:
                nearest = -1
                for j in range(columns):
                    if not done[j] and (nearest == -1 or path[j] < path[nearest]):
                        nearest = j
                length = path[nearest]
                done[nearest] = True
                if demand[nearest] > 0:
                    end = nearest
                    break
                for i in range(rows):
                    if flow[i, nearest] > 0 and not seen[i]:
                        seen[i], reached[i], through[i] = True, length, nearest
                        for j in range(columns):
                            further = length + (costs[i, j] - u[i] - v[j])
                            if not done[j] and further < path[j]:
                                path[j], came[j] = further, i
            for i in range(rows):
                if seen[i]:
                    u[i] += length - reached[i]
            for j in range(columns):
                if done[j]:
                    v[j] -= length - path[j]
            mass = min(supply[start], demand[end])
            i = came[end]
            while i != start:
                mass = min(mass, flow[i, through[i]])
                i = came[through[i]]
            supply[start] -= mass
            demand[end] -= mass
            j = end
            while True:
                i = came[j]
                flow[i, j] += mass
                if i == start:
                    break
                j = through[i]
                flow[i, j] -= mass


@compiled
def recouple_groups(
    x: Floats,
    y: Floats,
    p: float,
    order: Indices,
    starts: Indices,
    ix: Indices,
    iy: Indices,
    mass: Indices,
    out: Indices,
) -> None:
    """Move the mass of every group of pairs `order[starts[g]:starts[g + 1]]` as cheaply as can be.

    Pairs `ix, iy, mass (pairs,)` have whole masses. New ones are written to `out (3, 2 * pairs)`, those of
    group g from column `2 * starts[g]` on: a cheapest coupling of r with c points needs r + c - 1 pairs, and
    there are at most two points a pair. What remains of the columns is left as it was.

    Examples
    --------
    >>> x = np.array([[0.0], [1.0]])
    >>> ix, iy, mass = np.array([[0, 1], [1, 0], [3, 2]])
    >>> out = np.zeros((3, 4), dtype=np.int64)
    >>> recouple_groups(x, x, 2.0, np.arange(2), np.array([0, 2]), ix, iy, mass, out)
    >>> out.T.tolist()
    [[0, 0, 2], [0, 1, 1], [1, 1, 2], [0, 0, 0]]
    """
    for g in range(starts.size - 1):
        pairs = order[starts[g] : starts[g + 1]]
        at_x, at_y = np.unique(ix[pairs]), np.unique(iy[pairs])
        i, j = np.searchsorted(at_x, ix[pairs]), np.searchsorted(at_y, iy[pairs])
        costs = np.empty((at_x.size, at_y.size))
        for r in range(at_x.size):
            for c in range(at_y.size):
                costs[r, c] = full_power(full_square(x, y, at_x[r], at_y[c]), p)
        supply, demand = np.zeros(at_x.size, dtype=np.int64), np.zeros(at_y.size, dtype=np.int64)
        before, after = 0.0, 0.0
        for k in range(pairs.size):
            supply[i[k]] += mass[pairs[k]]
            demand[j[k]] += mass[pairs[k]]
            before += mass[pairs[k]] * costs[i[k], j[k]]
        flow = np.empty((at_x.size, at_y.size), dtype=np.int64)
        _transport(costs, supply, demand, flow)
        used = 0
        for r in range(at_x.size):
            for c in range(at_y.size):
                if flow[r, c] > 0:
                    used += 1
                    after += flow[r, c] * costs[r, c]
        to = 2 * starts[g]
        # Equal costs may spread mass over more pairs than are needed.
        if not after < before or used > 2 * pairs.size:
            for k in range(pairs.size):
                out[0, to + k], out[1, to + k], out[2, to + k] = ix[pairs[k]], iy[pairs[k]], mass[pairs[k]]
            continue
        for r in range(at_x.size):
            for c in range(at_y.size):
                if flow[r, c] > 0:
                    out[0, to], out[1, to], out[2, to] = at_x[r], at_y[c], flow[r, c]
                    to += 1
