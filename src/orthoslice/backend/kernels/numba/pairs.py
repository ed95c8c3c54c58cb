"""What the pairs of couplings cost in full space, one pair after the other: pairs x dim is never held.

The plain reference is that of `price_in_space` in `orthoslice.costs.space`. Differences are taken in
float64, before anything is squared: points close to each other lose no digits, and equal ones cost exactly 0.
"""

from __future__ import annotations

import numpy as np

from orthoslice.backend.array_types import Floats, HostArray, Indices
from orthoslice.backend.kernels.numba._compile import compiled, summing

# Points and slices of a matching that are worked on at a time: they stay in a core's nearest cache. In fewer
# dimensions it takes longer to put them together than to fetch them. Measured on Zen 4.
_TILE = 16
_FEWEST_TILED = 32


@summing
def full_square(x: Floats, y: Floats, i: int, j: int) -> float:
    """|x[i] - y[j]|^2."""
    total = 0.0
    for k in range(x.shape[1]):
        difference = np.float64(x[i, k]) - np.float64(y[j, k])
        total += difference * difference
    return total


@compiled
def full_power(square: float, p: float) -> float:
    """square^(p/2), without a general power where that can be helped: it takes longer than all the rest."""
    if p == 2.0:
        return square
    if p == 4.0:
        return square * square
    if p == 1.0:
        return float(np.sqrt(square))
    if p == 3.0:
        return float(square * np.sqrt(square))
    return float(square ** (p / 2.0))


@compiled
def _mass(mass: Floats, slice_: int, pair: int) -> float:
    if mass.ndim == 1:
        return float(mass[pair])
    return float(mass[slice_, pair])


@compiled
def pair_costs(
    x: Floats, y: Floats, ix: Indices, iy: Indices, mass: Floats, p: float, out_scores: Floats
) -> None:
    """Scores of couplings: `sum_k mass[k] |x[ix[k]] - y[iy[k]]|^p` for every slice, summed in float64.

    Parameters
    ----------
    x, y
        Clouds `(n, dim)` and `(m, dim)`.
    ix, iy
        Which points make a pair, `(slices, pairs)`.
    mass
        What each pair carries, `(pairs,)` or `(slices, pairs)`.
    p
        The power.
    out_scores
        `(slices,)`; overwritten.

    Examples
    --------
    >>> x, y = np.array([[0.0, 0.0], [3.0, 0.0]]), np.array([[3.0, 4.0], [0.0, 1.0]])
    >>> scores = np.empty(1)
    >>> pair_costs(x, y, np.array([[0, 1]]), np.array([[1, 0]]), np.array([0.5, 0.5]), 1.0, scores)
    >>> scores.tolist()
    [2.5]
    """
    for s in range(ix.shape[0]):
        total = 0.0
        for k in range(ix.shape[1]):
            total += _mass(mass, s, k) * full_power(full_square(x, y, ix[s, k], iy[s, k]), p)
        out_scores[s] = total


@compiled
def match_costs(
    x: Floats, y: Floats, ix: Indices, iy: Indices, mass: float, p: float, out_scores: Floats
) -> None:
    """As :func:`pair_costs` where every point is in one pair of each slice, and all pairs carry the same mass.

    Points of x are taken in the order in which they lie in memory, a few at a time for several slices: these
    are made float64 once, and only those of y are fetched from anywhere.
    """
    slices, n = ix.shape
    partner = np.empty((min(slices, _TILE), n), dtype=np.uint32)
    wide = np.empty((_TILE, x.shape[1]))
    out_scores[:] = 0.0
    for first_slice in range(0, slices, _TILE):
        some = range(first_slice, min(first_slice + _TILE, slices))
        for s in some:
            for k in range(n):
                partner[s - first_slice, ix[s, k]] = iy[s, k]
        for first in range(0, n, _TILE):
            stop = min(first + _TILE, n)
            for i in range(first, stop):
                for d in range(x.shape[1]):
                    wide[i - first, d] = x[i, d]
            for s in some:
                total = 0.0
                for i in range(first, stop):
                    total += full_power(full_square(wide, y, i - first, partner[s - first_slice, i]), p)
                out_scores[s] += mass * total


