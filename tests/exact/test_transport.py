"""Exact transport against enumeration, copies, quantiles and its own dual."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from helpers import weights as random_weights
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy.optimize import linear_sum_assignment
from scipy.stats import wasserstein_distance

import orthoslice as osl
from orthoslice.exact import Transport, wasserstein
from orthoslice.exact.transport import settle_few

# Sums of a few dozen costs of one sign.
EXACT = 1e-13


def by_assignment(x, y, p, x_counts=None, y_counts=None):
    """W_p by assignment of copies; the root keeps large p in range."""
    x = x if x_counts is None else np.repeat(x, x_counts, axis=0)
    y = y if y_counts is None else np.repeat(y, y_counts, axis=0)
    n = math.lcm(len(x), len(y))
    length = np.linalg.norm(
        np.repeat(x, n // len(x), axis=0)[:, None] - np.repeat(y, n // len(y), axis=0), axis=-1
    )
    largest = length.max()
    cost = (length / largest) ** p
    return largest * cost[linear_sum_assignment(cost)].mean() ** (1 / p)


@pytest.mark.parametrize("p", [1, 1.5, 2, 7, 60])
@pytest.mark.parametrize("n", [2, 3, 6])
@pytest.mark.parametrize(("engine", "method"), [("numba", "network simplex"), ("reference", "assignment")])
def test_uniform_clouds_against_all_permutations(rng, n, p, engine, method):
    x, y = rng.normal(size=(n, 3)), rng.normal(size=(n, 3)) + 0.5
    length = np.linalg.norm(x[:, None] - y[None], axis=-1)
    costs = [(length[range(n), order] ** p).mean() for order in itertools.permutations(range(n))]
    with settle_few.using(engine):
        answer = wasserstein(x, y, p)
    assert answer.method == method
    assert answer.verify()
    assert math.isclose(answer.value, min(costs), rel_tol=EXACT)
    assert math.isclose(answer.distance, min(costs) ** (1 / p), rel_tol=EXACT)
    assert math.isclose(float(answer.coupling.cost(p)), answer.value, rel_tol=EXACT)


@pytest.mark.parametrize("p", [1, 2, 3.5])
def test_weights_are_copies(rng, p):
    x, y = rng.normal(size=(7, 3)), rng.normal(size=(5, 3))
    x_counts, y_counts = [1, 4, 2, 2, 0, 3, 1], [2, 1, 5, 1, 3]
    answer = wasserstein(x, y, p, x_weights=np.array(x_counts) / 13, y_weights=np.array(y_counts) / 12)
    assert answer.method == "network simplex"
    assert math.isclose(answer.distance, by_assignment(x, y, p, x_counts, y_counts), rel_tol=EXACT)
    # Negative control: without the weights it is another distance.
    assert not math.isclose(answer.distance, wasserstein(x, y, p).distance, rel_tol=1e-3)


@pytest.mark.parametrize("p", [1, 2, 8, 50, 200])
def test_unequal_sizes_keep_their_digits_at_large_p(rng, p):
    x, y = rng.normal(size=(6, 3)), rng.normal(size=(8, 3)) + 1
    assert math.isclose(wasserstein(x, y, p).distance, by_assignment(x, y, p), rel_tol=1e-11)


@pytest.mark.parametrize("far", [30.0, 1e8, 1e160, 1e300])
@pytest.mark.parametrize("p", [1, 2, 8, 50, 200])
@pytest.mark.parametrize("weighted", [False, True])
def test_a_shared_far_point_changes_nothing_for_the_others(rng, weighted, p, far):
    """Costs of pairs with it are up to 10^60000 times the answer, and no optimal coupling pays them."""
    x, y = rng.normal(size=(6, 2)), rng.normal(size=(6, 2)) + 1
    expected = by_assignment(x, y, p) * (6 / 7) ** (1 / p)
    x, y = (np.concatenate([c, [[far, -far]]]) for c in (x, y))
    masses = {"x_weights": [*[2 / 14] * 6, 1 / 14, 1 / 14], "y_weights": [2 / 14] * 7} if weighted else {}
    x = np.concatenate([x, x[-1:]]) if weighted else x
    answer = wasserstein(x, y, p, **masses)
    assert answer.method == "network simplex"
    assert math.isclose(answer.distance, expected, rel_tol=1e-9)


@pytest.mark.parametrize("weighted", [False, True])
def test_couplings_have_the_right_masses(rng, weighted):
    x, y = rng.normal(size=(9, 2)), rng.normal(size=(14, 2))
    a, b = (random_weights(rng, n) if weighted else None for n in (9, 14))
    answer = wasserstein(x, y, 2, x_weights=a, y_weights=b)
    plan = answer.coupling.to_dense()
    np.testing.assert_allclose(plan.sum(axis=1), np.full(9, 1 / 9) if a is None else a, rtol=0, atol=1e-14)
    np.testing.assert_allclose(plan.sum(axis=0), np.full(14, 1 / 14) if b is None else b, rtol=0, atol=1e-14)
    assert math.isclose(float(answer.coupling.cost(2)), answer.value, rel_tol=EXACT)
    # A vertex of the polytope: no more pairs than equations.
    assert len(answer.coupling.mass) <= 9 + 14 - 1


@pytest.mark.parametrize("weighted", [False, True])
def test_one_dimension_is_a_sort(rng, weighted):
    x, y = rng.normal(size=40), rng.normal(size=25)
    a, b = (random_weights(rng, n) if weighted else None for n in (40, 25))
    answer = wasserstein(x[:, None], y[:, None], 1, x_weights=a, y_weights=b)
    assert answer.method == "sorting"
    assert math.isclose(answer.distance, wasserstein_distance(x, y, a, b), rel_tol=1e-12)
    # The same clouds on a slanted line are solved in full.
    line = np.array([0.6, 0.8])
    slanted = wasserstein(np.outer(x, line), np.outer(y, line), 1, x_weights=a, y_weights=b)
    assert slanted.method == "network simplex"
    assert math.isclose(slanted.distance, answer.distance, rel_tol=1e-12)


def test_a_single_point_has_one_coupling(rng):
    y, b = rng.normal(size=(2000, 4)), random_weights(rng, 2000)
    answer = wasserstein(np.zeros((1, 4)), y, 2, y_weights=b)
    assert math.isclose(answer.value, b @ (y**2).sum(axis=1), rel_tol=1e-12)


@settings(max_examples=60)
@given(
    x=st.integers(1, 5).flatmap(lambda n: arrays(float, (n, 2), elements=st.integers(-2, 2))),
    y=st.integers(1, 5).flatmap(lambda n: arrays(float, (n, 2), elements=st.integers(-2, 2))),
    p=st.sampled_from([1.0, 2.0, 3.0]),
)
def test_grids_with_duplicates(x, y, p):
    answer = wasserstein(x, y, p)
    if (x[:, None] == y).all():
        assert answer.distance == 0
    else:
        assert math.isclose(answer.distance, by_assignment(x, y, p), rel_tol=1e-12, abs_tol=1e-12)
    assert math.isclose(wasserstein(y, x, p).distance, answer.distance, rel_tol=1e-12, abs_tol=1e-12)


def test_equal_clouds_in_any_order(rng):
    x, order = rng.normal(size=(30, 3)), rng.permutation(30)
    a = random_weights(rng, 30)
    assert wasserstein(x, x[order]).distance == 0
    assert wasserstein(x, np.repeat(x[order], 2, axis=0)).distance == 0
    assert wasserstein(x, x[order], x_weights=a, y_weights=a[order]).distance == 0


@pytest.mark.parametrize("step", [1e-3, 1e-6, 1e-9])
def test_nearly_equal_clouds_keep_their_digits(rng, step):
    x, order = rng.normal(size=(30, 3)), rng.permutation(30)
    moved, a = x + step * rng.normal(size=x.shape), random_weights(rng, 30)
    expected = math.sqrt(a @ ((x - moved) ** 2).sum(axis=1))
    answer = wasserstein(x, moved[order], x_weights=a, y_weights=a[order])
    assert math.isclose(answer.distance, expected, rel_tol=1e-9)


@pytest.mark.parametrize("p", [1, 2, 3])
@pytest.mark.parametrize("dim", [1, 2, 3])
def test_rows_and_their_counts_are_the_same_law(rng, dim, p):
    rows = rng.integers(0, 3, size=(50, dim)).astype(float)
    distinct, counts = np.unique(rows, axis=0, return_counts=True)
    assert wasserstein(rows, distinct, p, y_weights=counts / 50).distance == 0
    for step in (1e-6, 1e-12):
        moved = rows + step * rng.choice([-1.0, 1.0], size=rows.shape)
        expected = np.mean(np.linalg.norm(moved - rows, axis=1) ** p) ** (1 / p)
        answer = wasserstein(moved, distinct, p, y_weights=counts / 50)
        assert math.isclose(answer.distance, expected, rel_tol=1e-12)


@pytest.mark.parametrize("p", [1, 2, 3])
@pytest.mark.parametrize("dim", [1, 3, 7])
def test_weights_that_were_added_up_are_the_same_law(rng, dim, p):
    # As in SciPy's tests of `wasserstein_distance_nd`: sums of weights are rounded.
    repeats = rng.integers(1, 10, size=35)
    x, b = rng.random((35, dim)), random_weights(rng, int(repeats.sum()))
    a = np.bincount(np.repeat(np.arange(35), repeats), weights=b)
    order = rng.permutation(len(b))
    y = np.repeat(x, repeats, axis=0)[order]
    assert wasserstein(x, y, p, x_weights=a, y_weights=b[order]).distance == 0
    # What is more than rounding is not taken for it.
    a[:2] += 1e-9, -1e-9
    least = 1e-9 * np.linalg.norm(x[0] - x[1]) ** p / 34 ** (p - 1)  # by all other points, in equal steps
    assert wasserstein(x, y, p, x_weights=a, y_weights=b[order]).value > 0.999 * least


def test_bounds_enclose_it(rng):
    for p in (1, 2):
        x, y, b = rng.normal(size=(25, 4)), rng.normal(size=(30, 4)) + 1, random_weights(rng, 30)
        bounds = osl.wasserstein_bounds(x, y, p, y_weights=b, rng=0)
        assert bounds.lower <= wasserstein(x, y, p, y_weights=b).distance <= bounds.upper


@pytest.mark.parametrize("exponent", [1000, 600, -600, -1000])
@pytest.mark.parametrize("p", [1, 2, 3])
def test_huge_and_tiny_coordinates(rng, p, exponent):
    x, y, scale = rng.normal(size=(5, 2)), rng.normal(size=(7, 2)), 2.0**exponent
    plain, scaled = wasserstein(x, y, p), wasserstein(x * scale, y * scale, p)
    assert math.isclose(scaled.distance, plain.distance * scale, rel_tol=1e-13)
    if p * exponent > 1000:
        with pytest.raises(OverflowError, match="Read `distance`"):
            _ = scaled.value
    elif p * exponent > -1000:
        assert math.isclose(scaled.value, plain.value * scale**p, rel_tol=1e-13)
    else:
        assert scaled.value < 1e-300


def test_every_library_gives_floats(backend, rng):
    x, y, a = rng.normal(size=(6, 2)), rng.normal(size=(4, 2)), random_weights(rng, 6)
    answer = wasserstein(backend.asarray(x), backend.asarray(y), 2, x_weights=backend.asarray(a))
    expected = wasserstein(x, y, 2, x_weights=a)
    assert isinstance(answer, Transport)
    assert isinstance(answer.value, float)
    assert isinstance(answer.distance, float)
    assert isinstance(answer.coupling.mass, np.ndarray)
    assert math.isclose(answer.value, expected.value, rel_tol=backend.tolerance(10)["rtol"])
    for function in (osl.exact.sliced_plane, osl.exact.projected_plane):
        value = function(backend.asarray(x), backend.asarray(y), 1, x_weights=backend.asarray(a))
        assert isinstance(value, float)
        assert math.isclose(value, function(x, y, 1, x_weights=a), rel_tol=backend.tolerance(10)["rtol"])
    two = osl.exact.sliced_two_points(backend.asarray(x[:2]), backend.asarray(y[:2]), 1)
    assert isinstance(two, float)


def test_tracers_are_refused():
    import jax
    import jax.numpy as jnp

    x = jnp.zeros((2, 2))
    functions = {
        "wasserstein": lambda a: wasserstein(a, x).distance,
        "sliced_plane": lambda a: osl.exact.sliced_plane(a, x, 1),
        "sliced_two_points": lambda a: osl.exact.sliced_two_points(a, x, 1),
        "Stratified": lambda a: osl.directions.Stratified(a, x).cost.sum(),
    }
    for name, function in functions.items():
        with pytest.raises(TypeError, match=f"`{name}` needs values and cannot be traced"):
            jax.jit(function)(x)


GOOD = np.zeros((3, 2))


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"p": 0.5}, ValueError, "`p` must be .*at least 1.*; got 0.5"),
        ({"p": np.ones(3) / 3}, TypeError, "POT takes third"),
        ({"x": np.zeros((4, 3, 2))}, ValueError, r"must be single clouds \(n, dim\) for `wasserstein`"),
        ({"y": np.zeros((3, 3))}, ValueError, "must share `dim`"),
        ({"x_weights": [0.5, 0.5, 0.5]}, ValueError, "`x_weights` must sum to 1"),
        ({"x": [[np.nan, 0]]}, ValueError, "`x` must be finite"),
    ],
)
def test_bad_input_is_named(change, error, message):
    arguments = {"x": GOOD, "y": GOOD, "p": 2} | change
    with pytest.raises(error, match=message):
        wasserstein(arguments.pop("x"), arguments.pop("y"), arguments.pop("p"), **arguments)


def test_repr_says_how():
    assert repr(wasserstein([[0.0, 0.0]], [[3.0, 4.0]], 1)) == "Transport(W_1 = 5 by sorting)"


def test_without_numba_uneven_clouds_are_refused_in_words(rng, monkeypatch):
    x, y = rng.normal(size=(8, 2)), rng.normal(size=(6, 2))
    monkeypatch.setattr("orthoslice.exact.transport.numba_refusal", lambda: "numba is missing")
    assert wasserstein(x[:6], y).verify()
    with pytest.raises(ImportError, match="weights or of unequal sizes needs numba: numba is missing"):
        wasserstein(x, y)
