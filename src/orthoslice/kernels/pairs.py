"""What the pairs of couplings cost in full space, one pair after the other: nothing of size pairs x dim is held.

The plain reference is `orthoslice.pricing.price_in_space`. Differences are taken before anything is squared, in
float64, so that points close to each other lose no digits and equal ones cost exactly nothing.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from orthoslice.kernels._compile import Function, compiled


def _summing(function: Function) -> Function:
    """Compile a loop whose sum may be taken in any order: only then is it vector code."""
    kernel = compiled(function)
    getattr(kernel, "targetoptions", {})["fastmath"] = {"reassoc", "contract"}
    return kernel


@_summing
def _square(x: Any, y: Any, i: int, j: int) -> float:
    """|x[i] - y[j]|^2."""
    total = 0.0
    for k in range(x.shape[1]):
        difference = np.float64(x[i, k]) - np.float64(y[j, k])
        total += difference * difference
    return total


@compiled
def _mass(mass: Any, slice_: int, pair: int) -> float:
    if mass.ndim == 1:
        return float(mass[pair])
    return float(mass[slice_, pair])


@compiled
def pair_costs(x: Any, y: Any, ix: Any, iy: Any, mass: Any, p: float, out_scores: Any) -> None:
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
            cost = _square(x, y, ix[s, k], iy[s, k])
            if p == 1.0:
                cost = np.sqrt(cost)
            elif p != 2.0:
                cost = cost ** (p / 2.0)
            total += _mass(mass, s, k) * cost
        out_scores[s] = total


@compiled
def pair_gradients(
    x: Any, y: Any, ix: Any, iy: Any, mass: Any, p: float, out_scores: Any, gx: Any, gy: Any
) -> None:
    """As :func:`pair_costs`; also adds the gradients of the summed scores to `gx (n, dim)` and `gy (m, dim)`.

    A pair pulls its points by `mass * p * |d|^(p - 2) * d`, `d` their difference, and not at all where they
    coincide. A gradient without rows is not wanted.

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
            cost = _square(x, y, i, j)
            pull = 2.0 * share
            if p != 2.0:
                # |d|^(p - 2) has no value where points coincide, and nothing pulls there.
                square = cost
                cost = np.sqrt(square) if p == 1.0 else square ** (p / 2.0)
                pull = p * share * cost / square if square != 0.0 else 0.0
            total += share * cost
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
