"""Couplings cost what they say, and bounds on W hold."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import ot
import pytest
from helpers import FULL, Backend, unit_rows, weights

import orthoslice as osl

SIZES = range(2, 201) if FULL else [*range(2, 24), 31, 64, 97, 150, 200]


def exact_wasserstein(a: np.ndarray, b: np.ndarray, cost: np.ndarray) -> float:
    return float(ot.emd2(a, b, cost, numItermax=10**6))


@pytest.mark.parametrize("n", SIZES)
def test_coupling_costs_and_bounds(n: int) -> None:
    """For every n: cost = <plan, cost matrix>, marginals are the weights, lower <= W <= upper."""
    rng = np.random.default_rng(n)
    for m in (n, max(1, 2 * n // 3)):
        dim = int(rng.integers(1, 6))
        x, y = rng.normal(size=(n, dim)), rng.normal(size=(m, dim)) + 0.2
        for p in (1, 2, 3):
            weighted = (n + m + p) % 2 == 0
            a, b = (weights(rng, n), weights(rng, m)) if weighted else (np.full(n, 1 / n), np.full(m, 1 / m))
            options = {"x_weights": a, "y_weights": b} if weighted else {}
            cost = ot.dist(x, y, metric="euclidean") ** p
            bounds = osl.wasserstein_bounds(x, y, p, rng=n, **options)
            plan = bounds.coupling.to_dense()
            np.testing.assert_allclose(plan.sum(axis=1), a, rtol=1e-12)
            np.testing.assert_allclose(plan.sum(axis=0), b, rtol=1e-12)
            assert bounds.coupling.cost(p) == pytest.approx((plan * cost).sum(), rel=1e-12)
            # Weights are rounded, and a p-th root makes much of little mass.
            slack = 1e-2 if weighted else 1e-9
            assert bounds.coupling.cost(p) < bounds.upper**p < bounds.coupling.cost(p) * (1 + slack) + 1e-13
            exact = exact_wasserstein(a, b, cost) ** (1 / p)
            # The solver rounds too: it is only known to a few units of its own accuracy.
            assert bounds.lower <= exact * (1 + 1e-12)
            assert exact <= bounds.upper * (1 + 1e-12)


@pytest.mark.parametrize("directions", ["orthogonal", "iid", "hadamard"])
@pytest.mark.parametrize("p", [1, 2, 3.5])
def test_bounds_with_every_sampler(rng: np.random.Generator, directions: str, p: float) -> None:
    """A padded dimension (6 in 8) must not turn the sliced value into a bound that is too high."""
    for shift in (0.0, 3.0):
        x, y = rng.normal(size=(12, 6)), rng.normal(size=(12, 6)) * 0.1 + shift
        exact = exact_wasserstein(
            np.full(12, 1 / 12), np.full(12, 1 / 12), ot.dist(x, y, metric="euclidean") ** p
        )
        bounds = osl.wasserstein_bounds(x, y, p, directions=directions, rng=0)
        assert bounds.lower <= exact ** (1 / p) <= bounds.upper
        if shift:
            assert bounds.lower > 0.9 * bounds.upper, "far apart, the bounds are close"


def test_block_bound_is_better_than_single_directions(rng: np.random.Generator) -> None:
    x, y = rng.normal(size=(50, 8)), rng.normal(size=(50, 8))
    block = osl.wasserstein_bounds(x, y, rng=0, directions="orthogonal", n_directions=64)
    single = osl.wasserstein_bounds(x, y, rng=0, directions="iid", n_directions=64)
    assert block.lower > 1.2 * single.lower


def test_bounds_meet_where_the_distance_is_known(rng: np.random.Generator) -> None:
    x = rng.normal(size=(30, 4))
    same = osl.wasserstein_bounds(x, x[::-1].copy(), rng=0)
    assert (same.lower, same.upper) == (0, 0)
    shift = np.array([3.0, 0.0, 4.0, 0.0])
    moved = osl.wasserstein_bounds(x, x + shift, rng=0)
    assert moved.lower <= 5 <= moved.upper
    assert moved.upper - moved.lower < 1e-10
    far = osl.wasserstein_bounds(x + 1e8, x + 1e8 + shift, rng=0)
    assert far.lower <= 5 + 2e-8
    assert far.upper >= 5 - 2e-8
    assert far.upper - far.lower < 1e-5
    huge = osl.wasserstein_bounds(1e200 * x, 1e200 * (x + shift), rng=0)
    assert huge.lower == pytest.approx(5e200, rel=1e-9)


def test_bounds_survive_rounding(rng: np.random.Generator) -> None:
    """W is 0 or known exactly, far from the origin and with weights that do not round alike."""
    for offset in (0.0, 1e3, 1e6):
        x = rng.normal(size=(2000, 2)) + offset
        twice = rng.permutation(np.repeat(x, 2, axis=0))
        assert osl.wasserstein_bounds(x, twice, rng=0).lower == 0
    for p in (1, 2, 3):
        for _ in range(30):
            x, w = rng.normal(size=(7, 2)), weights(rng, 7)
            bounds = osl.wasserstein_bounds(
                x, np.repeat(x, 2, axis=0), p, x_weights=w, y_weights=np.repeat(w / 2, 2), rng=0
            )
            assert bounds.lower == 0
            assert bounds.upper >= 0
    # Two sites, mass moved over distance 1000: W_p^p is the difference of exact fractions times 1000^p.
    for _ in range(30):
        a, b = (Fraction(float(v)) for v in rng.random(2))
        sites = np.array([[0.0], [1000.0]])
        pairs = [np.array([float(v), float(1 - v)]) for v in (a, b)]
        exact = [Fraction(q[0]) / (Fraction(q[0]) + Fraction(q[1])) for q in pairs]
        bounds = osl.wasserstein_bounds(sites, sites, 2, x_weights=pairs[0], y_weights=pairs[1], rng=0)
        assert Fraction(bounds.lower) ** 2 <= abs(exact[0] - exact[1]) * 10**6 <= Fraction(bounds.upper) ** 2


def test_induced_coupling_on_every_backend(backend: Backend, rng: np.random.Generator) -> None:
    x, y, theta = rng.normal(size=(7, 3)), rng.normal(size=(5, 3)), unit_rows(rng, 1, 3)[0]
    a, b = weights(rng, 7), weights(rng, 5)
    reference = osl.induced_coupling(x, y, theta, x_weights=a, y_weights=b)
    ours = osl.induced_coupling(
        *(backend.asarray(v) for v in (x, y, theta)), x_weights=backend.asarray(a), y_weights=backend.asarray(b)
    )
    np.testing.assert_allclose(ours.to_dense(), reference.to_dense(), atol=1e-7)
    np.testing.assert_allclose(backend.numpy(ours.cost(1)), reference.cost(1), **backend.tolerance(12))
    assert "7 with 5" in repr(ours)


def test_coupling_cost_is_differentiable() -> None:
    torch = pytest.importorskip("torch")
    x = torch.tensor([[0.0, 0.0], [1.0, 0.0]], dtype=torch.float64, requires_grad=True)
    y = torch.tensor([[0.0, 0.0], [1.0, 2.0]], dtype=torch.float64)
    coupling = osl.induced_coupling(x, y, torch.tensor([1.0, 0.0], dtype=torch.float64))
    coupling.cost(1).backward()
    assert x.grad.tolist() == [[0.0, 0.0], [0.0, -0.5]]
