"""Properties of all clouds: symmetries, SW <= W <= PW, the triangle inequality, exact masses, any scale."""

from __future__ import annotations

import math
import weakref
from fractions import Fraction
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from helpers import unit_rows
from hypothesis import example, given
from hypothesis import strategies as st
from scipy.optimize import linear_sum_assignment

import orthoslice as osl
from orthoslice.clouds.cloud import Cloud
from orthoslice.clouds.masses import integer_masses
from orthoslice.couplings.coupling import rank_pairs

# Eighths are exact in sums and differences, and coincide often.
EIGHTHS = st.integers(-40, 40).map(lambda k: k / 8)
POWERS = st.sampled_from([1.0, 1.5, 2.0, 3.0])
METHODS = st.sampled_from([osl.sliced_wasserstein, osl.projected_wasserstein])


class Weighted(NamedTuple):
    """A cloud whose point i weighs as much as `counts[i]` points, or where all weigh the same."""

    points: np.ndarray
    counts: list[int] | None

    @property
    def weights(self):
        return None if self.counts is None else np.array(self.counts) / sum(self.counts)

    def expanded(self):
        return self.points if self.counts is None else np.repeat(self.points, self.counts, axis=0)

    def map(self, function):
        return Weighted(function(self.points), self.counts)


@st.composite
def clouds(draw, n_clouds=2, dim=None, weighted=None):
    dim = draw(st.integers(1, 3)) if dim is None else dim
    drawn = []
    for _ in range(n_clouds):
        n = draw(st.integers(1, 5))
        points = draw(st.lists(EIGHTHS, min_size=n * dim, max_size=n * dim))
        has_weights = draw(st.booleans()) if weighted is None else weighted
        counts = draw(st.lists(st.integers(1, 3), min_size=n, max_size=n)) if has_weights else None
        drawn.append(Weighted(np.array(points).reshape(n, dim), counts))
    return drawn


def scores(method, x, y, p):
    """The score of every direction of a fixed set: the axes, on which grids tie, and slanted ones."""
    dim = x.points.shape[1]
    theta = np.concatenate([np.eye(dim), unit_rows(np.random.default_rng(dim), 4, dim)])
    est = method(x.points, y.points, p, x_weights=x.weights, y_weights=y.weights, directions=theta, workers=1)
    assert est._scale == 1
    return np.asarray(est.scores)


def tolerance(p, *all_clouds):
    """Projections are off by a few roundings of the points' size, and powers by a few roundings more."""
    size = 1 + 2 * sum(float(np.abs(c.points).max()) * c.points.shape[1] for c in all_clouds)
    eps = float(np.finfo(np.float64).eps)
    return {"rtol": 100 * eps, "atol": 100 * eps * size**p}


