"""Clouds with ties: the answer depends on the points and not on the order of their rows."""

from __future__ import annotations

from fractions import Fraction

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from helpers import unit_rows

import orthoslice as osl

COSTS = ["exact", "pooled", "independent", "paper_pooled"]
AXES = np.concatenate([np.eye(3), -np.eye(3)])


def grid(rng, n, dim=3, side=3):
    """Points of a small integer grid with both signs of zero: most projections on an axis are tied."""
    points = rng.integers(0, side, size=(n, dim)).astype(np.float64)
    return np.where((points == 0) & (rng.random((n, dim)) < 0.5), -0.0, points)


def distance(name, x, y, p=2, **options):
    if name == "sliced":
        return osl.sliced_wasserstein(x, y, p, rng=0, **options)
    return osl.projected_wasserstein(x, y, p, rng=0, cost=name, **options)


def monotone_pairs(x, y, theta, x_weights, y_weights):
    """Pairs of rows and masses of the coupling in order of (projection, coordinates), by exact fractions."""
    sides = []
    for points, weights in ((x, x_weights), (y, y_weights)):
        keys = [(sum(Fraction(a) * Fraction(b) for a, b in zip(q, theta, strict=True)), *q) for q in points]
        order = sorted(range(len(points)), key=lambda i, keys=keys: keys[i])
        sides.append([[i, Fraction(weights[i])] for i in order])
    pairs = []
    while sides[0]:
        (i, a), (j, b) = sides[0][0], sides[1][0]
        mass = min(a, b)
        pairs.append((i, j, mass))
        for side in sides:
            side[0][1] -= mass
            if side[0][1] == 0:
                side.pop(0)
    return pairs


def dyadic_weights(rng, n, total=64):
    """Weights whose sums are exact in every type."""
    return (rng.multinomial(total - n, np.full(n, 1 / n)) + 1) / total


@pytest.mark.parametrize("cost", COSTS)
@pytest.mark.parametrize("p", [1, 2])
def test_a_cloud_has_distance_zero_from_itself_permuted(backend, rng, cost, p):
    x = grid(rng, 12)
    args = [backend.asarray(c) for c in (x, rng.permutation(x))]
    # Given rows are one block, which can price its own couplings in the paper's way only.
    rows = [{"n_directions": 12, "directions": "iid"}]
    rows += [{"directions": backend.asarray(AXES)}] if cost != "pooled" else []
    for options in rows:
        est = distance(cost, *args, p, **options)
        assert float(est.value) == 0
        assert float(est.distance) == 0


@pytest.mark.thin(pairs=True)
@pytest.mark.parametrize("sizes", [(12, 12), (12, 9)])
@pytest.mark.parametrize("cost", ["exact", "independent", "paper_pooled"])
@pytest.mark.parametrize("given", [True, False])
def test_order_of_rows_does_not_matter(backend, rng, sizes, cost, given):
    """To the last digit, since both ways are the same computation; the other cloud shows that it can differ."""
    x, y = (grid(rng, n) for n in sizes)
    options = {"directions": backend.asarray(AXES)} if given else {"n_directions": 12, "directions": "iid"}
    variants = [(x, y), (rng.permutation(x), y), (x, rng.permutation(y)), (x, rng.permutation(y) + 1)]
    scores = [distance(cost, *map(backend.asarray, v), 1, **options).scores for v in variants]
    first, second, third, other = (backend.numpy(s) for s in scores)
    np.testing.assert_array_equal(first, second)
    np.testing.assert_array_equal(first, third)
    assert not np.array_equal(first, other)


