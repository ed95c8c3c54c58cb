"""Exact errors of the estimators: the paper's numbers, simulation, and the law of harmonics."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.special import polygamma

from orthoslice.exact import angular_score, estimator_mse_plane, projected_plane, sliced_plane

PLANE = {"sliced": sliced_plane, "projected": projected_plane}
THREE = (
    [[1.32, 1.29], [-0.42, 0.65], [0.97, -0.98]],
    [[-2.04, -0.46], [1.04, 0.84], [-0.38, -0.54]],
)
# Data, method, p; then value, MSE iid, MSE orthogonal for two directions.
TABLE = [
    (([[1, 1], [0, 0]], [[0, -0.5], [1, -1]]), "sliced", 1, (0.795775, 0.073996, 0.006047)),
    (
        ([[1.23, -2.17], [-2, -0.65]], [[-0.14, -0.93], [-0.82, 0.43]]),
        "sliced",
        1,
        (1.079091, 0.011722, 0.017150),
    ),
    (THREE, "projected", 2, (3.033351, 0.590812, 0.917992)),
    (THREE, "projected", 1, (1.555558, 0.049768, 0.064958)),
]


def random_problem(seed):
    rng = np.random.default_rng(seed)
    x, y = rng.normal(size=(7, 2)), rng.normal(size=(5, 2)) + 0.3
    return x, y, {"x_weights": rng.dirichlet(np.ones(7)), "y_weights": None}


@pytest.mark.parametrize(("clouds", "method", "p", "expected"), TABLE)
def test_the_paper_and_its_conjecture(clouds, method, p, expected):
    errors = [
        estimator_mse_plane(*clouds, p, method=method, directions=directions, n_directions=2)
        for directions in ("iid", "orthogonal")
    ]
    np.testing.assert_allclose([PLANE[method](*clouds, p), *errors], expected, rtol=0, atol=1e-6)


def test_the_conjecture_to_ten_digits():
    # From a separate calculation in 40-digit arithmetic.
    for p, expected in ((2, (0.590811410697, 0.917991136665)), (1, (0.0497682896671, 0.0649576280193))):
        errors = [
            estimator_mse_plane(*THREE, p, method="projected", directions=directions, n_directions=2)
            for directions in ("iid", "orthogonal")
        ]
        np.testing.assert_allclose(errors, expected, rtol=2e-12)


@pytest.mark.parametrize("method", ["sliced", "projected"])
@pytest.mark.parametrize("p", [1, 2])
@pytest.mark.parametrize("n_directions", [1, 2, 3, 6])
def test_simulated_errors_agree(scores, method, p, n_directions):
    # Five standard errors on each of 32 comparisons: a false alarm once in fifty thousand runs.
    x, y, weights = random_problem(1)
    truth, rng, n_runs = PLANE[method](x, y, p, **weights), np.random.default_rng(2), 20_000
    for directions in ("iid", "orthogonal"):
        angles = rng.uniform(0, np.pi, size=(n_runs, n_directions))
        if directions == "orthogonal":
            odd = angles[:, 1::2]
            odd[:] = angles[:, : 2 * odd.shape[1] : 2] + np.pi / 2
        values = scores(angles.ravel(), x, y, p, method, **weights).reshape(angles.shape).mean(axis=1)
        squares = (values - truth) ** 2
        exact = estimator_mse_plane(
            x, y, p, method=method, directions=directions, n_directions=n_directions, **weights
        )
        error = squares.std() / math.sqrt(n_runs)
        assert abs(squares.mean() - exact) < 5 * error
        # Negative control: a fifth more error must be seen.
        assert abs(squares.mean() - 1.2 * exact) > 5 * error


@pytest.mark.parametrize("p", [1, 2])
@pytest.mark.parametrize("seed", range(4))
def test_law_of_harmonics(p, seed):
    x, y, weights = random_problem(seed)
    score = angular_score(x, y, p, **weights)
    # SW is continuous with kinks: harmonics fall like degree^-2, the part left out like 1000^-3.
    degrees = np.arange(2, 1000, 2)
    power = 2 * np.abs(score.fourier(degrees)) ** 2
    assert math.isclose(power.sum(), score.variance(), rel_tol=1e-6)
    # Two orthogonal directions: A_l = 1 + cos(l pi / 2), that is 2 or 0.
    amplification = np.where(degrees % 4 == 0, 2.0, 0.0)
    for directions, factor in (("iid", np.ones_like(power)), ("orthogonal", amplification)):
        exact = estimator_mse_plane(x, y, p, directions=directions, n_directions=2, **weights)
        assert abs((power * factor).sum() / 2 - exact) < 1e-6 * score.variance()


@pytest.mark.parametrize("p", [1, 2])
def test_law_of_harmonics_for_projected(p):
    x, y = THREE
    score = angular_score(x, y, p, method="projected")
    degrees = np.arange(2, 16002, 2)
    power = 2 * np.abs(score.fourier(degrees)) ** 2
    # PW jumps, so harmonics fall like 1 / degree. Beyond degree 16000 their mean size is known from the
    # jumps, and what oscillates about it adds up to order 16000^-2.
    jumps = np.diff(score.constant, append=score.constant[0])
    size = 2 * (jumps**2).sum() / np.pi**2
    all_beyond, fourth_beyond = (polygamma(1, 16000 // step + 1) / step**2 for step in (2, 4))
    variance = power.sum() + size * all_beyond
    assert math.isclose(variance, score.variance(), rel_tol=1e-6)
    # Two orthogonal directions: only degrees 0 mod 4 remain, with A_l = 2.
    expected = power[degrees % 4 == 0].sum() + size * fourth_beyond
    exact = estimator_mse_plane(x, y, p, method="projected", directions="orthogonal", n_directions=2)
    assert math.isclose(exact, expected, rel_tol=1e-6)


def test_harmonics_of_a_single_difference():
    # |cos phi| = 2/pi + (4/pi) sum (-1)^(k+1) / (4 k^2 - 1) cos 2 k phi
    score = angular_score([[1, 0]], [[0, 0]], 1)
    k = np.arange(1, 6)
    expected = (2 / np.pi) * (-1.0) ** (k + 1) / (4 * k**2 - 1)
    np.testing.assert_allclose(score.fourier(2 * k), expected, atol=1e-15)
    assert math.isclose(score.fourier(0).real, 2 / np.pi)


def test_quadratic_scores_have_no_orthogonal_error():
    # One point a side: SW_2^2 is a quadratic form, which a full orthogonal block integrates exactly.
    error = estimator_mse_plane([[3, 4]], [[0, 0]], 2, directions="orthogonal", n_directions=4)
    assert error < 1e-27
    assert math.isclose(estimator_mse_plane([[3, 4]], [[0, 0]], 2, directions="iid", n_directions=1), 625 / 8)


def test_orthogonal_never_loses_for_projected_pairs():
    rng = np.random.default_rng(3)
    for _ in range(30):
        x, y = rng.normal(size=(2, 2)), rng.normal(size=(2, 2))
        iid, orthogonal = (
            estimator_mse_plane(x, y, 2, method="projected", directions=directions, n_directions=2)
            for directions in ("iid", "orthogonal")
        )
        assert orthogonal <= iid * (1 + 1e-12)


def test_orthogonal_is_at_most_twice_as_bad():
    # (d + 4) / (d + 1) = 2 in the plane; a square against its turn by 45 degrees attains it.
    corners = np.array([[1, 1], [1, -1], [-1, 1], [-1, -1]])
    turned = corners @ np.array([[1, 1], [-1, 1]]) / math.sqrt(2)
    iid, orthogonal = (
        estimator_mse_plane(corners, turned, 1, directions=directions, n_directions=2)
        for directions in ("iid", "orthogonal")
    )
    assert math.isclose(orthogonal, 2 * iid, rel_tol=1e-9)


def test_equal_clouds_have_no_error():
    x = np.random.default_rng(4).normal(size=(9, 2))
    for method in PLANE:
        for directions in ("iid", "orthogonal"):
            error = estimator_mse_plane(x, x[::-1], 1, method=method, directions=directions, n_directions=2)
            assert error < 1e-30


def test_scaling():
    x, y, weights = random_problem(5)
    for p in (1, 2):
        small, large = (
            estimator_mse_plane(s * x, s * y, p, directions="iid", n_directions=3, **weights) for s in (1, 4)
        )
        assert math.isclose(large, 4 ** (2 * p) * small, rel_tol=1e-14)


def test_angular_score_has_period_pi_and_any_shape():
    x, y, weights = random_problem(6)
    score = angular_score(x, y, 1, **weights)
    angles = np.random.default_rng(7).uniform(-9, 9, size=(3, 4))
    np.testing.assert_allclose(score(angles), score(angles + np.pi), rtol=1e-12)
    assert score(angles).shape == (3, 4)
    assert score(0.5).shape == ()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"directions": "sobol"}, '`directions` must be "iid" or "orthogonal"; got \'sobol\''),
        ({"method": "max"}, '`method` must be "sliced" or "projected"; got \'max\''),
        ({"n_directions": 0}, "`n_directions` must be at least 1; got 0"),
        ({"n_directions": 2.5}, "`n_directions` must be an integer; got 2.5"),
        ({"x_weights": [0.5, 0.6]}, "`x_weights` must sum to 1"),
    ],
)
def test_bad_input_is_named(change, message):
    arguments = {"directions": "iid", "n_directions": 2} | change
    with pytest.raises((ValueError, TypeError), match=message):
        estimator_mse_plane(np.eye(2), np.eye(2), 1, **arguments)
