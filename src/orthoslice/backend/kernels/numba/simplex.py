"""The network simplex method for transport: a tree of pairs that carry mass, made cheaper pair by pair.

Rows are nodes `0 .. n-1`, columns are nodes `n .. n+m-1`, and the pairs of a tree are its edges. A tree has one
flow and, up to a constant, one potential a node: what a row pays is the cost of a pair and the price of its
column. A pair that a row would rather pay for comes in, mass goes round the cycle that it closes, and the first
pair to run empty leaves.

The root is the last column. Empty pairs lead towards it from rows only (a strongly feasible tree, Cunningham
1976), so that pivots that move no mass cannot go round in circles.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from orthoslice.backend.array_types import FloatArray, IntArray
from orthoslice.backend.kernels.numba._compile import compiled, ordering

# Rows pay for a pair only if they gain more than rounding, as a share of the range of potentials.
_ROUNDING = 2.0**-46


# What `nodes (n + m, 6)` says of a node: its parent, the flow of the pair that leads there, its depth, its
# first child, and its neighbours in the list of its parent's children. A node is in one or two cache lines.
PARENT, FLOW, _DEPTH, _FIRST, _AFTER, _BEFORE = range(6)

_MOST = np.iinfo(np.int64).max


class Tree(NamedTuple):
    """The `nodes (n + m, 6)` of a tree, and their `potential (n + m,)`."""

    nodes: IntArray
    potential: FloatArray


@ordering
def _least(row: FloatArray, price: FloatArray) -> float:
    least = np.inf
    for j in range(row.size):
        least = min(least, row[j] + price[j])
    return least


@compiled
def _cheapest(row: FloatArray, price: FloatArray, least: float) -> int:
    """The column that costs this row so much."""
    j = 0
    while row[j] + price[j] != least:
        j += 1
    return j


@compiled
def _link(nodes: IntArray, node: int, parent: int, flow: int) -> None:
    """Make a node a child of another one."""
    after = nodes[parent, _FIRST]
    nodes[node, PARENT], nodes[node, FLOW] = parent, flow
    nodes[node, _AFTER], nodes[node, _BEFORE] = after, -1
    if after != -1:
        nodes[after, _BEFORE] = node
    nodes[parent, _FIRST] = node


@compiled
def _unlink(nodes: IntArray, node: int) -> None:
    after, before = nodes[node, _AFTER], nodes[node, _BEFORE]
    if after != -1:
        nodes[after, _BEFORE] = before
    if before == -1:
        nodes[nodes[node, PARENT], _FIRST] = after
    else:
        nodes[before, _AFTER] = after


@compiled
def _settle(nodes: IntArray, potential: FloatArray, cost: FloatArray, stack: IntArray) -> None:
    """Depths and potentials of all nodes, from the root."""
    n, root, size = cost.shape[0], potential.size - 1, 1
    stack[0] = root
    while size > 0:
        size -= 1
        node = stack[size]
        above = nodes[node, PARENT]
        if node != root:
            nodes[node, _DEPTH] = nodes[above, _DEPTH] + 1
            pair = cost[node, above - n] if node < n else -cost[above, node - n]
            potential[node] = potential[above] + pair
        child = nodes[node, _FIRST]
        while child != -1:
            stack[size] = child
            size += 1
            child = nodes[child, _AFTER]


@compiled
def _shift(nodes: IntArray, potential: FloatArray, top: int, change: float, stack: IntArray) -> None:
    """Change the potentials of a node and all below it, and set their depths."""
    # Leaves are not stacked: most nodes are leaves.
    size, stack[0] = 1, top
    nodes[top, _DEPTH] = nodes[nodes[top, PARENT], _DEPTH] + 1
    potential[top] += change
    while size > 0:
        size -= 1
        node = stack[size]
        depth = nodes[node, _DEPTH] + 1
        child = nodes[node, _FIRST]
        while child != -1:
            nodes[child, _DEPTH] = depth
            potential[child] += change
            if nodes[child, _FIRST] != -1:
                stack[size] = child
                size += 1
            child = nodes[child, _AFTER]


@compiled
def first_prices(cost: FloatArray) -> FloatArray:
    """Columns cost what they save the row nearest to them."""
    price: FloatArray = -cost[0]
    for i in range(1, cost.shape[0]):
        row = cost[i]
        for j in range(price.size):
            price[j] = max(price[j], -row[j])
    return price


@compiled
def carried(tree: Tree, n: int) -> tuple[IntArray, IntArray, IntArray]:
    """Rows, columns and flows of the pairs that carry mass."""
    nodes = tree.nodes
    pairs, size = np.empty((3, nodes.shape[0]), dtype=np.int64), 0
    for node in range(nodes.shape[0] - 1):
        if nodes[node, FLOW] > 0:
            i, j = (node, nodes[node, PARENT]) if node < n else (nodes[node, PARENT], node)
            pairs[0, size], pairs[1, size], pairs[2, size] = i, j - n, nodes[node, FLOW]
            size += 1
    return pairs[0, :size].copy(), pairs[1, :size].copy(), pairs[2, :size].copy()


@compiled
def row_minima(cost: FloatArray, price: FloatArray, out: FloatArray) -> None:
    """`min_j cost[i, j] + price[j]` of every row."""
    for i in range(out.size):
        out[i] = _least(cost[i], price)


@compiled
def cheapest_pairs(cost: FloatArray, a: IntArray, b: IntArray, price: FloatArray, order: IntArray) -> IntArray:
    """Pairs `(rows, columns, flows)`: each row, in this order, fills the columns cheapest to it.

    Those of all rows are a tree. Every row is given one drop of mass more, and the root n drops of room: then a
    row and a column never end together, and the tree is strongly feasible.
    """
    n, m = cost.shape
    price, drops = price.copy(), np.zeros(m, dtype=np.int64)
    drops[m - 1] = n
    pairs, room, size = np.empty((3, n + m - 1), dtype=np.int64), b.copy(), 0
    for i in order:
        left, drop = a[i], 1
        while True:
            j = _cheapest(cost[i], price, _least(cost[i], price))
            has_room = room[j] > left or (room[j] == left and drops[j] >= drop)
            flow = left if has_room else room[j]
            pairs[0, size], pairs[1, size], pairs[2, size] = i, j, flow
            size += 1
            if has_room:
                room[j] -= flow
                drops[j] -= drop
                break
            left -= flow
            drop -= drops[j]
            price[j] = np.inf
    return pairs[:, :size]


@compiled
def first_tree(cost: FloatArray, a: IntArray, b: IntArray, price: FloatArray, order: IntArray) -> Tree:
    """A tree whose flows have the masses `a (n,)` and `b (m,)`; rows choose in this order, at these prices.

    Examples
    --------
    >>> cost, masses = np.array([[0.0, 1.0], [1.0, 5.0]]), (np.array([2, 1]), np.array([1, 2]))
    >>> tree = first_tree(cost, *masses, np.zeros(2), np.array([0, 1]))
    >>> tree.nodes[:3, PARENT].tolist(), tree.nodes[:3, FLOW].tolist()
    ([3, 3, 0], [1, 1, 1])
    """
    n, m = cost.shape
    size, root, pairs = n + m, n + m - 1, cheapest_pairs(cost, a, b, price, order)
    # The ends of pair k are 2 k and 2 k + 1; those at a node are a chain.
    head, chain = np.full(size, -1), np.empty(2 * root, dtype=np.int64)
    for k in range(root):
        i, j = pairs[0, k], pairs[1, k] + n
        chain[2 * k], head[i] = head[i], 2 * k
        chain[2 * k + 1], head[j] = head[j], 2 * k + 1
    nodes, potential = np.full((size, 6), -1), np.zeros(size)
    nodes[root, FLOW], nodes[root, _DEPTH] = 0, 0
    stack, waiting = np.empty(size, dtype=np.int64), 1
    stack[0] = root
    while waiting > 0:
        waiting -= 1
        node = stack[waiting]
        end = head[node]
        while end != -1:
            other = pairs[0, end // 2] if end % 2 else pairs[1, end // 2] + n
            if nodes[other, PARENT] == -1 and other != root:
                _link(nodes, other, node, pairs[2, end // 2])
                stack[waiting] = other
                waiting += 1
            end = chain[end]
    _settle(nodes, potential, cost, stack)
    return Tree(nodes, potential)


@compiled
def rooted(nodes: IntArray, cost: FloatArray) -> Tree:
    """A tree of which only parents and flows are known: that of the last node is -1."""
    size = nodes.shape[0]
    potential, stack = np.zeros(size), np.empty(size, dtype=np.int64)
    nodes[:, _FIRST] = -1
    nodes[size - 1, FLOW], nodes[size - 1, _DEPTH] = 0, 0
    for node in range(size - 1):
        _link(nodes, node, nodes[node, PARENT], nodes[node, FLOW])
    _settle(nodes, potential, cost, stack)
    return Tree(nodes, potential)


@compiled
def _leaving(nodes: IntArray, n: int, i: int, j: int) -> tuple[int, int, int, bool]:
    """Where the cycle of a pair closes, the node whose pair runs empty, its flow, and whether i is below it."""
    row, column = i, j
    least_i, least_j, node_i, node_j = _MOST, _MOST, -1, -1
    while row != column:
        if nodes[row, _DEPTH] >= nodes[column, _DEPTH]:
            if row < n and nodes[row, FLOW] < least_i:
                least_i, node_i = nodes[row, FLOW], row
            row = nodes[row, PARENT]
        else:
            if column >= n and nodes[column, FLOW] <= least_j:
                least_j, node_j = nodes[column, FLOW], column
            column = nodes[column, PARENT]
    # Of several the last one round the cycle leaves: so trees stay strongly feasible.
    return (row, node_j, least_j, False) if least_j <= least_i else (row, node_i, least_i, True)


@compiled
def _exchange(
    nodes: IntArray, potential: FloatArray, n: int, i: int, j: int, gain: float, stack: IntArray
) -> None:
    """Bring in the pair of row i and the node j of a column, by which the row gains so much."""
    join, leaving, moved, is_row_below = _leaving(nodes, n, i, j)
    node = i
    while node != join:
        nodes[node, FLOW] += -moved if node < n else moved
        node = nodes[node, PARENT]
    node = j
    while node != join:
        nodes[node, FLOW] += moved if node < n else -moved
        node = nodes[node, PARENT]
    top, parent = (i, j) if is_row_below else (j, i)
    # What was above the pair's end hangs below it now, down to the pair that leaves.
    node, flow = top, moved
    while True:
        above, carried = nodes[node, PARENT], nodes[node, FLOW]
        _unlink(nodes, node)
        _link(nodes, node, parent, flow)
        if node == leaving:
            break
        node, parent, flow = above, node, carried
    _shift(nodes, potential, top, -gain if is_row_below else gain, stack)


@compiled
def _extent(numbers: FloatArray) -> float:
    """Written out: to load numba's own minimum takes longer than all that a comparison loads besides."""
    low = high = numbers[0]
    for number in numbers:
        low, high = min(low, number), max(high, number)
    extent: float = high - low
    return extent


