"""Two points against two points: the closed form against the sweep, a convex hull and long runs."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy.spatial import ConvexHull

from orthoslice.exact import sliced_plane, sliced_two_points

A, B, D = np.array([1.0, 2.0, -1.0]), np.array([0.5, -1.0, 0.25]), np.array([0.3, 0.1, -0.7])
ZERO = np.zeros(3)
# (delta, a, b) in positions where arcs of the formula fall together, shrink or vanish.
POSITIONS = {
    "general": (D, A, B),
    "a = 0": (D, ZERO, B),
    "b = 0": (D, A, ZERO),
    "a = b = 0": (D, ZERO, ZERO),
    "a parallel b": (D, A, 2 * A),
    "a = b": (D, A, A),
    "equal means": (ZERO, A, B),
    "equal means, a parallel b": (ZERO, A, 3 * A),
    "delta parallel a": (0.25 * A, A, B),
    "delta + b/2 parallel a": (1.75 * A - B / 2, A, B),
    "delta - a/2 parallel b": (A / 2 - 0.25 * B, A, B),
    "one point shared": (-(A + B) / 2, A, B),
    "other point shared": (-(A - B) / 2, A, B),
    "coplanar": (0.25 * A + B, A, B),
    "collinear": (0.25 * A, A, 2 * A),
}


def clouds(delta, a, b):
    return np.stack([delta + a / 2, delta - a / 2]), np.stack([b / 2, -b / 2])


def long_run(x, y, p, rng, n_directions=10**6):
    theta = rng.normal(size=(n_directions, x.shape[1]))
    theta /= np.linalg.norm(theta, axis=1, keepdims=True)
    score = (np.abs(np.sort(theta @ x.T) - np.sort(theta @ y.T)) ** p).mean(axis=1)
    return score.mean(), score.std() / math.sqrt(n_directions)


def hull_value(x, y):
    """SW_1 in three dimensions through the mean width of the hull, whose edges Qhull finds."""
    delta, a, b = x.mean(axis=0) - y.mean(axis=0), x[0] - x[1], y[0] - y[1]
    signs = np.array(np.meshgrid([-1, 1], [-1, 1], [-1, 1])).reshape(3, -1).T
    hull = ConvexHull(np.concatenate([signs * [1, 0.5, 0.5] @ np.stack([delta, a, b]), [a, -a, b, -b]]))
    width = 0.0
    for facet, neighbours in enumerate(hull.neighbors):
        for position, neighbour in enumerate(neighbours):
            u, w = np.delete(hull.simplices[facet], position)
            normal, other = hull.equations[facet, :3], hull.equations[neighbour, :3]
            angle = math.atan2(np.linalg.norm(np.cross(normal, other)), normal @ other)
            # Every edge is met from both of its facets.
            width += np.linalg.norm(hull.points[u] - hull.points[w]) * angle / 2 / (4 * math.pi)
    return width / 2 - (np.linalg.norm(a) + np.linalg.norm(b)) / 4


coordinates = st.integers(-3, 3).map(float)
pairs_in_plane = arrays(float, (2, 2), elements=coordinates)


@settings(deadline=None, max_examples=150)
@given(x=pairs_in_plane, y=pairs_in_plane, p=st.sampled_from([1, 2]))
def test_agrees_with_the_sweep_on_a_grid(x, y, p):
    assert math.isclose(sliced_two_points(x, y, p), sliced_plane(x, y, p), rel_tol=1e-12, abs_tol=1e-14)


@pytest.mark.parametrize("p", [1, 2])
@pytest.mark.parametrize("near", [1.0, 1e-4, 1e-8])
def test_agrees_with_the_sweep_near_equality(p, near):
    rng = np.random.default_rng(1)
    for _ in range(20):
        x = rng.normal(size=(2, 2))
        y = x + near * rng.normal(size=(2, 2))
        # At p = 1 terms of order 1 cancel; at p = 2 none do.
        accuracy = {"rel_tol": 1e-9, "abs_tol": 1e-15} if p == 1 else {"rel_tol": 1e-12}
        assert math.isclose(sliced_two_points(x, y, p), sliced_plane(x, y, p), **accuracy)


def test_agrees_with_the_mean_width_of_the_hull():
    rng = np.random.default_rng(2)
    for _ in range(20):
        x, y = rng.normal(size=(2, 3)), rng.normal(size=(2, 3))
        assert math.isclose(sliced_two_points(x, y, 1), hull_value(x, y), rel_tol=1e-11)


@pytest.mark.parametrize("p", [1, 2])
@pytest.mark.parametrize("dim", [3, 5, 10])
def test_agrees_with_a_long_run(dim, p):
    # Five standard errors: a false alarm once in two million runs.
    rng = np.random.default_rng(100 * dim + p)
    x, y = rng.normal(size=(2, dim)), rng.normal(size=(2, dim))
    mean, error = long_run(x, y, p, rng)
    assert abs(sliced_two_points(x, y, p) - mean) < 5 * error
    # Negative control: an answer wrong by 2% must be seen.
    assert abs(1.02 * sliced_two_points(x, y, p) - mean) > 5 * error


@pytest.mark.parametrize("name", POSITIONS)
def test_special_positions_against_a_long_run(name):
    rng = np.random.default_rng(7)
    x, y = clouds(*POSITIONS[name])
    mean, error = long_run(x, y, 1, rng, 200_000)
    assert abs(sliced_two_points(x, y, 1) - mean) < 5 * error + 1e-12


@pytest.mark.parametrize("name", POSITIONS)
@pytest.mark.parametrize("p", [1, 2])
def test_special_positions_are_limits(name, p):
    rng = np.random.default_rng(8)
    x, y = clouds(*POSITIONS[name])
    value = sliced_two_points(x, y, p)
    for step in (1e-6, 1e-11, 1e-15):
        moved = sliced_two_points(x + step * rng.normal(size=x.shape), y, p)
        assert abs(moved - value) < 20 * step + 1e-14


@pytest.mark.parametrize("p", [1, 2])
def test_equal_clouds_are_at_distance_zero(p):
    rng = np.random.default_rng(3)
    for dim in (1, 2, 3, 7):
        x = rng.normal(size=(2, dim))
        assert sliced_two_points(x, x, p) == 0
        assert sliced_two_points(x, x[::-1], p) == 0
        assert sliced_two_points(x[[0, 0]], x[[0, 0]], p) == 0


@pytest.mark.parametrize("p", [1, 2])
def test_one_dimension_is_a_sort(p):
    rng = np.random.default_rng(4)
    for _ in range(10):
        x, y = rng.normal(size=(2, 1)), rng.normal(size=(2, 1))
        expected = (np.abs(np.sort(x, axis=0) - np.sort(y, axis=0)) ** p).mean()
        assert math.isclose(sliced_two_points(x, y, p), expected, rel_tol=1e-13)


@pytest.mark.parametrize("p", [1, 2])
@pytest.mark.parametrize(("dim", "padded"), [(1, 2), (1, 9), (2, 3), (3, 4), (4, 400)])
def test_padding_with_zeros_takes_the_known_factor(p, dim, padded):
    rng = np.random.default_rng(5)
    x, y = rng.normal(size=(2, dim)), rng.normal(size=(2, dim))
    wider = [np.pad(cloud, ((0, 0), (0, padded - dim))) for cloud in (x, y)]
    above, below = ((dim + p) / 2, padded / 2), (dim / 2, (padded + p) / 2)
    factor = math.exp(sum(map(math.lgamma, above)) - sum(map(math.lgamma, below)))
    assert math.isclose(sliced_two_points(*wider, p), factor * sliced_two_points(x, y, p), rel_tol=1e-11)


@pytest.mark.parametrize("p", [1, 2])
def test_symmetries(p):
    rng = np.random.default_rng(6)
    x, y = rng.normal(size=(2, 4)), rng.normal(size=(2, 4))
    turn = np.linalg.qr(rng.normal(size=(4, 4)))[0]
    value = sliced_two_points(x, y, p)
    for first, second in ((y, x), (x[::-1], y), (x + 1.5, y + 1.5), (x @ turn, y @ turn)):
        assert math.isclose(sliced_two_points(first, second, p), value, rel_tol=1e-12)
    for scale in (2.0**300, 2.0**-300):
        assert math.isclose(sliced_two_points(scale * x, scale * y, p), scale**p * value, rel_tol=1e-14)


@pytest.mark.parametrize(
    ("x", "y", "p", "error", "message"),
    [
        (np.zeros((3, 2)), np.zeros((2, 2)), 1, ValueError, r"must have two points each.*; got 3 and 2"),
        (
            np.zeros((2, 2)),
            np.zeros((2, 3)),
            1,
            ValueError,
            r"must share `dim`; got shapes \(2, 2\) and \(2, 3\)",
        ),
        (np.zeros((2, 0)), np.zeros((2, 0)), 1, ValueError, r"`x` must hold at least one point"),
        (np.zeros((2, 2)), np.zeros((2, 2)), 4, ValueError, r"`p` must be 1 or 2.*; got 4"),
        ([["a"], ["b"]], np.zeros((2, 1)), 1, TypeError, r"`x` must hold real numbers"),
        ([[np.nan], [0]], np.zeros((2, 1)), 1, ValueError, r"`x` must be finite"),
    ],
)
def test_bad_input_is_named(x, y, p, error, message):
    with pytest.raises(error, match=message):
        sliced_two_points(x, y, p)
