"""The angular sweep against sorts, geometry and the paper."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy.optimize import linear_sum_assignment

from orthoslice.exact import _sweep, angular_score, projected_plane, sliced_plane
from orthoslice.exact._inputs import check_plane
from orthoslice.exact._sweep import lifetimes

PLANE = {"sliced": sliced_plane, "projected": projected_plane}
CASES = [(method, p) for method in PLANE for p in (1, 2)]
# Rounding of a sum of n^2 terms of one sign, with room to spare.
EXACT = 1e-12

coordinates = st.integers(-2, 2).map(float)
grid_clouds = st.integers(1, 6).flatmap(lambda n: arrays(float, (n, 2), elements=coordinates))
orders, methods = st.sampled_from([1, 2]), st.sampled_from(["sliced", "projected"])
SIZES = [(25, 25, False), (9, 14, False), (12, 8, True), (1, 6, True)]


def rotation(angle):
    return np.array([[math.cos(angle), -math.sin(angle)], [math.sin(angle), math.cos(angle)]])


def degenerate_clouds():
    rng = np.random.default_rng(5)
    grid = np.stack(np.meshgrid(np.arange(4.0), np.arange(5.0)), -1).reshape(-1, 2)
    line = np.outer(rng.normal(size=15), [0.3, 0.7]) + np.array([0.1, 0.2])
    duplicated = np.repeat(rng.normal(size=(5, 2)), 4, axis=0)
    circle = np.stack([np.cos(np.arange(16) * np.pi / 8), np.sin(np.arange(16) * np.pi / 8)], -1)
    vertical = np.stack([np.zeros(9), np.arange(9.0)], -1)
    return {
        "grid": grid,
        "grid off the axes": grid @ rotation(0.3).T / 3 + 0.1,
        "line": line,
        "duplicates": duplicated,
        "16-gon": circle,
        "vertical": vertical,
        "horizontal": vertical[:, ::-1] / 3,
        "one place": np.ones((7, 2)),
    }


DEGENERATE = degenerate_clouds()


@pytest.mark.parametrize(("method", "p"), CASES)
@pytest.mark.parametrize(("n", "m", "weighted"), SIZES)
def test_agrees_with_midpoint_rule(midpoint, method, p, n, m, weighted):
    rng = np.random.default_rng(n + 100 * m)
    x, y = rng.normal(size=(n, 2)), rng.normal(size=(m, 2)) + 0.5
    weights = {}
    if weighted:
        weights = {"x_weights": rng.dirichlet(np.ones(n)), "y_weights": rng.dirichlet(np.ones(m))}
    expected, accuracy = midpoint(x, y, p, method, **weights)
    assert abs(PLANE[method](x, y, p, **weights) - expected) < accuracy


@pytest.mark.parametrize("name", DEGENERATE)
@pytest.mark.parametrize(("method", "p"), CASES)
def test_every_angle_of_degenerate_clouds(scores, name, method, p):
    rng = np.random.default_rng(8)
    angles = rng.uniform(0, np.pi, 500)
    cloud = DEGENERATE[name]
    for other in (rng.normal(size=(len(cloud), 2)), rng.normal(size=(11, 2)), DEGENERATE["grid"]):
        for x, y in ((cloud, other), (other, cloud)):
            function = angular_score(x, y, p, method=method)
            np.testing.assert_allclose(function(angles), scores(angles, x, y, p, method), rtol=0, atol=1e-11)
            np.testing.assert_allclose(function.mean(), PLANE[method](x, y, p), rtol=EXACT)


@settings(deadline=None, max_examples=60)
@given(x=grid_clouds, y=grid_clouds, p=orders, method=methods)
def test_every_angle_of_grid_clouds(scores, x, y, p, method):
    angles = np.random.default_rng(0).uniform(0, np.pi, 50)
    function = angular_score(x, y, p, method=method)
    np.testing.assert_allclose(function(angles), scores(angles, x, y, p, method), rtol=0, atol=EXACT * 100)
    assert math.isclose(function.mean(), PLANE[method](x, y, p), rel_tol=EXACT, abs_tol=EXACT)


@pytest.mark.parametrize("name", DEGENERATE)
def test_equal_clouds_are_at_distance_zero(name):
    cloud = DEGENERATE[name]
    rng = np.random.default_rng(3)
    shuffle = rng.permutation(len(cloud))
    weights = rng.dirichlet(np.ones(len(cloud)))
    for method, p in CASES:
        assert PLANE[method](cloud, cloud[shuffle], p) == 0.0
        assert PLANE[method](cloud, np.repeat(cloud, 3, axis=0), p) == 0.0
        assert PLANE[method](cloud, cloud[shuffle], p, x_weights=weights, y_weights=weights[shuffle]) < 1e-15


@settings(deadline=None, max_examples=40)
@given(x=grid_clouds, y=grid_clouds, p=orders, method=methods)
def test_symmetry_and_scaling(x, y, p, method):
    distance = PLANE[method]
    value = distance(x, y, p)
    assert math.isclose(distance(y, x, p), value, rel_tol=EXACT, abs_tol=EXACT)
    assert math.isclose(distance(3 * x, 3 * y, p), 3**p * value, rel_tol=EXACT, abs_tol=EXACT)
    assert math.isclose(distance(-x, -y, p), value, rel_tol=EXACT, abs_tol=EXACT)


@pytest.mark.parametrize(("method", "p"), CASES)
@pytest.mark.parametrize("name", ["grid", "line", "duplicates", "16-gon"])
def test_rigid_motions_and_row_order_change_nothing(method, p, name):
    rng = np.random.default_rng(11)
    x, y = DEGENERATE[name], rng.normal(size=(13, 2))
    weights = rng.dirichlet(np.ones(13))
    value = PLANE[method](x, y, p, y_weights=weights)
    for angle in (0.4, 1.9, np.pi / 2):
        turn, step = rotation(angle).T, rng.normal(size=2)
        moved = PLANE[method](x @ turn + step, y @ turn + step, p, y_weights=weights)
        assert math.isclose(moved, value, rel_tol=1e-11)
    shuffle = rng.permutation(13)
    shuffled = PLANE[method](x[::-1], y[shuffle], p, y_weights=weights[shuffle])
    assert math.isclose(shuffled, value, rel_tol=EXACT)


@pytest.mark.parametrize("p", [1, 2])
def test_wasserstein_lies_between(p):
    rng = np.random.default_rng(21)
    for n in (1, 2, 5, 30):
        x, y = rng.normal(size=(n, 2)), rng.normal(size=(n, 2)) * [1, 2]
        cost = np.linalg.norm(x[:, None] - y[None], axis=-1) ** p
        exact = cost[linear_sum_assignment(cost)].mean()
        assert sliced_plane(x, y, p) <= exact * (1 + EXACT)
        assert exact <= projected_plane(x, y, p) * (1 + EXACT)


def test_single_points():
    for p, mean in ((1, 2 / np.pi), (2, 0.5)):
        assert math.isclose(sliced_plane([[3, 4]], [[0, 0]], p), mean * 5**p, rel_tol=1e-15)
        assert math.isclose(projected_plane([[3, 4]], [[0, 0]], p), 5**p, rel_tol=1e-15)


def test_translated_cloud_is_a_single_difference():
    rng = np.random.default_rng(2)
    x = rng.integers(-50, 50, size=(40, 2))
    moved = x + np.array([3, 4])
    for p, mean in ((1, 2 / np.pi), (2, 0.5)):
        assert math.isclose(sliced_plane(x, moved, p), mean * 5**p, rel_tol=1e-14)
        assert math.isclose(projected_plane(x, moved, p), 5**p, rel_tol=1e-14)


@pytest.mark.parametrize(("method", "p"), CASES)
def test_weights_count_as_copies(method, p):
    rng = np.random.default_rng(9)
    x, y, copies = rng.normal(size=(6, 2)), rng.normal(size=(10, 2)), np.array([1, 3, 2, 0, 1, 1])
    expected = PLANE[method](np.repeat(x, copies, axis=0), y, p)
    assert math.isclose(PLANE[method](x, y, p, x_weights=copies / 8), expected, rel_tol=1e-13)


def test_equal_weights_are_uniform():
    rng = np.random.default_rng(4)
    x, y = rng.normal(size=(7, 2)), rng.normal(size=(7, 2))
    assert sliced_plane(x, y, 2, x_weights=np.full(7, 1 / 7)) == sliced_plane(x, y, 2)


@pytest.mark.parametrize("spread", [1e-3, 1e-8, 1e-12])
def test_nearly_collinear_clouds(scores, spread):
    rng = np.random.default_rng(6)
    x, y = (rng.normal(size=(20, 2)) * [1, spread] @ rotation(0.7).T for _ in range(2))
    angles = rng.uniform(0, np.pi, 400)
    for method, p in CASES:
        function = angular_score(x, y, p, method=method)
        np.testing.assert_allclose(function(angles), scores(angles, x, y, p, method), rtol=0, atol=1e-13)


@pytest.mark.parametrize("step", [1e-3, 1e-6, 1e-9])
@pytest.mark.parametrize("p", [1, 2])
def test_nearly_equal_clouds_keep_their_digits(scores, step, p):
    rng = np.random.default_rng(14)
    x = rng.normal(size=(12, 2))
    y = x + step * rng.normal(size=(12, 2))
    angles = (np.arange(20_000) + 0.5) * np.pi / 20_000
    expected = scores(angles, x, y, p, "sliced").mean()
    # The rule of 20,000 angles sees at random the 66 changes of order, which last about `step` each.
    assert math.isclose(sliced_plane(x, y, p), expected, rel_tol=1e-5)


def projected_in_many_digits(x, y, p):
    """PW_p^p of small uniform clouds of one size, by 60 digits and a sort in every cell."""
    mpmath = pytest.importorskip("mpmath")
    with mpmath.workdps(60):
        clouds = [[[mpmath.mpf(v) for v in row] for row in cloud.tolist()] for cloud in (x, y)]
        angles = [mpmath.mpf(0), +mpmath.pi]
        for cloud in clouds:
            for a, b in itertools.combinations(cloud, 2):
                angles.append(mpmath.atan2(b[0] - a[0], a[1] - b[1]) % mpmath.pi)
        angles.sort()
        total = mpmath.mpf(0)
        for start, stop in itertools.pairwise(angles):
            v = mpmath.cos((start + stop) / 2), mpmath.sin((start + stop) / 2)
            matched = zip(
                *(sorted(c, key=lambda r, v=v: v[0] * r[0] + v[1] * r[1]) for c in clouds), strict=True
            )
            total += (stop - start) * sum(mpmath.hypot(a[0] - b[0], a[1] - b[1]) ** p for a, b in matched)
        return float(total / mpmath.pi / len(x))


@pytest.mark.parametrize("p", [1, 2])
@pytest.mark.parametrize("step", [1e-3, 1e-9, 1e-12, 1e-14, 1e-15])
def test_projected_distance_of_nearly_equal_clouds_keeps_its_digits(p, step):
    """It lives on angles between events of x and of y that differ by about `step`."""
    rng = np.random.default_rng(14)
    x = rng.normal(size=(7, 2))
    y = x + step * rng.normal(size=x.shape)
    expected = projected_in_many_digits(x, y, p)
    assert math.isclose(projected_plane(x, y, p), expected, rel_tol=1e-13)


def test_cells_have_the_right_marginals():
    rng = np.random.default_rng(12)
    x, y = rng.normal(size=(60, 2)), DEGENERATE["grid"] / 3
    weights = rng.dirichlet(np.ones(60))
    problem = check_plane("this", x, y, 2, weights, None)
    cells = list(lifetimes(problem))
    share = np.concatenate([(cell.stop - cell.start) * cell.mass for cell in cells]) / np.pi
    delta = np.concatenate([cell.delta for cell in cells])
    assert math.isclose(share.sum(), 1, rel_tol=1e-14)
    expected = weights @ problem.x.points - problem.y.points.mean(axis=0)
    np.testing.assert_allclose(share @ delta, expected, rtol=0, atol=1e-14)


def test_several_batches_of_cells_add_up(monkeypatch):
    rng = np.random.default_rng(13)
    x, y = rng.normal(size=(40, 2)), rng.normal(size=(30, 2))
    whole = [sliced_plane(x, y, 1), projected_plane(x, y, 2)]
    monkeypatch.setattr(_sweep, "_CHUNK", 10)
    np.testing.assert_allclose([sliced_plane(x, y, 1), projected_plane(x, y, 2)], whole, rtol=1e-14)


def test_huge_and_tiny_coordinates():
    x, y = np.array([[1.0, 2.0], [3.0, -1.0]]), np.array([[0.5, 0.0], [2.0, 2.0]])
    for scale in (2.0**500, 2.0**-500):
        assert sliced_plane(x * scale, y * scale, 2) == sliced_plane(x, y, 2) * scale**2
    with pytest.raises(ValueError, match="fit in float64"):
        sliced_plane(x * 2.0**1000, y, 2)
    with pytest.raises(ValueError, match="fit in float64"):
        angular_score(x * 2.0**1000, y, 2)


def test_lists_and_integers_are_floats():
    assert sliced_plane([[1, 2], [3, 4]], np.array([[0, 1]], dtype=np.int8), 1) == sliced_plane(
        np.array([[1.0, 2.0], [3.0, 4.0]]), np.array([[0.0, 1.0]]), 1
    )


GOOD = np.zeros((3, 2))
BAD = [
    ({"x": np.zeros(3)}, ValueError, r"`x` must have shape \(n, dim\).*; got \(3,\)"),
    ({"y": np.zeros((3, 4))}, ValueError, r"`x` and `y` must share `dim`; got shapes \(3, 2\) and \(3, 4\)"),
    ({"x": np.zeros((3, 4)), "y": np.zeros((3, 4))}, ValueError, r"must lie in the plane.*; got dim = 4"),
    ({"x": np.zeros((5, 3, 2))}, ValueError, r"must be single clouds.*; got shapes \(5, 3, 2\)"),
    ({"x": np.zeros((0, 2))}, ValueError, r"`x` must hold at least one point"),
    ({"x": [[0, 1], [2]]}, ValueError, r"`x` must be rectangular"),
    ({"x": [[0, np.nan]]}, ValueError, r"`x` must be finite; got nan at index \(0, 1\)"),
    ({"y": [[0, np.inf]]}, ValueError, r"`y` must be finite"),
    ({"x": [["a", "b"]]}, TypeError, r"`x` must hold real numbers; got text, type <U1"),
    ({"x": [[1j, 0]]}, TypeError, r"`x` must hold real numbers; got complex numbers, type complex128"),
    ({"p": 3}, ValueError, r"`p` must be 1 or 2.*; got 3"),
    ({"p": 1.5}, ValueError, r"`p` must be 1 or 2.*; got 1.5"),
    ({"p": np.ones(3) / 3}, TypeError, r"`p` must be a real number.*; got an array of shape \(3,\).*POT"),
    ({"x_weights": [0.5, 0.5]}, ValueError, r"`x_weights` must have one weight a point.*; got \(2,\)"),
    ({"y_weights": [0.5, 0.6, -0.1]}, ValueError, r"`y_weights` must not be negative or NaN; got -0.1"),
    ({"y_weights": [0.5, 0.5, np.nan]}, ValueError, r"`y_weights` must not be negative or NaN; got nan"),
    ({"x_weights": [1, 1, 1]}, ValueError, r"`x_weights` must sum to 1; got a sum of 3"),
]


@pytest.mark.parametrize("function", [sliced_plane, projected_plane, angular_score])
@pytest.mark.parametrize(("change", "error", "message"), BAD)
def test_bad_input_is_named(function, change, error, message):
    arguments = {"x": GOOD, "y": GOOD, "p": 2} | change
    with pytest.raises(error, match=message):
        function(arguments.pop("x"), arguments.pop("y"), arguments.pop("p"), **arguments)


@pytest.mark.parametrize("function", [sliced_plane, projected_plane, angular_score])
def test_too_many_points_are_refused_before_any_work(function):
    with pytest.raises(ValueError, match=r"critical angles.*osl\.sliced_wasserstein"):
        function(np.zeros((8200, 2)), GOOD, 2)


def test_unknown_score_is_named():
    with pytest.raises(ValueError, match='`method` must be "sliced" or "projected"; got \'max\''):
        angular_score(GOOD, GOOD, 2, method="max")
