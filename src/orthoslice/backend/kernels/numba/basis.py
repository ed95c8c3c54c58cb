"""From a coupling and prices to the tree of pairs that the network simplex method goes on with.

Pairs that carry mass may close cycles. Mass goes round each the way that costs less, until a pair runs empty:
what is left is a forest. Its trees are made one by empty pairs, which lead towards the root from rows only, so
that the tree is strongly feasible.
"""

from __future__ import annotations

import numpy as np

from orthoslice.backend.array_types import FloatArray, IntArray
from orthoslice.backend.kernels.numba._compile import compiled
from orthoslice.backend.kernels.numba.simplex import _MOST, FLOW, PARENT, Tree, rooted, row_minima


@compiled
def _turn(nodes: IntArray, node: int) -> None:
    """Make a node the top of its tree."""
    parent, flow = -1, 0
    while node != -1:
        above, carried = nodes[node, PARENT], nodes[node, FLOW]
        nodes[node, PARENT], nodes[node, FLOW] = parent, flow
        node, parent, flow = above, node, carried


@compiled
def _join(nodes: IntArray, cost: FloatArray, i: int, j: int, flow: int) -> None:
    """Add a pair of row i and the node j of a column; where it closes a cycle, a pair of that runs empty."""
    n = cost.shape[0]
    _turn(nodes, i)
    # Round the cycle, pairs below columns carry more where the new pair carries less; those below rows, less.
    node, gain, most, least = j, cost[i, j - n], flow, _MOST
    while nodes[node, PARENT] != -1:
        above = nodes[node, PARENT]
        if node < n:
            gain += cost[node, above - n]
            most = min(most, nodes[node, FLOW])
        else:
            gain -= cost[above, node - n]
            least = min(least, nodes[node, FLOW])
        node = above
    if node == i:
        moved = most if gain > 0.0 else -least
        flow -= moved
        node = j
        while node != i:
            above = nodes[node, PARENT]
            nodes[node, FLOW] += -moved if node < n else moved
            if nodes[node, FLOW] == 0:
                nodes[node, PARENT] = -1
            node = above
    if flow > 0:
        nodes[i, PARENT], nodes[i, FLOW] = j, flow


@compiled
def _top(over: IntArray, part: int) -> int:
    while over[part] != -1:
        part = over[part]
    return part


@compiled
def _span(nodes: IntArray, cost: FloatArray, price: FloatArray) -> None:
    """Join all trees by empty pairs, each from a row to a column of another tree, as cheap as there are."""
    n, m = cost.shape
    size, root = n + m, n + m - 1
    minima, part, over = np.empty(n), np.empty(size, dtype=np.int64), np.full(size, -1)
    row_minima(cost, price, minima)
    for node in range(size):
        top = node
        while nodes[top, PARENT] != -1:
            top = nodes[top, PARENT]
        part[node] = top
    whole, regret = np.empty(m, dtype=np.int64), np.empty(size)
    row, column = np.empty(size, dtype=np.int64), np.empty(size, dtype=np.int64)
    while True:
        for j in range(m):
            whole[j] = _top(over, part[n + j])
        regret[:] = np.inf
        n_open = 0
        for i in range(n):
            own = part[i]
            if over[own] != -1 or own == part[root]:
                continue
            n_open += 1
            costs = cost[i]
            best, at = np.inf, -1
            for j in range(m):
                total = costs[j] + price[j]
                if total < best and whole[j] != own:
                    best, at = total, j
            if best - minima[i] < regret[own]:
                regret[own], row[own], column[own] = best - minima[i], i, n + at
        if n_open == 0:
            break
        for own in range(size):
            if regret[own] < np.inf and _top(over, part[column[own]]) != own:
                _turn(nodes, row[own])
                nodes[row[own], PARENT], nodes[row[own], FLOW] = column[own], 0
                over[own] = part[column[own]]


@compiled
def tree_of(cost: FloatArray, price: FloatArray, ix: IntArray, iy: IntArray, mass: IntArray) -> Tree:
    """A tree for a coupling of all masses, or a cheaper one of the same; prices say which pairs are near.

    Examples
    --------
    >>> cost, ends = np.array([[0.0, 1.0], [1.0, 5.0]]), np.array([0, 1])
    >>> tree = tree_of(cost, np.zeros(2), ends, ends, np.array([1, 1]))
    >>> tree.nodes[:3, PARENT].tolist(), tree.nodes[:3, FLOW].tolist()
    ([3, 3, 0], [0, 1, 1])
    """
    n, m = cost.shape
    nodes = np.full((n + m, 6), -1)
    nodes[:, FLOW] = 0
    for k in range(ix.size):
        if mass[k] > 0:
            _join(nodes, cost, ix[k], n + iy[k], mass[k])
    _turn(nodes, n + m - 1)
    _span(nodes, cost, price)
    return rooted(nodes, cost)