def test_order_of_rows_does_not_matter_in_batches_and_under_jit(rng):
    x, y = np.stack([grid(rng, 20) for _ in range(3)]), grid(rng, 15)
    shuffled = np.stack([rng.permutation(c) for c in x])
    together = osl.projected_wasserstein(x, y, directions=AXES, rng=0).value
    np.testing.assert_array_equal(
        osl.projected_wasserstein(shuffled, y, directions=AXES, rng=0).value, together
    )
    alone = [float(osl.projected_wasserstein(c, y, directions=AXES, rng=0).value) for c in x]
    np.testing.assert_allclose(together, alone, rtol=1e-14)
    compiled = jax.jit(lambda a, b, t: osl.projected_wasserstein(a, b, directions=t, rng=0).value)
    axes = jnp.asarray(AXES)
    assert compiled(jnp.asarray(x), jnp.asarray(shuffled), axes).tolist() == [0, 0, 0]
    np.testing.assert_allclose(compiled(jnp.asarray(x), jnp.asarray(y), axes), together, rtol=1e-5)


def test_weighted_ties(backend, rng):
    """Weights travel with their points."""
    x, y = grid(rng, 12), grid(rng, 9)
    w, v = dyadic_weights(rng, 12), dyadic_weights(rng, 9)
    options = {"directions": AXES, "y_weights": v}
    order = rng.permutation(12)
    values = [
        float(
            osl.projected_wasserstein(
                backend.asarray(a),
                backend.asarray(y),
                rng=0,
                x_weights=backend.asarray(b),
                **{name: backend.asarray(o) for name, o in options.items()},
            ).value
        )
        for a, b in ((x, w), (x[order], w[order]), (x[order], w))
    ]
    np.testing.assert_allclose(values[1], values[0], **backend.tolerance(12))
    assert abs(values[2] - values[0]) > 1e-3


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("sizes", [(6, 6), (8, 6), (5, 7)])
@pytest.mark.parametrize("theta", [(1.0, 0.0, 0.0), (0.0, -1.0, 0.0), (0.0, 0.0, 1.0)])
def test_tied_points_are_taken_in_lexicographic_order(rng, weighted, sizes, theta):
    """Against sorting by (projection, coordinates) and merging by exact fractions."""
    x, y = (grid(rng, n) for n in sizes)
    w, v = (dyadic_weights(rng, n) if weighted else [Fraction(1, n)] * n for n in sizes)
    pairs = monotone_pairs(x, y, theta, w, v)
    given = {"x_weights": w, "y_weights": v} if weighted else {}
    coupling = osl.induced_coupling(x, y, np.array(theta), **given)
    plan, expected = coupling.to_dense(), np.zeros(sizes)
    for i, j, mass in pairs:
        expected[i, j] += float(mass)
    # Copies of a point cannot be told apart, so plans are compared by points.
    same_x, same_y = ((c[:, None] == c).all(-1).astype(float) for c in (x, y))
    np.testing.assert_allclose(same_x @ plan @ same_y, same_x @ expected @ same_y, atol=1e-14)
    for p in (1, 2):
        cost = sum(float(m) * np.linalg.norm(x[i] - y[j]) ** p for i, j, m in pairs)
        est = osl.projected_wasserstein(x, y, p, directions=np.array([theta]), **given)
        np.testing.assert_allclose([est.value, coupling.cost(p)], cost, rtol=1e-13)


def test_index_order_would_give_another_answer():
    """A control: where all projections tie, matching rows as they come costs more than nothing."""
    x = np.array([[0.0, 0.0], [0.0, 1.0], [0.0, 2.0]])
    coupling = osl.induced_coupling(x, x[::-1].copy(), np.array([1.0, 0.0]))
    assert [int(i) for i in coupling.ix[np.argsort(coupling.iy)]] == [2, 1, 0]
    assert coupling.cost(1) == 0
    assert np.abs(x - x[::-1]).sum() > 0


