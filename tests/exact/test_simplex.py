"""The network simplex method against assignment, linear programming and its own proof, at every degeneracy."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.optimize import linear_sum_assignment, linprog
from scipy.sparse import eye_array, kron, vstack

from orthoslice.backend.kernels.numba import simplex as kernel
from orthoslice.backend.kernels.numba.basis import tree_of
from orthoslice.exact.simplex import Limits, settle

NO_LIMITS = Limits(0.0, math.inf)


def masses(rng, n, total):
    """`n` positive whole numbers with this sum."""
    cuts = np.sort(rng.choice(total - 1, size=n - 1, replace=False)) + 1
    return np.diff(cuts, prepend=0, append=total)


def by_program(cost, a, b):
    """The least cost by SciPy's linear program."""
    n, m = cost.shape
    rows, columns = kron(eye_array(n), np.ones((1, m))), kron(np.ones((1, n)), eye_array(m))
    equations = vstack([rows, columns]).tocsc()
    return linprog(cost.ravel(), A_eq=equations, b_eq=np.concatenate([a, b]), method="highs-ds").fun


def check(cost, a, b):
    """The cost of the coupling, whose masses are right and whose prices prove it."""
    (ix, iy, mass), price, is_done = settle(cost, a, b, NO_LIMITS)
    assert is_done
    assert (mass > 0).all()
    assert (np.bincount(ix, mass, len(a)) == a).all()
    assert (np.bincount(iy, mass, len(b)) == b).all()
    # A vertex of the polytope: no more pairs than equations.
    assert len(mass) < len(a) + len(b)
    value = float(mass @ cost[ix, iy])
    assert math.isclose(value, a @ (cost + price).min(axis=1) - b @ price, rel_tol=1e-11, abs_tol=1e-11)
    return value


@pytest.mark.parametrize("levels", [2, 5, None])
@pytest.mark.parametrize("n", [1, 2, 7, 40])
def test_unit_masses_against_assignment(rng, n, levels):
    """Costs of few levels have ties everywhere, and nearly all pairs of the tree carry nothing."""
    for _ in range(20):
        cost = rng.random((n, n)) if levels is None else rng.integers(levels, size=(n, n)).astype(float)
        ones = np.ones(n, dtype=np.int64)
        assert math.isclose(check(cost, ones, ones), cost[linear_sum_assignment(cost)].sum(), rel_tol=1e-12)


@pytest.mark.parametrize("levels", [2, None])
@pytest.mark.parametrize(("n", "m"), [(1, 5), (5, 1), (6, 9), (9, 6), (12, 12)])
def test_masses_against_a_linear_program(rng, n, m, levels):
    for _ in range(10):
        cost = rng.random((n, m)) if levels is None else rng.integers(levels, size=(n, m)).astype(float)
        a, b = masses(rng, n, 40), masses(rng, m, 40)
        assert math.isclose(check(cost, a, b), by_program(cost, a, b), rel_tol=1e-9, abs_tol=1e-9)


def test_masses_up_to_the_largest_integers(rng):
    a, b = masses(rng, 6, 2**62), masses(rng, 8, 2**62)
    (ix, iy, mass), _, is_done = settle(rng.random((6, 8)), a, b, NO_LIMITS)
    assert is_done
    for index, whole in ((ix, a), (iy, b)):
        moved = [sum(mass[index == k].tolist()) for k in range(len(whole))]
        assert moved == whole.tolist()


def test_trees_stay_strongly_feasible(rng):
    """Pairs without mass lead to the root from rows only: or pivots without mass could go round in circles."""
    cost, ones = rng.integers(3, size=(30, 30)).astype(float), np.ones(30, dtype=np.int64)
    tree = kernel.first_tree(cost, ones, ones, np.zeros(30), np.arange(30))
    state, is_done = np.array([0, 0, 7]), False
    while not is_done:
        empty = np.flatnonzero(tree.nodes[:-1, kernel.FLOW] == 0)
        assert len(empty) == 29
        assert (empty < 30).all()
        is_done = kernel.improve(cost, tree, state, 1)


def test_it_stops_in_time_with_a_coupling(rng, monkeypatch):
    from orthoslice.exact import simplex

    monkeypatch.setattr(simplex, "_PATIENCE", 0)
    cost, ones = rng.random((50, 50)), np.ones(50, dtype=np.int64)
    (ix, iy, mass), price, is_done = settle(cost, ones, ones, Limits(0.0, -math.inf))
    assert not is_done
    assert sorted(ix) == sorted(iy) == list(range(50))
    best = cost[linear_sum_assignment(cost)].sum()
    assert (cost + price).min(axis=1).sum() - price.sum() < best < mass @ cost[ix, iy]


@pytest.mark.parametrize("levels", [2, 5, None])
@pytest.mark.parametrize(("n", "m"), [(1, 5), (5, 1), (12, 9), (9, 30), (30, 30)])
def test_a_coupling_becomes_a_tree_that_costs_no_more(rng, n, m, levels):
    """Any coupling, with cycles and in several parts: the masses stay, and the tree is strongly feasible."""
    for whole in (40, 40, n * m):
        cost = rng.random((n, m)) if levels is None else rng.integers(levels, size=(n, m)).astype(float)
        # Equal masses as well: parts that fit together without a pair between them.
        a, b = (masses(rng, n, whole), masses(rng, m, whole)) if whole == 40 else (np.full(n, m), np.full(m, n))
        flow = np.zeros((n, m), dtype=np.int64)
        for start in (rng.permutation(whole), np.arange(whole)):
            np.add.at(flow, (np.repeat(np.arange(n), a)[start], np.repeat(np.arange(m), b)), 1)
        ix, iy = np.nonzero(flow)
        tree = tree_of(cost, rng.random(m), ix, iy, flow[ix, iy])
        nodes = tree.nodes
        above, carried = nodes[:-1, kernel.PARENT], nodes[:-1, kernel.FLOW]
        below = np.arange(n + m - 1)
        rows, columns = np.where(below < n, below, above), np.where(below < n, above, below) - n
        assert (np.bincount(rows, carried, n) == 2 * a).all()
        assert (np.bincount(columns, carried, m) == 2 * b).all()
        assert (carried >= 0).all()
        assert (below[carried == 0] < n).all()
        # All pairs of the tree are as dear as its potentials say: it spans all nodes, without a cycle.
        u, v = tree.potential[:n], tree.potential[n:]
        assert np.allclose(cost[rows, columns], u[rows] - v[columns], atol=1e-9)
        assert carried @ cost[rows, columns] <= (flow * cost).sum() + 1e-9


def test_a_start_that_is_nearly_right_takes_few_pivots(rng, monkeypatch):
    """From the answer to slightly other costs, ten pivots are enough, and from nothing they are not."""
    from orthoslice.exact import simplex

    cost, a, b = rng.random((60, 60)), masses(rng, 60, 600), masses(rng, 60, 600)
    start = settle(cost + 1e-5 * rng.random((60, 60)), a, b, NO_LIMITS)
    monkeypatch.setattr(simplex, "_PATIENCE", 9 * 120)
    now = Limits(0.0, -math.inf)
    assert settle(cost, a, b, now, start).is_done
    assert not settle(cost, a, b, now).is_done
    # Prices that are wrong take longer, and end at the same cost.
    start = start._replace(price=rng.random(60))
    (ix, iy, mass), _, _ = settle(cost, a, b, NO_LIMITS, start)
    assert math.isclose(mass @ cost[ix, iy], check(cost, a, b), rel_tol=1e-12)