@compiled
def improve(cost: FloatArray, tree: Tree, state: IntArray, pivots: int) -> bool:
    """Rows take turns to bring in the pair that they would gain most by; False if `pivots` were not enough.

    `state` is the row whose turn it is, how many rows in succession gained nothing, and how many rows on the
    next one is: without a common divisor with n. Potentials are worked out anew before the last round, so that
    rounding does not add up.

    Examples
    --------
    >>> cost, ones = np.array([[1.0, 2.0], [0.0, 5.0]]), np.ones(2, dtype=np.int64)
    >>> tree = first_tree(cost, ones, ones, np.zeros(2), np.arange(2))
    >>> improve(cost, tree, np.array([0, 0, 1]), 10), tree.nodes[:2, PARENT].tolist()
    (True, [3, 3])
    """
    n = cost.shape[0]
    stack = np.empty(tree.potential.size, dtype=np.int64)
    nodes, potential = tree.nodes, tree.potential
    i, idle, price = state[0], state[1], potential[n:]
    tolerance, is_fresh = 0.0, False
    while idle < n or not is_fresh:
        if idle >= n:
            _settle(nodes, potential, cost, stack)
            is_fresh, idle = True, 0
        if i == 0 or tolerance == 0.0:
            tolerance = _ROUNDING * _extent(potential)
        least = _least(cost[i], price)
        if least < potential[i] - tolerance:
            if pivots == 0:
                break
            column = n + _cheapest(cost[i], price, least)
            _exchange(nodes, potential, n, i, column, potential[i] - least, stack)
            is_fresh = False
            pivots -= 1
            idle = 0
        else:
            idle += 1
        i = (i + state[2]) % n
    state[0], state[1] = i, idle
    return is_fresh and idle >= n