@pytest.mark.thin(pairs=True)
@pytest.mark.parametrize("name", ["sliced", "exact"])
@pytest.mark.parametrize("directions", ["axes", "slanted"])
@pytest.mark.parametrize("p", [1, 2.5])
def test_a_point_is_as_good_as_two_copies_of_half_its_weight(backend, rng, name, directions, p):
    x, y = grid(rng, 7, side=9), grid(rng, 5, side=9) + 0.5
    w, v = dyadic_weights(rng, 7), dyadic_weights(rng, 5)
    theta = AXES if directions == "axes" else unit_rows(rng, 6, 3)

    def value(x, w, y, v):
        x, w, y, v, rows = (backend.asarray(a) for a in (x, w, y, v, theta))
        return float(distance(name, x, y, p, x_weights=w, y_weights=v, directions=rows).value)

    def halved(c, w, kept):
        return np.concatenate([c, c[kept:]]), np.concatenate([w[:kept], w[kept:] / 2, w[kept:] / 2])

    whole = value(x, w, y, v)
    np.testing.assert_allclose(value(*halved(x, w, 4), y, v), whole, **backend.tolerance(12))
    np.testing.assert_allclose(value(*halved(x, w, 0), *halved(y, v, 2)), whole, **backend.tolerance(12))
    assert abs(value(x, w[::-1].copy(), y, v) - whole) > 1e-3


@pytest.mark.parametrize("name", ["sliced", "exact"])
def test_copies_of_all_points_change_nothing_without_weights(backend, rng, name):
    x, y, theta = grid(rng, 8), grid(rng, 6), unit_rows(rng, 5, 3)
    x, y, theta, xx = (backend.asarray(a) for a in (x, y, theta, np.repeat(x, 3, axis=0)))
    once, thrice = (float(distance(name, c, y, 2, directions=theta).value) for c in (x, xx))
    np.testing.assert_allclose(thrice, once, **backend.tolerance(24))


def value_and_distance(name, p, x, y, x_weights=None, y_weights=None):
    options = {"directions": osl.directions.Orthogonal(block_size=2), "n_directions": 8}
    est = distance(name, x, y, p, x_weights=x_weights, y_weights=y_weights, **options)
    return est.value, est.distance


def check_zero_in_torch(name, p, *arrays):
    leaves = [torch.tensor(a, requires_grad=True) for a in arrays]
    for answer in value_and_distance(name, p, *leaves):
        assert answer.item() == 0
        for leaf, gradient in zip(leaves, torch.autograd.grad(answer, leaves, retain_graph=True), strict=True):
            np.testing.assert_array_equal(gradient, np.zeros(leaf.shape))


def check_zero_in_jax(name, p, *arrays):
    answers, pull = jax.vjp(lambda *a: value_and_distance(name, p, *a), *map(jnp.asarray, arrays))
    assert [float(a) for a in answers] == [0, 0]
    for cotangents in ((1.0, 0.0), (0.0, 1.0)):
        for array, gradient in zip(arrays, pull(tuple(map(jnp.float32, cotangents))), strict=True):
            np.testing.assert_array_equal(gradient, np.zeros(array.shape))


@pytest.mark.thin(pairs=True)
@pytest.mark.parametrize("check", [check_zero_in_torch, check_zero_in_jax])
@pytest.mark.parametrize("name", ["sliced", *COSTS])
@pytest.mark.parametrize("p", [1, 1.5, 2, 3])
def test_equal_clouds_have_value_and_gradient_zero(rng, check, name, p):
    points = np.concatenate([rng.normal(size=(4, 3)), grid(rng, 3)])
    check(name, p, points, points)


@pytest.mark.thin(pairs=True)
@pytest.mark.parametrize("check", [check_zero_in_torch, check_zero_in_jax])
@pytest.mark.parametrize("name", ["sliced", "exact"])
@pytest.mark.parametrize("p", [1, 2])
def test_equal_weighted_clouds_have_value_and_gradient_zero(rng, check, name, p):
    """By points and by weights: moving mass either way costs something, so the slopes on both sides cancel."""
    points, weights = rng.normal(size=(5, 3)), dyadic_weights(rng, 5)
    check(name, p, points, points, weights, weights)
