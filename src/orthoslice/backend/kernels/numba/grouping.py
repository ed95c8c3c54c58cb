"""Points in groups of which none is much wider and heavier than the others."""

from __future__ import annotations

import numpy as np

from orthoslice.backend.array_types import FloatArray, IntArray
from orthoslice.backend.kernels.numba._compile import compiled
from orthoslice.backend.kernels.numba.matching import select_least


@compiled
def cut_groups(columns: FloatArray, masses: FloatArray, p: float, size: int) -> tuple[IntArray, IntArray]:
    """The group `(n,)` of every point of `columns (dim, n)`, and what each of `size` groups was cut from.

    Again and again the group with the most mass times spread^p is cut in two halves along its widest
    coordinate, and the upper half is the new group. So far points soon are groups of their own. The first k
    groups are those that k groups would be, if members of later ones go where their group was cut from.

    Examples
    --------
    >>> group, parent = cut_groups(np.array([[0.0, 1.0, 2.0, 50.0]]), np.ones(4), 2.0, 3)
    >>> group.tolist(), parent.tolist()
    ([0, 0, 1, 2], [0, 0, 1])
    """
    n = columns.shape[1]
    order, parent = np.arange(n), np.zeros(size, dtype=np.int64)
    first, stop = np.zeros(size, dtype=np.int64), np.full(size, n)
    weight, axis = np.empty(size), np.zeros(size, dtype=np.int64)
    weight[0], axis[0] = _width(columns, masses, p, order)
    for new in range(1, size):
        old = int(np.argmax(weight[:new]))
        middle = (first[old] + stop[old] + 1) // 2
        select_least(columns[axis[old]], order, first[old], stop[old], middle)
        parent[new], first[new], stop[new], stop[old] = old, middle, stop[old], middle
        for k in (old, new):
            weight[k], axis[k] = _width(columns, masses, p, order[first[k] : stop[k]])
    group = np.empty(n, dtype=np.int64)
    for k in range(size):
        group[order[first[k] : stop[k]]] = k
    return group, parent


@compiled
def _width(columns: FloatArray, masses: FloatArray, p: float, members: IntArray) -> tuple[float, int]:
    """Mass times spread^p of some points, and the coordinate along which they are widest."""
    if members.size < 2:
        return -1.0, 0
    mass, total, most, widest = 0.0, 0.0, -1.0, 0
    for i in members:
        mass += masses[i]
    for k in range(columns.shape[0]):
        column, middle, spread = columns[k], 0.0, 0.0
        for i in members:
            middle += masses[i] * column[i]
        middle /= mass
        for i in members:
            spread += masses[i] * (column[i] - middle) ** 2
        total += spread
        if spread > most:
            most, widest = spread, k
    return mass * (total / mass) ** (p / 2), widest
