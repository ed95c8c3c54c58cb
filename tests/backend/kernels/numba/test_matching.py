"""Kernels that make matchings better, against plain NumPy and SciPy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from helpers import both_rows
from scipy.optimize import linear_sum_assignment

import orthoslice as osl
from orthoslice.applications.match import regroup
from orthoslice.applications.match.regroup import MassPairs, Match
from orthoslice.clouds.cloud import Cloud

pytest.importorskip("numba")

SIZES = [1, 2, 3, 7, 64, 100, 257]


def clouds(n: int, ties: bool, dim: int = 2) -> tuple[Cloud, Cloud]:
    rng = np.random.default_rng(n)
    tables = (rng.normal(size=(n, dim)) for _ in range(2))
    return tuple(Cloud(np.round(t) if ties else t) for t in tables)


def permutation(n: int, seed: int) -> np.ndarray:
    return np.random.default_rng(seed).permutation(n)


@pytest.mark.parametrize("ties", [False, True])
@pytest.mark.parametrize("levels", [0, 1, 3, 9])
@pytest.mark.parametrize("n", SIZES)
def test_halves(n: int, levels: int, ties: bool) -> None:
    keys = np.random.default_rng(n).normal(size=(levels, n))
    keys = np.round(keys) if ties else keys
    found, expected = both_rows(regroup.halve, keys, None, kernel="numba")
    np.testing.assert_array_equal(found, expected)
    np.testing.assert_array_equal(np.sort(found), np.arange(n))
    starts = regroup.group_starts(n, levels)
    assert np.ptp(np.diff(starts)) <= 1
    if levels == 1:
        lower, upper = np.split(keys[0, found], [starts[1]])
        assert lower.max(initial=-np.inf) <= upper.min(initial=np.inf)


def test_halves_of_equal_masses_are_halves_of_equal_size() -> None:
    """A number of points that five cuts divide, so that rounding decides nothing."""
    keys = np.random.default_rng(0).normal(size=(5, 96))
    masses = np.full(96, 2**62 // 96)
    masses[0] += 2**62 - masses.sum()
    np.testing.assert_array_equal(regroup.halve(keys, masses), regroup.halve(keys, None))


@pytest.mark.parametrize("p", [1.0, 2.0, 2.5])
@pytest.mark.parametrize("ties", [False, True])
@pytest.mark.parametrize("n", SIZES)
def test_merging(n: int, ties: bool, p: float) -> None:
    x, y = clouds(n, ties)
    match = regroup.make_match(permutation(n, 1), x, y, p)
    other = regroup.make_match(permutation(n, 2), x, y, p)
    merged, expected = both_rows(regroup.merge_matches, match, other.partner, x, y, p, kernel="numba")
    np.testing.assert_allclose(merged.cost, expected.cost, rtol=1e-13)
    np.testing.assert_array_equal(merged.partner, expected.partner)
    check(merged, x, y, p)
    assert merged.cost.sum() <= min(match.cost.sum(), other.cost.sum()) * (1 + 1e-14)
    # Every point keeps one of its two partners.
    assert np.all((merged.partner == match.partner) | (merged.partner == other.partner))


def check(match: Match, x: Cloud, y: Cloud, p: float) -> None:
    """It is a permutation, and costs what it says."""
    np.testing.assert_array_equal(np.sort(match.partner), np.arange(x.n))
    np.testing.assert_allclose(match.cost, regroup.make_match(match.partner, x, y, p).cost, rtol=1e-13)


def test_merging_by_hand() -> None:
    """Two cycles, one cheaper in each; merging picks both cheap sides."""
    line = Cloud(np.arange(6.0)[:, None])
    left = regroup.make_match(np.array([0, 1, 2, 4, 5, 3]), line, line, 2)
    right = np.array([1, 2, 0, 3, 4, 5])
    assert regroup.merge_matches(left, right, line, line, 2.0).partner.tolist() == [0, 1, 2, 3, 4, 5]


@pytest.mark.parametrize("p", [1.0, 2.0, 3.0])
@pytest.mark.parametrize("ties", [False, True])
@pytest.mark.parametrize("n", SIZES)
def test_rematching(n: int, ties: bool, p: float) -> None:
    """Kernel and SciPy find equally cheap ways; groups of two never become dearer."""
    x, y = clouds(n, ties)
    match = regroup.make_match(permutation(n, 1), x, y, p)
    for levels in (0, 2):
        answers = {}
        for name in ("numba", "scipy", "reference"):
            with regroup.rematch.using(name):
                answers[name] = regroup.rematch(match, permutation(n, 3), levels, x, y, p, 1)
            check(answers[name], x, y, p)
        total = {name: answer.cost.sum() for name, answer in answers.items()}
        assert total["numba"] == pytest.approx(total["scipy"], rel=1e-12)
        assert total["numba"] <= total["reference"] * (1 + 1e-12)
        assert total["reference"] <= match.cost.sum()
    if n > 3 and not ties:
        assert total["reference"] < match.cost.sum()


@pytest.mark.parametrize("kind", ["normal", "equal", "few values", "one column for all", "wide"])
@pytest.mark.parametrize("size", [1, 2, 5, 40])
def test_assignments_of_any_costs(kind: str, size: int) -> None:
    from orthoslice.backend.kernels.numba.matching import _assign

    rng = np.random.default_rng(size)
    costs = {
        "normal": rng.normal(size=(size, size)),
        "equal": np.ones((size, size)),
        "few values": rng.integers(0, 3, size=(size, size)).astype(float),
        "one column for all": 1.0 + 9 * (np.arange(size) > 0) + 0.1 * rng.random((size, size)),
        "wide": 10.0 ** rng.uniform(-9, 9, size=(size, size)),
    }[kind]
    column, row, came = (np.empty(size, dtype=np.int64) for _ in range(3))
    u, v, path = (np.empty(size) for _ in range(3))
    _assign(costs, size, column, row, u, v, path, came, np.empty(size, dtype=np.bool_))
    np.testing.assert_array_equal(np.sort(column), np.arange(size))
    best = costs[linear_sum_assignment(costs)].sum()
    assert costs[np.arange(size), column].sum() == pytest.approx(best, rel=1e-12)


@pytest.mark.parametrize("ties", [False, True])
@pytest.mark.parametrize("p", [1.0, 2.0])
def test_recoupling(p: float, ties: bool) -> None:
    """One group finds the optimum; several find something no dearer; masses are kept to the last unit."""
    rng = np.random.default_rng(0)
    x, y = (Cloud(np.round(c.points) if ties else c.points) for c in clouds(60, ties))
    ix, iy = rng.integers(0, 60, 200), rng.integers(0, 60, 200)
    pairs = MassPairs(ix, iy, rng.integers(1, 10**6, 200))

    def price(pairs: Any) -> float:
        return float(pairs.mass @ regroup.pair_costs(x.points[pairs.ix], y.points[pairs.iy], p))

    sums = [np.bincount(i, pairs.mass, 60) for i in (ix, iy)]
    for levels in (0, 3):
        found = regroup.recouple(pairs, rng.permutation(200), levels, x, y, p, 2)
        assert found.mass.min() > 0
        for i, expected in zip((found.ix, found.iy), sums, strict=True):
            np.testing.assert_array_equal(np.bincount(i, found.mass, 60), expected)
        assert price(found) < price(pairs)
        if levels == 0:
            a, b = (s / s.sum() for s in sums)
            exact = osl.wasserstein(x.points, y.points, p, x_weights=a, y_weights=b).value
            assert price(found) / pairs.mass.sum() == pytest.approx(exact, rel=1e-9)