@compiled
def pair_gradients(
    x: Floats,
    y: Floats,
    ix: Indices,
    iy: Indices,
    mass: Floats,
    p: float,
    out_scores: Floats,
    gx: Floats,
    gy: Floats,
) -> None:
    """As :func:`pair_costs`; also adds the gradients of the summed scores to `gx (n, dim)` and `gy (m, dim)`.

    A pair pulls its points by `mass * p * |d|^(p - 2) * d`, `d` their difference, and not at all where they
    coincide. A gradient without rows is not computed.

    Examples
    --------
    >>> x, y, gx, gy = np.array([[0.0, 2.0]]), np.array([[0.0, 5.0]]), np.zeros((1, 2)), np.zeros((1, 2))
    >>> scores, pair = np.empty(1), np.zeros((1, 1), dtype=np.int64)
    >>> pair_gradients(x, y, pair, pair, np.ones(1), 2.0, scores, gx, gy)
    >>> gx.tolist(), gy.tolist(), scores.tolist()
    ([[0.0, -6.0]], [[0.0, 6.0]], [9.0])
    """
    move_x, move_y = gx.shape[0] > 0, gy.shape[0] > 0
    for s in range(ix.shape[0]):
        total = 0.0
        for k in range(ix.shape[1]):
            i, j, share = ix[s, k], iy[s, k], _mass(mass, s, k)
            square = full_square(x, y, i, j)
            cost = full_power(square, p)
            total += share * cost
            # |d|^(p - 2) has no value where points coincide, and nothing pulls there.
            pull = p * share * (cost / square) if square != 0.0 else 0.0
            if move_x and move_y:
                for d in range(x.shape[1]):
                    step = pull * (np.float64(x[i, d]) - np.float64(y[j, d]))
                    gx[i, d] += step
                    gy[j, d] -= step
            elif move_x:
                for d in range(x.shape[1]):
                    gx[i, d] += pull * (np.float64(x[i, d]) - np.float64(y[j, d]))
            elif move_y:
                for d in range(x.shape[1]):
                    gy[j, d] -= pull * (np.float64(x[i, d]) - np.float64(y[j, d]))
        out_scores[s] = total


def price_pairs(
    x: HostArray,
    y: HostArray,
    ix: HostArray,
    iy: HostArray,
    mass: Floats,
    *,
    p: float,
    wanted: tuple[bool, ...],
) -> tuple[Floats, tuple[Floats, ...]]:
    """Scores `(slices,)` of couplings, and the gradients of their sum by x and by y as far as wanted.

    As :func:`pair_costs` and :func:`pair_gradients`, of arrays in any layout. A single mass stands for all
    pairs of a matching, in which every point is in one pair of each slice.

    Examples
    --------
    >>> x, y, pairs = np.array([[0.0, 2.0]]), np.array([[0.0, 5.0]]), np.zeros((1, 1), dtype=np.int64)
    >>> price_pairs(x, y, pairs, pairs, np.ones(1), p=2, wanted=(False, True))
    (array([9.]), (array([[0., 6.]]),))
    """
    x, y, ix, iy = (np.ascontiguousarray(a) for a in (x, y, ix, iy))
    scores = np.empty(ix.shape[0])
    if mass.size == 1 and x.shape[1] >= _FEWEST_TILED and not any(wanted):
        match_costs(x, y, ix, iy, mass.item(), float(p), scores)
        return scores, ()
    mass = np.full(ix.shape[1], mass.item()) if mass.size == 1 else np.ascontiguousarray(mass)
    if not any(wanted):
        pair_costs(x, y, ix, iy, mass, float(p), scores)
        return scores, ()
    totals = [np.zeros((c.shape[0] if want else 0, x.shape[1])) for c, want in zip((x, y), wanted, strict=True)]
    pair_gradients(x, y, ix, iy, mass, float(p), scores, *totals)
    moved = (total for total, want in zip(totals, wanted, strict=True) if want)
    return scores, tuple(total.astype(x.dtype, copy=False) for total in moved)
