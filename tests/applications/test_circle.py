"""W_p on the circle: against brute force over cuts, a linear program, POT, and itself turned round."""

from __future__ import annotations

import math

import numpy as np
import ot
import pytest
import torch
from helpers import Backend, weights
from hypothesis import given
from hypothesis import strategies as st

import orthoslice as osl
from orthoslice.costs.circle import circle_slopes, uniform_circle_slopes

ROWS = ["numba", "reference"]


def shorter_way(u: np.ndarray, v: np.ndarray) -> np.ndarray:
    """Distances of all pairs of coordinates in turns."""
    apart = np.abs(u[:, None] - v[None, :]) % 1
    return np.minimum(apart, 1 - apart)


def by_all_cuts(u: np.ndarray, v: np.ndarray, a: np.ndarray, b: np.ndarray, p: float) -> float:
    """W_p^p of points with whole masses: as atoms of one mass, matched in order after each of all cuts."""
    atoms = math.lcm(a.sum(), b.sum())
    x = np.repeat(np.sort(u), a[np.argsort(u)] * (atoms // a.sum()))
    y = np.repeat(np.sort(v), b[np.argsort(v)] * (atoms // b.sum()))
    place = np.arange(-atoms, atoms + 1)[:, None] + np.arange(atoms)
    lifted = y[place % atoms] + place // atoms
    return float((np.abs(x - lifted) ** p).mean(axis=1).min())


def draw_case(rng: np.random.Generator) -> tuple[np.ndarray, ...]:
    """Coordinates and whole masses, often with ties, points without mass, and equal clouds."""
    n, m = rng.integers(1, 9, 2)
    u, v = (rng.integers(0, 8, k) / 8 if rng.random() < 0.5 else rng.random(k) for k in (n, m))
    a, b = (rng.integers(0, 4, k) if rng.random() < 0.7 else np.ones(k, dtype=int) for k in (n, m))
    a[0], b[0] = a[0] + 1, b[0] + 1
    return (u, u, a, a) if rng.random() < 0.05 else (u, v, a, b)


@pytest.mark.parametrize("row", ROWS)
@pytest.mark.parametrize("cases", [150, pytest.param(1000, marks=pytest.mark.full)])
def test_the_best_of_all_cuts(rng: np.random.Generator, row: str, cases: int) -> None:
    with circle_slopes.using(row):
        for _ in range(cases):
            u, v, a, b = draw_case(rng)
            p = float(rng.choice([1, 1.3, 2, 3, 7.5]))
            found = osl.circular_wasserstein(u, v, p, period=1, x_weights=a / a.sum(), y_weights=b / b.sum())
            assert float(found.value) == pytest.approx(by_all_cuts(u, v, a, b, p), rel=1e-12, abs=1e-14)


def test_a_wrong_cut_is_told(rng: np.random.Generator) -> None:
    """The negative control: the line through 0, which is one of the cuts, is often not the best."""
    cases = [draw_case(rng) for _ in range(50)]
    line = [ot.wasserstein_1d(u, v, a / a.sum(), b / b.sum(), p=2) for u, v, a, b in cases]
    best = [by_all_cuts(*case, 2) for case in cases]
    assert np.mean(np.asarray(line) > np.asarray(best) + 1e-9) > 0.3


@pytest.mark.thin(pairs=True)
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("m", [7, 5])
@pytest.mark.parametrize("p", [1, 2, 2.5])
def test_every_library_agrees_with_a_linear_program(
    backend: Backend, rng: np.random.Generator, p: float, m: int, weighted: bool
) -> None:
    u, v = rng.normal(size=(3, 7)), rng.normal(size=(3, m))
    a, b = (weights(rng, 7), weights(rng, m)) if weighted else (np.full(7, 1 / 7), np.full(m, 1 / m))
    own = {"x_weights": backend.asarray(a), "y_weights": backend.asarray(b)} if weighted else {}
    found = osl.circular_wasserstein(backend.asarray(u), backend.asarray(v), p, period=2, **own)
    exact = [ot.emd2(a, b, (2 * shorter_way(x / 2, y / 2)) ** p) for x, y in zip(u, v, strict=True)]
    # Coordinates are of the order 1, so that differences are off by its rounding.
    np.testing.assert_allclose(backend.numpy(found.value), exact, **backend.tolerance(100))


coordinates = st.lists(st.floats(-3, 3).map(lambda t: round(t, 3)), min_size=1, max_size=12)


@given(coordinates, coordinates, st.sampled_from([1, 1.5, 2, 4]), st.floats(-2, 2))
def test_symmetric_invariant_and_zero_on_itself(u: list, v: list, p: float, turn: float) -> None:
    def w(x: list, y: list) -> float:
        return float(osl.circular_wasserstein(x, y, p, period=1).value)

    turned = [[t + turn for t in c] for c in (u, v)]
    assert w(u, v) == pytest.approx(w(v, u), abs=1e-13)
    assert w(*turned) == pytest.approx(w(u, v), abs=1e-12)
    assert w([-t for t in u], [-t for t in v]) == pytest.approx(w(u, v), abs=1e-12)
    assert w(u, [t + 1 for t in u]) <= 1e-15
    assert 0 <= w(u, v) <= 0.5**p + 1e-12


@pytest.mark.thin(pairs=True)
@pytest.mark.parametrize("row", ROWS)
@pytest.mark.parametrize("y", ["cloud", "uniform"])
@pytest.mark.parametrize("p", [1, 1.7, 2, 3])
def test_gradients_are_those_of_finite_differences(
    rng: np.random.Generator, row: str, y: str, p: float
) -> None:
    u, v, a = rng.random(6) * 24, rng.random(9) * 24, weights(rng, 6)

    def value(x: np.ndarray, other: np.ndarray) -> float:
        target = other if y == "cloud" else "uniform"
        return float(osl.circular_wasserstein(x, target, p, period=24, x_weights=a).value)

    x, other = (torch.tensor(t, requires_grad=True) for t in (u, v))
    with circle_slopes.using(row), uniform_circle_slopes.using(row):
        target = other if y == "cloud" else "uniform"
        osl.circular_wasserstein(x, target, p, period=24, x_weights=torch.tensor(a)).value.backward()
    step = 1e-5
    for cloud, found in ((0, x.grad), (1, other.grad)) if y == "cloud" else ((0, x.grad),):
        for k, slope in enumerate(found.tolist()):
            ends = []
            for sign in (1, -1):
                moved = [u.copy(), v.copy()]
                moved[cloud][k] += sign * step
                ends.append(value(*moved))
            assert slope == pytest.approx((ends[0] - ends[1]) / (2 * step), rel=1e-5, abs=1e-6)


@pytest.mark.parametrize("row", ROWS)
@pytest.mark.parametrize("p", [1, 2])
def test_equal_clouds_have_value_and_gradient_zero(rng: np.random.Generator, row: str, p: float) -> None:
    u = rng.integers(0, 5, 12) / 5
    x = torch.tensor(u, requires_grad=True)
    with circle_slopes.using(row):
        found = osl.circular_wasserstein(x, torch.tensor(rng.permutation(u)), p, period=1)
        (found.value + found.distance).backward()
    assert found.value.item() == found.distance.item() == 0
    assert not x.grad.any()


def test_jax_compiles_and_differentiates(rng: np.random.Generator) -> None:
    import jax
    import jax.numpy as jnp

    u, v = jnp.asarray(rng.random(5)), jnp.asarray(rng.random(4))

    @jax.jit
    def value(x: object) -> object:
        return osl.circular_wasserstein(x, v, 2, period=1).value

    x = torch.tensor(np.asarray(u), requires_grad=True)
    osl.circular_wasserstein(x, torch.tensor(np.asarray(v)), 2, period=1).value.backward()
    np.testing.assert_allclose(jax.grad(value)(u), x.grad.numpy(), rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("row", ROWS)
@pytest.mark.parametrize("p", [1, 2, 3])
def test_the_uniform_law_is_the_limit_of_many_even_points(rng: np.random.Generator, p: float, row: str) -> None:
    u, a, n = rng.random(9), weights(rng, 9), 200_000
    with uniform_circle_slopes.using(row):
        law = osl.circular_wasserstein(u, "uniform", p, period=1, x_weights=a)
    points = osl.circular_wasserstein(u, (np.arange(n) + 0.5) / n, p, period=1, x_weights=a)
    assert float(law.value) == pytest.approx(float(points.value), rel=1e-5)


@pytest.mark.parametrize("weighted", [False, True])
def test_pot_agrees_on_the_uniform_law(rng: np.random.Generator, weighted: bool) -> None:
    # POT sorts the points without their weights, so they come in order.
    u, a = np.sort(rng.random(30)), weights(rng, 30) if weighted else np.full(30, 1 / 30)
    ours = osl.circular_wasserstein(u, "uniform", 2, period=1, x_weights=a).value
    assert float(ours) == pytest.approx(float(ot.semidiscrete_wasserstein2_unif_circle(u, a)[0]), rel=1e-10)


@pytest.mark.thin(pairs=True)
@pytest.mark.parametrize("n", [2000, 10_000])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("p", [1, 2, 3])
def test_the_kernel_finds_what_halving_finds(
    rng: np.random.Generator, p: float, weighted: bool, n: int
) -> None:
    u, v = rng.random(n), 0.3 * rng.random(n - 1001) + 0.9
    own = {"x_weights": weights(rng, n)} if weighted else {}
    answers = []
    for row in ROWS:
        with circle_slopes.using(row):
            answers.append(float(osl.circular_wasserstein(u, v, p, period=1, **own).value))
    assert answers[0] == pytest.approx(answers[1], rel=1e-11)


def test_angles_just_below_a_turn_are_not_a_turn_away() -> None:
    """A small negative angle is rounded up to a whole turn, which is the angle 0."""
    assert float(osl.circular_wasserstein([-1e-30], [0.0], period=1).value) == 0


@pytest.mark.parametrize(
    ("arguments", "options", "error"),
    [
        (([0.1], [0.2], 2), {"period": 0}, "`period` must be a positive real number"),
        (([0.1], [0.2], 2), {"period": "day"}, "`period` must be a positive real number"),
        (([0.1], "normal", 2), {"period": 1}, "The only law that has a name here"),
        (([0.1], "uniform", 2), {"period": 1, "y_weights": [1.0]}, "`y_weights` must be None"),
        (([0.1], [0.2], 20), {"period": 1}, "`p` must be at most 19 on circles"),
        ((0.1, [0.2], 2), {"period": 1}, "`x` must have shape"),
        (([0.1], [float("nan")], 2), {"period": 1}, "`y` must be finite"),
        (([0.1], [0.2], 2), {"period": 1, "x_weights": [0.5]}, "`x_weights` must sum to 1"),
    ],
)
def test_bad_input(arguments: tuple, options: dict, error: str) -> None:
    with pytest.raises(ValueError, match=error):
        osl.circular_wasserstein(*arguments, **options)


def test_names_of_other_libraries_are_answered() -> None:
    with pytest.raises(TypeError, match="takes `x_weights=`; got `u_weights="):
        osl.circular_wasserstein([0.1], [0.2], period=1, u_weights=[1.0])


def test_weights_have_no_gradient() -> None:
    a = torch.tensor([0.5, 0.5], requires_grad=True)
    with pytest.raises(ValueError, match="have no gradient on circles"):
        osl.circular_wasserstein(torch.zeros(2), torch.ones(2), period=3, x_weights=a)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("p", [1, 2])
def test_pot_agrees(rng: np.random.Generator, p: float, dtype: str) -> None:
    """Its own search, to its tolerance; in the type that came in."""
    u, v = rng.random(20).astype(dtype), rng.random(30).astype(dtype)
    a, b = weights(rng, 20).astype(dtype), weights(rng, 30).astype(dtype)
    ours = osl.circular_wasserstein(u, v, p, period=1, x_weights=a, y_weights=b).value
    assert ours.dtype == dtype
    for theirs in (ot.wasserstein_circle, ot.binary_search_circle):
        assert float(ours) == pytest.approx(float(theirs(u, v, a, b, p=p)[0]), rel=1e-3)


@pytest.mark.parametrize("period", [1e-300, 1e-200, 1e160, 1e300])
@pytest.mark.parametrize("p", [1, 2, 3])
def test_any_unit_of_angles(rng: np.random.Generator, p: float, period: float) -> None:
    x, y = rng.random(7), rng.random(5)
    plain = float(osl.circular_wasserstein(x, y, p, period=1).distance)
    found = osl.circular_wasserstein(x * period, y * period, p, period=period)
    assert float(found.distance) / period == pytest.approx(plain, rel=1e-9)
    if period**-1 < 1 and p * math.log10(period) > 310:
        with pytest.raises(OverflowError, match="Read `distance`"):
            _ = found.value


def test_a_column_of_a_frame_and_not_a_frame() -> None:
    """The rows of a frame with one column would be as many circles with a point each."""
    import pandas as pd

    frame = pd.DataFrame({"hour": [1.0, 2.0]})
    assert float(osl.circular_wasserstein(frame["hour"], [3.0, 4.0], period=24).distance) == 2
    for function in (
        lambda: osl.circular_wasserstein(frame, frame, period=24),
        lambda: osl.quantile_function(frame, [0.5]),
    ):
        with pytest.raises(ValueError, match="`x` must be a column"):
            function()
