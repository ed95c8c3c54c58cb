"""An auction for transport: rows bid for room in columns, and the prices of columns are dual potentials.

Rows have mass to place, columns have room for as much. A unit of column j costs row i what the pair costs plus
`price[j]`, and the row wants the cheapest. A bid takes room from the piece of least price in its column, and
raises the price of that piece as far as the row would still buy there, and by `eps` more. When all mass is
placed, the coupling costs at most `eps` a unit of mass more than the least cost (Bertsekas 1988).

Where rows bid, prices only rise. So a row need not look at all columns: it keeps a list of those that were
cheapest when it last looked, and the price of the best of the others (`bound`). Until the list has become
dearer than that, nothing outside can be cheaper. Columns without a buyer bid in turn, with falling prices, and
tell rows whose bound they undercut.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from orthoslice.backend.array_types import FloatArray, IntArray
from orthoslice.backend.kernels.numba._compile import compiled, summing
from orthoslice.backend.kernels.numba.pairs import full_power

# Columns whose costs are worked out at a time: they stay in a core's nearest cache.
_TILE = 1024

# How a kernel ends: all mass is placed, there is more to do, or there are no pieces left to split.
DONE, PAUSED, FULL = 0, 1, 2

# Marks of nodes and rows in a search.
_NEW, _FINAL, _START = -1, -2, -3


class Costs(NamedTuple):
    """|x[i] - y[j]|^p: points `x (n, dim)`, `y_columns (dim, m)`, and all costs `table (n, m)`, or `(0, 0)`."""

    x: FloatArray
    y_columns: FloatArray
    p: float
    table: FloatArray


class Lists(NamedTuple):
    """The cheapest `columns (n, size)` of every row, what these pairs cost, and the `bound (n,)` of others."""

    columns: IntArray
    near: FloatArray
    bound: FloatArray


class Pieces(NamedTuple):
    """Who holds how much room in which column at which price.

    Pieces of a column are a chain, from `head (m,)` along `following`. No row holds those of owner -1. The last
    entry of `free` says how many of its first ones are numbers of pieces that are not in use.
    """

    head: IntArray
    following: IntArray
    column: IntArray
    owner: IntArray
    mass: IntArray
    paid: FloatArray
    free: IntArray


class Rows(NamedTuple):
    """The mass that rows have `left (n,)` to place, and a ring of rows with any; `ends` is (first, count)."""

    left: IntArray
    ring: IntArray
    ends: IntArray


@summing
def row_costs(
    x: FloatArray, y_columns: FloatArray, p: float, i: int, first: int, stop: int, out: FloatArray
) -> None:
    """|x[i] - y[j]|^p for the columns `first <= j < stop` of `y_columns (dim, m)`, to `out[: stop - first]`.

    Examples
    --------
    >>> out = np.empty(2)
    >>> row_costs(np.zeros((1, 2)), np.array([[3.0, 0.0], [4.0, 1.0]]), 1.0, 0, 0, 2, out)
    >>> out.tolist()
    [5.0, 1.0]
    """
    size, dim = stop - first, x.shape[1]
    out[:size] = 0.0
    k = 0
    # Four coordinates at a time: sums are read and written once for all of them.
    while k + 4 <= dim:
        a, b, c, d = x[i, k], x[i, k + 1], x[i, k + 2], x[i, k + 3]
        ya, yb = y_columns[k, first:stop], y_columns[k + 1, first:stop]
        yc, yd = y_columns[k + 2, first:stop], y_columns[k + 3, first:stop]
        for j in range(size):
            q, r, s, t = a - ya[j], b - yb[j], c - yc[j], d - yd[j]
            out[j] += (q * q + r * r) + (s * s + t * t)
        k += 4
    while k < dim:
        a, ya = x[i, k], y_columns[k, first:stop]
        for j in range(size):
            q = a - ya[j]
            out[j] += q * q
        k += 1
    if p == 1.0:
        for j in range(size):
            out[j] = np.sqrt(out[j])
    elif p != 2.0:
        for j in range(size):
            out[j] = full_power(out[j], p)


@compiled
def fill_costs(
    x: FloatArray, y_columns: FloatArray, p: float, first: int, stop: int, table: FloatArray
) -> None:
    """The rows `first <= i < stop` of the table `(n, m)` of all costs."""
    m = y_columns.shape[1]
    for begin in range(0, m, _TILE):
        end = min(begin + _TILE, m)
        for i in range(first, stop):
            row_costs(x, y_columns, p, i, begin, end, table[i, begin:end])


@compiled
def _tile(costs: Costs, i: int, begin: int, end: int, buffer: FloatArray) -> FloatArray:
    """What row i pays for the columns `begin <= j < end`, without their prices."""
    if costs.table.shape[0] > 0:
        return costs.table[i, begin:end]
    row_costs(costs.x, costs.y_columns, costs.p, i, begin, end, buffer)
    return buffer[: end - begin]


@compiled
def _look(i: int, costs: Costs, price: FloatArray, lists: Lists, value: FloatArray, buffer: FloatArray) -> None:
    """Make the list of row i anew: its cheapest columns at these prices, and what all others cost at least.

    `value (size + 1,)` has one place more than the list: the cheapest of the others.
    """
    m = price.size
    size: int = lists.columns.shape[1]
    columns, near = lists.columns[i], lists.near[i]
    value[:] = np.inf
    limit = np.inf
    for begin in range(0, m, _TILE):
        end = min(begin + _TILE, m)
        tile, prices = _tile(costs, i, begin, end, buffer), price[begin:end]
        for j in range(end - begin):
            total = tile[j] + prices[j]
            if total < limit:
                at = size
                while at > 0 and value[at - 1] > total:
                    value[at] = value[at - 1]
                    if at < size:
                        columns[at], near[at] = columns[at - 1], near[at - 1]
                    at -= 1
                value[at] = total
                if at < size:
                    columns[at], near[at] = begin + j, tile[j]
                limit = value[size]
    lists.bound[i] = value[size]


@compiled
def look_up(rows: IntArray, costs: Costs, price: FloatArray, lists: Lists) -> None:
    """Make the lists of these rows anew."""
    buffer, value = np.empty(_TILE), np.empty(lists.columns.shape[1] + 1)
    for i in rows:
        _look(i, costs, price, lists, value, buffer)


@compiled
def row_minima(price: FloatArray, lists: Lists, out: FloatArray) -> None:
    """A lower bound on `min_j costs[i, j] + price[j]` of every row: that minimum, where the list has it."""
    for i in range(out.size):
        least = lists.bound[i]
        for k in range(lists.columns.shape[1]):
            least = min(least, lists.near[i, k] + price[lists.columns[i, k]])
        out[i] = least


@compiled
def best_columns(costs: Costs, price: FloatArray, first: int, stop: int, out: FloatArray) -> None:
    """`min_j costs[i, j] + price[j]` of the rows `first <= i < stop`, over all columns."""
    buffer = np.empty(_TILE)
    m = price.size
    out[first:stop] = np.inf
    for begin in range(0, m, _TILE):
        end = min(begin + _TILE, m)
        prices = price[begin:end]
        for i in range(first, stop):
            tile, least = _tile(costs, i, begin, end, buffer), out[i]
            for j in range(end - begin):
                least = min(least, tile[j] + prices[j])
            out[i] = least


@compiled
def _move(pieces: Pieces, piece: int, before: int, amount: int, row: int, paid: float) -> None:
    """Give `amount` of a piece to a row, at this price; `before` precedes the piece in its chain, or is -1."""
    j = pieces.column[piece]
    own = pieces.head[j]
    while own != -1 and (pieces.owner[own] != row or own == piece):
        own = pieces.following[own]
    if own != -1:
        pieces.mass[own] += amount
        pieces.paid[own] = min(pieces.paid[own], paid)
        pieces.mass[piece] -= amount
        if pieces.mass[piece] == 0:
            if before == -1:
                pieces.head[j] = pieces.following[piece]
            else:
                pieces.following[before] = pieces.following[piece]
            pieces.free[pieces.free[-1]] = piece
            pieces.free[-1] += 1
    elif amount == pieces.mass[piece]:
        pieces.owner[piece], pieces.paid[piece] = row, paid
    else:
        pieces.free[-1] -= 1
        new = pieces.free[pieces.free[-1]]
        pieces.mass[piece] -= amount
        pieces.mass[new], pieces.owner[new], pieces.paid[new] = amount, row, paid
        pieces.column[new], pieces.following[new] = j, pieces.head[j]
        pieces.head[j] = new


@compiled
def place_mass(
    costs: Costs,
    price: FloatArray,
    lists: Lists,
    eps: float,
    pieces: Pieces,
    rows: Rows,
    work: int,
    counts: IntArray,
) -> int:
    """Rows in the ring bid until all mass is placed, or about `work` numbers have been looked at.

    `counts` is raised by the number of bids and of lists that were made anew.
    """
    n, m, size = costs.x.shape[0], price.size, lists.columns.shape[1]
    buffer, value = np.empty(_TILE), np.empty(size + 1)
    left, ring, ends = rows.left, rows.ring, rows.ends
    while ends[1] > 0:
        i = ring[ends[0]]
        columns, near = lists.columns[i], lists.near[i]
        while left[i] > 0:
            if work <= 0 or pieces.free[-1] == 0:
                return PAUSED if work <= 0 else FULL
            best, second, at = np.inf, lists.bound[i], -1
            for k in range(size):
                total = near[k] + price[columns[k]]
                if total < best:
                    best, second, at = total, min(best, second), columns[k]
                elif total < second:
                    second = total
            work -= size
            if best > lists.bound[i]:
                _look(i, costs, price, lists, value, buffer)
                work -= m
                counts[1] += 1
                continue
            counts[0] += 1
            # The piece of least price, and the least price among the others.
            piece, before, least, others, last = -1, -1, np.inf, np.inf, -1
            k = pieces.head[at]
            while k != -1:
                if pieces.paid[k] < least:
                    others, least, piece, before = least, pieces.paid[k], k, last
                elif pieces.paid[k] < others:
                    others = pieces.paid[k]
                last, k = k, pieces.following[k]
            # With a single column there is no second best.
            level = least + (second - best if second < np.inf else 0.0) + eps
            outbid = pieces.owner[piece]
            if outbid == i:
                # Its own room, at the price that it would pay now.
                pieces.paid[piece], price[at] = level, min(level, others)
                continue
            taken = min(left[i], pieces.mass[piece])
            price[at] = min(level, others if taken == pieces.mass[piece] else least)
            _move(pieces, piece, before, taken, i, level)
            left[i] -= taken
            if outbid >= 0:
                if left[outbid] == 0:
                    ring[(ends[0] + ends[1]) % n] = outbid
                    ends[1] += 1
                left[outbid] += taken
        ends[0] = (ends[0] + 1) % n
        ends[1] -= 1
    return DONE


@compiled
def fill_room(
    costs: Costs, price: FloatArray, lists: Lists, eps: float, pieces: Pieces, rows: Rows, work: int
) -> None:
    """Columns with room that no row holds bid for rows, until about `work` numbers have been looked at.

    Before rows buy a column that is too dear, all others have to become as dear, bid by bid. Here its price
    falls to where the row that wants it most gains `eps` more than the next one would. That row leaves the
    dearest room that it holds, so that room moves to where rows have mass left. What is dearest to a row
    afterwards is what it bids with next.
    """
    n, m = costs.x.shape[0], price.size
    y, x_columns = np.empty((1, costs.x.shape[1])), np.ascontiguousarray(costs.x.T)
    # What a unit of a row costs it where it costs most, and what it costs in every piece.
    dearest, pays = np.full(n, -np.inf), np.empty(pieces.owner.size)
    cost, held, noted = np.empty(n), np.zeros(n, dtype=np.int64), price.copy()
    queue, first, count = np.empty(m, dtype=np.int64), 0, 0
    waits, asked = np.zeros(m, dtype=np.bool_), np.zeros(m, dtype=np.bool_)
    keenest, its_cost, next_wanted = np.empty(m, dtype=np.int64), np.empty(m), np.empty(m)
    for j in range(m):
        k = pieces.head[j]
        while k != -1:
            row = pieces.owner[k]
            if row == -1:
                queue[count], waits[j] = j, True
                count += 1
            else:
                pays[k] = _tile(costs, row, j, j + 1, cost)[0] + price[j]
                dearest[row] = max(dearest[row], pays[k])
                held[row] += pieces.mass[k]
            k = pieces.following[k]
    _cheapest(costs, price, lists, rows, dearest)
    while count > 0 and work > 0 and pieces.free[-1] > 1:
        j = queue[first]
        if _piece_of(pieces, j, -1)[0] == -1:
            waits[j] = False
            first, count = (first + 1) % m, count - 1
            continue
        for k in range(y.size):
            y[0, k] = costs.y_columns[k, j]
        row_costs(y, x_columns, costs.p, 0, 0, n, cost)
        work -= n
        row, wanted = _keenest(dearest, cost)
        asked[j], keenest[j], its_cost[j], next_wanted[j] = True, row, cost[row], wanted
        _note_price(lists, noted, cost, j, wanted - eps)
        left = _sell(pieces, pays, j, row, cost[row] + wanted - eps, rows.left, held, dearest)
        if left != -1 and not waits[left]:
            waits[left] = True
            queue[(first + count) % m] = left
            count += 1
    for j in range(m):
        if asked[j]:
            # No row gains more than `eps` by it, and later bids may have made cheaper what was dearest.
            wanted = max(next_wanted[j], dearest[keenest[j]] - its_cost[j])
            price[j] = min(price[j], wanted - eps)
            k = pieces.head[j]
            while k != -1:
                pieces.paid[k] = price[j]
                k = pieces.following[k]
    _close_ranks(rows)


@compiled
def _cheapest(costs: Costs, price: FloatArray, lists: Lists, rows: Rows, dearest: FloatArray) -> None:
    """Raise `dearest (n,)` of rows with mass left to what their cheapest column costs them."""
    buffer, value = np.empty(_TILE), np.empty(lists.columns.shape[1] + 1)
    for i in range(rows.left.size):
        if rows.left[i] > 0:
            least = np.inf
            for k in range(lists.columns.shape[1]):
                least = min(least, lists.near[i, k] + price[lists.columns[i, k]])
            if least > lists.bound[i]:
                _look(i, costs, price, lists, value, buffer)
                least = value[0]
            dearest[i] = max(dearest[i], least)


@compiled
def _piece_of(pieces: Pieces, j: int, row: int) -> tuple[int, int]:
    """The piece of column j that a row holds, or -1, and the one before it in the chain."""
    before, piece = -1, pieces.head[j]
    while piece != -1 and pieces.owner[piece] != row:
        before, piece = piece, pieces.following[piece]
    return piece, before


@compiled
def _keenest(least: FloatArray, cost: FloatArray) -> tuple[int, float]:
    """The row that would pay most for a column, and what the next one would."""
    row, best, second = 0, least[0] - cost[0], -np.inf
    for i in range(1, least.size):
        wanted = least[i] - cost[i]
        if wanted > best:
            row, best, second = i, wanted, best
        elif wanted > second:
            second = wanted
    return row, second if least.size > 1 else best


@compiled
def _note_price(lists: Lists, noted: FloatArray, cost: FloatArray, j: int, paid: float) -> None:
    """Have lists know that a column, for which rows pay `cost (n,)`, became cheaper.

    It takes the place of the dearest column of a list that lacks it. Were only the bound to fall, rows would
    look at all columns again for each of these. `noted (m,)` are the lowest prices that columns may end with.
    """
    noted[j] = min(noted[j], paid)
    for i in range(cost.size):
        if cost[i] + paid < lists.bound[i]:
            columns, near = lists.columns[i], lists.near[i]
            worst, most = -1, cost[i] + paid
            for k in range(columns.size):
                if columns[k] == j:
                    worst, most = -1, lists.bound[i]
                    break
                total = near[k] + noted[columns[k]]
                if total > most:
                    worst, most = k, total
            if worst != -1:
                columns[worst], near[worst] = j, cost[i]
            lists.bound[i] = min(lists.bound[i], most)


@compiled
def _sell(
    pieces: Pieces,
    pays: FloatArray,
    j: int,
    row: int,
    offer: float,
    left: IntArray,
    held: IntArray,
    dearest: FloatArray,
) -> int:
    """Have a row buy room of column j that no row holds, where a unit then costs it `offer`.

    It places mass that is left, or else leaves its dearest room. Returns the column of that, or -1.
    """
    piece, before = _piece_of(pieces, j, -1)
    own = _piece_of(pieces, j, row)[0]
    if left[row] > 0:
        amount = min(left[row], pieces.mass[piece])
        left[row] -= amount
        held[row] += amount
        _move(pieces, piece, before, amount, row, pieces.paid[piece])
        if own == -1:
            pays[_piece_of(pieces, j, row)[0]] = offer
        # Mass that is still left stays what is dearest.
        if left[row] == 0:
            dearest[row] = _two_dearest(pieces, pays, row, held[row])[1]
        return -1
    worst, _, others = _two_dearest(pieces, pays, row, held[row])
    if worst == own:
        pays[own], dearest[row] = offer, max(offer, others)
        return -1
    amount, other = min(pieces.mass[worst], pieces.mass[piece]), pieces.column[worst]
    if amount == pieces.mass[worst]:
        dearest[row] = max(offer, others)
    _move(pieces, piece, before, amount, row, pieces.paid[piece])
    if own == -1:
        pays[_piece_of(pieces, j, row)[0]] = offer
    _move(pieces, worst, _piece_of(pieces, other, row)[1], amount, -1, pieces.paid[worst])
    return int(other)


@compiled
def _two_dearest(pieces: Pieces, pays: FloatArray, row: int, held: int) -> tuple[int, float, float]:
    """The piece in which a unit costs a row most, what it costs there, and what in the next one."""
    worst, most, others, k = -1, -np.inf, -np.inf, 0
    while held > 0:
        if pieces.owner[k] == row and pieces.mass[k] > 0:
            held -= pieces.mass[k]
            if pays[k] > most:
                worst, most, others = k, pays[k], most
            elif pays[k] > others:
                others = pays[k]
        k += 1
    return worst, most, others


class _Search(NamedTuple):
    """Shortest paths from rows to columns, which are nodes; node m + i is what the list of row i leaves out.

    Nodes that are reached are in a `heap`, at `place (n + m,)`. `came (n + m,)` is the row by which a node was
    reached and `by (n,)` the piece by which a row was; `root (n,)` is the row that its path begins at. The
    first entries of `open` are the columns whose distance is not final yet, at `seat (m,)`. `sizes` counts
    nodes in the heap, `touched` nodes, open columns and `reached` rows.
    """

    heap: IntArray
    place: IntArray
    length: FloatArray
    came: IntArray
    touched: IntArray
    by: IntArray
    root: IntArray
    reached: IntArray
    offset: FloatArray
    open: IntArray
    seat: IntArray
    sizes: IntArray


@compiled
def _new_search(n: int, m: int) -> _Search:
    return _Search(
        np.empty(n + m, dtype=np.int64),
        np.full(n + m, _NEW, dtype=np.int64),
        np.empty(n + m),
        np.empty(n + m, dtype=np.int64),
        np.empty(n + m, dtype=np.int64),
        np.full(n, _NEW, dtype=np.int64),
        np.empty(n, dtype=np.int64),
        np.empty(n, dtype=np.int64),
        np.empty(n),
        np.arange(m),
        np.arange(m),
        np.zeros(4, dtype=np.int64),
    )


@compiled
def _reach(search: _Search, node: int, length: float, row: int) -> None:
    """Note a way to a node by a row, where it is the shortest so far."""
    heap, place = search.heap, search.place
    if place[node] == _NEW:
        at = search.sizes[0]
        search.sizes[0] += 1
        search.touched[search.sizes[1]] = node
        search.sizes[1] += 1
    elif place[node] == _FINAL or search.length[node] <= length:
        return
    else:
        at = place[node]
    search.length[node], search.came[node] = length, row
    while at > 0:
        above = (at - 1) // 2
        if search.length[heap[above]] <= length:
            break
        heap[at] = heap[above]
        place[heap[at]] = at
        at = above
    heap[at], place[node] = node, at


@compiled
def _nearest(search: _Search, m: int) -> int:
    """Take the node that is reached first from the heap: its distance is final."""
    heap, place, length = search.heap, search.place, search.length
    search.sizes[0] -= 1
    size = search.sizes[0]
    top, node, at = heap[0], heap[size], 0
    while 2 * at + 1 < size:
        below = 2 * at + 1
        if below + 1 < size and length[heap[below + 1]] < length[heap[below]]:
            below += 1
        if length[heap[below]] >= length[node]:
            break
        heap[at] = heap[below]
        place[heap[at]] = at
        at = below
    heap[at], place[node], place[top] = node, at, _FINAL
    if top < m:
        search.sizes[2] -= 1
        last, seat = search.open[search.sizes[2]], search.seat[top]
        search.open[seat], search.open[search.sizes[2]] = last, top
        search.seat[last], search.seat[top] = seat, search.sizes[2]
    return int(top)


@compiled
def _reach_all(search: _Search, i: int, costs: Costs, price: FloatArray, buffer: FloatArray) -> None:
    """Note the ways from row i to all columns whose distance is not final."""
    m = price.size
    if 4 * search.sizes[2] < m:
        for k in range(search.sizes[2]):
            j = search.open[k]
            tile = _tile(costs, i, j, j + 1, buffer)
            _reach(search, j, tile[0] + price[j] + search.offset[i], i)
        return
    for begin in range(0, m, _TILE):
        end = min(begin + _TILE, m)
        tile = _tile(costs, i, begin, end, buffer)
        for j in range(begin, end):
            _reach(search, j, tile[j - begin] + price[j] + search.offset[i], i)


@compiled
def reach_room(
    costs: Costs, price: FloatArray, lists: Lists, pieces: Pieces, rows: Rows, counts: IntArray
) -> int:
    """Place mass of the rows in the ring along shortest paths to columns that have room.

    Where rows outbid each other for long (all other columns must become dearer than a far one before a row
    takes that), paths raise all prices on the way at once. A step costs what a column is dearer than the row's
    cheapest; taking room from its owner costs nothing, which is right up to the `eps` of its bid. Paths begin
    at all rows of the ring at once, each of which takes the first room that it reaches.
    """
    n, m, size = costs.x.shape[0], price.size, lists.columns.shape[1]
    buffer, value = np.empty(_TILE), np.empty(size + 1)
    search, rooms = _new_search(n, m), np.empty(m, dtype=np.int64)
    ring, ends = rows.ring, rows.ends
    is_served = np.zeros(n, dtype=np.bool_)
    sizes, by, root, reached = search.sizes, search.by, search.root, search.reached
    counts[2] += 1
    sizes[2], sizes[3] = m, ends[1]
    for k in range(ends[1]):
        i = ring[(ends[0] + k) % n]
        reached[k], by[i], root[i] = i, _START, i
    n_done, length, n_rooms = 0, 0.0, 0
    while n_rooms < ends[1]:
        while n_done < sizes[3]:
            i = reached[n_done]
            n_done += 1
            columns, near = lists.columns[i], lists.near[i]
            best = np.inf
            for k in range(size):
                best = min(best, near[k] + price[columns[k]])
            if best > lists.bound[i]:
                _look(i, costs, price, lists, value, buffer)
                counts[1] += 1
                best = value[0]
            search.offset[i] = length - best
            for k in range(size):
                _reach(search, columns[k], near[k] + price[columns[k]] + search.offset[i], i)
            if lists.bound[i] < np.inf:
                _reach(search, m + i, lists.bound[i] + search.offset[i], i)
        if sizes[2] == 0 or sizes[0] == 0:
            break
        node = _nearest(search, m)
        length = max(length, search.length[node])
        search.length[node] = length
        if node >= m:
            _reach_all(search, node - m, costs, price, buffer)
            continue
        start, k = root[search.came[node]], pieces.head[node]
        while k != -1:
            i = pieces.owner[k]
            if i == -1 and not is_served[start]:
                is_served[start], rooms[n_rooms] = True, k
                n_rooms += 1
            elif i >= 0 and by[i] == _NEW:
                by[i], root[i], reached[sizes[3]] = k, start, i
                sizes[3] += 1
            k = pieces.following[k]
    _raise_prices(search, price, pieces, length)
    if pieces.free[-1] < sizes[3]:
        return FULL
    for k in range(n_rooms):
        _shift(search, rooms[k], price, pieces, rows.left)
    _close_ranks(rows)
    return DONE if ends[1] == 0 else PAUSED


@compiled
def _raise_prices(search: _Search, price: FloatArray, pieces: Pieces, length: float) -> None:
    """Raise the prices of all columns nearer than `length` by the difference."""
    for t in range(search.sizes[1]):
        node = search.touched[t]
        if node < price.size and search.place[node] == _FINAL and search.length[node] < length:
            price[node] += length - search.length[node]
            k = pieces.head[node]
            while k != -1:
                pieces.paid[k] = max(pieces.paid[k], price[node])
                k = pieces.following[k]


@compiled
def _shift(search: _Search, room: int, price: FloatArray, pieces: Pieces, left: IntArray) -> None:
    """Move as much mass as can be along the path to `room`, a piece that no row holds."""
    start = search.root[search.came[pieces.column[room]]]
    amount, piece = min(left[start], pieces.mass[room]), room
    while search.came[pieces.column[piece]] != start:
        piece = search.by[search.came[pieces.column[piece]]]
        amount = min(amount, pieces.mass[piece])
    piece = room
    while True:
        j = pieces.column[piece]
        row, before, k = search.came[j], -1, pieces.head[j]
        while k != piece:
            before, k = k, pieces.following[k]
        _move(pieces, piece, before, amount, row, price[j])
        if row == start:
            break
        piece = search.by[row]
    left[start] -= amount


@compiled
def _close_ranks(rows: Rows) -> None:
    """Take the rows that have no mass left out of the ring."""
    first, n, kept = rows.ends[0], rows.ring.size, 0
    for k in range(rows.ends[1]):
        i = rows.ring[(first + k) % n]
        if rows.left[i] > 0:
            rows.ring[(first + kept) % n] = i
            kept += 1
    rows.ends[1] = kept