def transport_cost(x, y, p):
    """W_p^p by assignment of as many copies as both clouds need."""
    a, b = x.expanded(), y.expanded()
    n = math.lcm(len(a), len(b))
    a, b = np.repeat(a, n // len(a), axis=0), np.repeat(b, n // len(b), axis=0)
    cost = np.linalg.norm(a[:, None] - b, axis=-1) ** p
    return cost[linear_sum_assignment(cost)].mean()


@given(METHODS, clouds(), POWERS)
def test_symmetry(method, pair, p):
    x, y = pair
    np.testing.assert_allclose(scores(method, x, y, p), scores(method, y, x, p), **tolerance(p, x, y))


@given(METHODS, clouds(), POWERS, st.lists(EIGHTHS, min_size=3, max_size=3))
def test_translation(method, pair, p, shift):
    x, y = pair
    shift = 16 * np.array(shift[: x.points.shape[1]])
    moved = [c.map(lambda points: points + shift) for c in pair]
    np.testing.assert_allclose(
        scores(method, *moved, p), scores(method, x, y, p), **tolerance(p, *moved, *pair)
    )
    # Moving one cloud alone must show: every mean moves on some axis.
    if np.any(shift) and p == 2 and method is osl.sliced_wasserstein:
        means = [np.average(c.points, axis=0, weights=c.weights) for c in (x, moved[1])]
        least = (means[0] - means[1]) ** 2
        dim = len(least)
        assert np.all(scores(method, x, moved[1], p)[:dim] >= least - tolerance(p, x, moved[1])["atol"])


@given(METHODS, clouds(), POWERS, EIGHTHS)
def test_scaling(method, pair, p, factor):
    scaled = [c.map(lambda points: factor * points) for c in pair]
    expected = abs(factor) ** p * scores(method, *pair, p)
    np.testing.assert_allclose(scores(method, *scaled, p), expected, **tolerance(p, *scaled, *pair))


@given(METHODS, clouds(), POWERS, st.randoms(use_true_random=False))
def test_permutation(method, pair, p, random):
    x, y = pair
    order = list(range(len(x.points)))
    random.shuffle(order)
    shuffled = Weighted(x.points[order], None if x.counts is None else [x.counts[i] for i in order])
    np.testing.assert_allclose(scores(method, shuffled, y, p), scores(method, x, y, p), **tolerance(p, x, y))
    own = scores(method, shuffled, x, p)
    np.testing.assert_allclose(own, 0, atol=tolerance(p, x)["atol"])
    if method is osl.projected_wasserstein and x.counts is None:
        assert not own.any()


@given(METHODS, clouds(n_clouds=1), POWERS)
def test_equal_clouds(method, single, p):
    assert not scores(method, single[0], single[0], p).any()


@given(clouds(), POWERS)
def test_sliced_is_below_and_projected_above_transport(pair, p):
    exact, slack = transport_cost(*pair, p), tolerance(p, *pair)["atol"]
    assert np.all(scores(osl.sliced_wasserstein, *pair, p) <= exact + slack)
    assert np.all(scores(osl.projected_wasserstein, *pair, p) >= exact - slack)
    x, y = pair
    bounds = osl.wasserstein_bounds(
        x.points, y.points, p, x_weights=x.weights, y_weights=y.weights, rng=0, n_directions=4, workers=1
    )
    assert bounds.lower**p <= exact + slack
    assert bounds.upper**p >= exact - slack


@given(METHODS, clouds(dim=1), POWERS)
def test_on_the_line_both_are_transport(method, pair, p):
    np.testing.assert_allclose(scores(method, *pair, p), transport_cost(*pair, p), **tolerance(p, *pair))


@given(METHODS, clouds(n_clouds=3), POWERS)
def test_triangle_inequality(method, three, p):
    """For common directions, of every size and weight; both for one direction and for their mean."""
    x, y, z = three
    xy, yz, xz = (scores(method, *pair, p) for pair in ((x, y), (y, z), (x, z)))
    slack = tolerance(p, *three)["atol"] ** (1 / p)
    assert np.all(xz ** (1 / p) <= xy ** (1 / p) + yz ** (1 / p) + slack)
    xy, yz, xz = (s.mean() ** (1 / p) for s in (xy, yz, xz))
    assert xz <= xy + yz + slack


@given(METHODS, clouds(weighted=False), POWERS)
def test_equal_weights_are_no_weights(method, pair, p):
    explicit = [Weighted(c.points, [1] * len(c.points)) for c in pair]
    expected = scores(method, *pair, p)
    np.testing.assert_allclose(scores(method, *explicit, p), expected, **tolerance(p, *pair))
    np.testing.assert_allclose(scores(method, pair[0], explicit[1], p), expected, **tolerance(p, *pair))


def merge_by_fractions(n, m):
    i = j = 0
    start, pairs = Fraction(0), []
    while i < n:
        end = min(Fraction(i + 1, n), Fraction(j + 1, m))
        pairs.append((i, j, float(end - start)))
        i, j, start = i + (end == Fraction(i + 1, n)), j + (end == Fraction(j + 1, m)), end
    return pairs


@pytest.mark.parametrize("n", range(1, 13))
def test_rank_pairs_against_fractions(n):
    for m in range(1, 13):
        i, j, mass = rank_pairs(n, m, np.zeros(1))
        assert list(zip(i.tolist(), j.tolist(), mass.tolist(), strict=True)) == merge_by_fractions(n, m)


def test_large_tables_of_ranks_are_not_kept():
    """They would outlive the call, beyond its memory."""
    small, large = (weakref.ref(rank_pairs(n, 3, np.zeros(1))[0]) for n in (100, 1 << 16))
    assert small() is not None
    assert large() is None


MAGNITUDES = st.one_of(st.just(0.0), st.floats(1e-30, 1.0), st.integers(-99, 0).map(lambda k: 2.0**k))


@pytest.mark.parametrize(("xp", "dtype", "bits"), [(np, np.float64, 62), (jnp, np.float32, 30)])
@given(parts=st.lists(MAGNITUDES, min_size=7, max_size=7).filter(any))
@example(parts=[0.884, 1.274e-7, 1.2e-4, 9.22e-9, 1.779e-8, 0.116, 0.0])
def test_integer_masses(xp, dtype, bits, parts):
    weights = np.array(parts) / sum(parts)
    mass = np.asarray(integer_masses(Cloud(xp.zeros((len(weights), 1)), xp.asarray(weights))))
    assert sum(mass.tolist()) == 2**bits
    assert mass.min() >= 0
    assert not mass[weights == 0].any()
    # As good as the floating type in which the shares are computed.
    np.testing.assert_allclose(mass / 2.0**bits, weights, atol=2 * len(weights) * float(np.finfo(dtype).eps))


X, Y = np.random.default_rng(1).normal(size=(6, 3)), np.random.default_rng(2).normal(size=(5, 3)) + 1
# Powers of two change no digit: about 1e30 and 1e-30 in float32, 1e200 and 1e-200 in float64.
EXTREMES = [(xp, t, e) for xp, t, big in ((np, "float32", 100), (np, "float64", 664)) for e in (big, -big)]
EXTREMES += [(torch, "float32", 100), (torch, "float64", -664), (jnp, "float32", 100), (jnp, "float32", -100)]


def estimate(name, x, y, p):
    options = {"directions": osl.directions.Orthogonal(block_size=2), "n_directions": 64, "rng": 0}
    if name == "sliced":
        return osl.sliced_wasserstein(x, y, p, **options)
    return osl.projected_wasserstein(x, y, p, cost=name, **options)


@pytest.mark.thin(pairs=True)
@pytest.mark.parametrize("name", ["sliced", "exact", "pooled", "independent"])
@pytest.mark.parametrize("p", [1, 2, 3])
@pytest.mark.parametrize(("xp", "dtype", "exponent"), EXTREMES)
def test_extreme_values(name, p, xp, dtype, exponent):
    x, y = (xp.asarray(c, dtype=getattr(xp, dtype)) for c in (X.astype(dtype), Y.astype(dtype)))
    plain, extreme = estimate(name, x, y, p), estimate(name, x * 2.0**exponent, y * 2.0**exponent, p)
    info = np.finfo(dtype)
    pairs = [(e.distance, e.distance_stderr, *e.distance_interval()) for e in (extreme, plain)]
    for got, expected in zip(*pairs, strict=True):
        assert math.isclose(float(got), float(expected) * 2.0**exponent, rel_tol=200 * info.eps)
    if p * exponent > info.maxexp:
        with pytest.raises(OverflowError, match="`distance`"):
            _ = extreme.value
    elif p * exponent > info.minexp:
        assert math.isclose(
            float(extreme.value), float(plain.value) * 2.0 ** (p * exponent), rel_tol=200 * info.eps
        )
    else:
        assert float(extreme.value) == 0


@pytest.mark.parametrize("p", [1, 2, 3])
@pytest.mark.parametrize("exponent", [664, -664])
def test_bounds_and_couplings_of_extreme_values(p, exponent):
    scale = 2.0**exponent
    plain, extreme = (osl.wasserstein_bounds(c * X, c * Y, p, rng=0) for c in (1, scale))
    assert math.isclose(extreme.lower, plain.lower * scale, rel_tol=1e-12)
    assert math.isclose(extreme.upper, plain.upper * scale, rel_tol=1e-12)
    plain, extreme = (osl.induced_coupling(c * X, c * Y, np.eye(3)[0]) for c in (1, scale))
    if p > 1 and exponent > 0:
        with pytest.raises(OverflowError):
            extreme.cost(p)
    else:
        assert math.isclose(extreme.cost(p), float(plain.cost(p)) * scale**p, rel_tol=1e-12)


@pytest.mark.parametrize("name", ["sliced", "exact"])
def test_extreme_values_under_jit(name):
    """The compiled program scales them: distances are right, and a value that does not fit is NaN."""
    x, y = jnp.asarray(X), jnp.asarray(Y)
    run = jax.jit(lambda a, b: (lambda est: (est.distance, est.value))(estimate(name, a, b, 2)))
    distance, _ = run(x, y)
    far, value = run(x * 2.0**100, y * 2.0**100)
    assert float(far) == pytest.approx(2.0**100 * float(distance), rel=1e-5)
    assert np.isnan(value)


@pytest.mark.parametrize(
    ("p", "apart", "refused"),
    [
        (100, 0, False),
        (100, 3, False),
        (300, 0, False),
        (300, 3, False),
        (1000, 3, False),
        (1000, 0, True),
        (4000, 0, True),
        (4000, 3, True),
    ],
)
def test_large_p(p, apart, refused):
    """Right as long as powers fit, and refused beyond: never infinity."""
    x, y, theta = X[:5] - apart, Y + apart, unit_rows(np.random.default_rng(3), 6, 3)
    gaps = np.abs(np.sort(x @ theta.T, axis=0) - np.sort(y @ theta.T, axis=0))
    expected = gaps.max() * np.mean((gaps / gaps.max()) ** p) ** (1 / p)
    if refused:
        with pytest.raises(OverflowError, match="`p` is too high for these clouds"):
            osl.sliced_wasserstein(x, y, p, directions=theta)
        return
    distance = float(osl.sliced_wasserstein(x, y, p, directions=theta).distance)
    assert math.isclose(distance, expected, rel_tol=1e-9)
