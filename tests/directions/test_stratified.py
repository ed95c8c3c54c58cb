"""Stratified directions: uniform rows, exact regions, and errors that never exceed those of iid directions.

Seeds are fixed, so a test passes or fails for good; false-alarm rates are those of fresh seeds and right code.
"""

from __future__ import annotations

import math
import pickle

import numpy as np
import pytest
from helpers import weights as random_weights
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy import stats
from thinning import examples

import orthoslice as osl
from orthoslice.backend.arrays import Key
from orthoslice.directions import Orthogonal, Stratified
from orthoslice.exact import angular_score, estimator_mse_plane, projected_plane

# Kolmogorov-Smirnov tests reject at this rate.
FALSE_ALARM = 1e-5
# n, m, dim: the plane, space, two points anywhere, one coupling only, and the line.
SIZES = [(2, 2, 2), (3, 3, 2), (7, 5, 2), (3, 3, 3), (4, 4, 3), (6, 3, 3), (2, 2, 5), (2, 2, 40), (1, 4, 3)]


def problem(n, m, dim, seed=0):
    rng = np.random.default_rng([n, m, dim, seed])
    return rng.normal(size=(n, dim)), rng.normal(size=(m, dim)) + 0.3


def blocks(sampler, n_blocks, rows, dim, seed=0):
    """Independent draws, `(n_blocks, rows, dim)`."""
    key = Key.from_seed(seed, np.zeros(1))
    index = np.arange(n_blocks, dtype=np.int32)
    return sampler.blocks(key, index, rows, dim, np.dtype(np.float64)).theta.reshape(n_blocks, rows, dim)


def scores(distance, x, y, p, theta):
    """The score of every direction, in the shape of `theta` but for the last axis."""
    flat = distance(x, y, p, directions=theta.reshape(-1, theta.shape[-1]), workers=1).scores
    return np.asarray(flat).reshape(theta.shape[:-1])


@pytest.mark.parametrize(("n", "m", "dim"), SIZES)
def test_every_row_is_uniform(n, m, dim):
    """Along an axis and along a difference of points, which is what the regions look at."""
    x, y = problem(n, m, dim)
    theta = blocks(Stratified(x, y), 4000, 4, dim)
    np.testing.assert_allclose(np.linalg.norm(theta, axis=-1), 1, rtol=1e-14)
    law = stats.beta((dim - 1) / 2, (dim - 1) / 2, loc=-1, scale=2).cdf
    step = y[1] - y[0]
    for row in range(4):
        for axis in (np.eye(dim)[0], step / np.linalg.norm(step)):
            assert stats.kstest(theta[:, row] @ axis, law).pvalue > FALSE_ALARM
        turn = np.mod(np.arctan2(theta[:, row, 1], theta[:, row, 0]), 2 * np.pi)
        assert stats.kstest(turn, stats.uniform(0, 2 * np.pi).cdf).pvalue > FALSE_ALARM


def test_rows_are_not_uniform_without_the_shuffle():
    """Negative control: the row with the cheapest coupling of each draw."""
    x, y = problem(3, 3, 2)
    theta = blocks(Stratified(x, y), 4000, 4, 2)
    cheapest = np.argmin(scores(osl.projected_wasserstein, x, y, 2, theta), axis=1)
    first = np.take_along_axis(theta, cheapest[:, None, None], axis=1)[:, 0]
    turn = np.mod(np.arctan2(first[:, 1], first[:, 0]), 2 * np.pi)
    assert stats.kstest(turn, stats.uniform(0, 2 * np.pi).cdf).pvalue < 1e-10


def test_on_the_line_signs_are_fair():
    theta = blocks(Stratified(*problem(4, 3, 1)), 1000, 3, 1)
    assert set(np.unique(theta)) == {-1.0, 1.0}
    assert abs(theta.mean()) < 5 / math.sqrt(theta.size)


@pytest.mark.parametrize("dim", [2, 3, 5, 40])
def test_two_points_have_known_probabilities(dim):
    x, y = problem(2, 2, dim)
    a, b = x[1] - x[0], y[1] - y[0]
    same = 1 - math.acos(a @ b / np.linalg.norm(a) / np.linalg.norm(b)) / math.pi
    straight, crossed = (np.sum((x - y[order]) ** 2) / 2 for order in ([0, 1], [1, 0]))
    order = [0, 1] if straight < crossed else [1, 0]
    sampler = Stratified(x, y)
    np.testing.assert_allclose(sampler.probability, np.array([same, 1 - same])[order], rtol=1e-12)
    np.testing.assert_allclose(sampler.cost, np.array([straight, crossed])[order], rtol=1e-12)


@pytest.mark.parametrize(("n", "m", "weighted"), [(2, 2, False), (6, 6, False), (9, 4, False), (5, 7, True)])
@pytest.mark.parametrize("p", [1, 2])
def test_plane_probabilities_give_the_exact_distance(n, m, weighted, p):
    x, y = problem(n, m, 2)
    rng = np.random.default_rng(n)
    options = {"x_weights": random_weights(rng, n), "y_weights": random_weights(rng, m)} if weighted else {}
    sampler = Stratified(x, y, p=p, **options)
    assert math.isclose(sampler.probability.sum(), 1, rel_tol=1e-14)
    assert (np.diff(sampler.cost) >= 0).all()
    exact = projected_plane(x, y, p, **options)
    assert math.isclose(sampler.probability @ sampler.cost, exact, rel_tol=1e-11)


grid = st.integers(1, 4).flatmap(lambda n: arrays(float, (n, 2), elements=st.integers(-1, 1)))


@examples(100)
@given(x=grid, y=grid, p=st.sampled_from([1, 2]))
def test_ties_and_coincident_points_of_grids(x, y, p):
    sampler = Stratified(x, y, p=p)
    exact = projected_plane(x, y, p)
    assert math.isclose(sampler.probability @ sampler.cost, exact, rel_tol=1e-12, abs_tol=1e-12)


@pytest.mark.parametrize(("n", "m"), [(3, 3), (4, 4), (5, 2), (8, 8)])
def test_space_probabilities_against_a_long_run(n, m):
    """Shares of 10^5 iid directions, by a chi-square test at 1e-5; a shift of probability must be seen."""
    x, y = problem(n, m, 3)
    sampler = Stratified(x, y)
    theta = osl.directions.IID().sample(100_000, 3, rng=1).theta
    found = scores(osl.projected_wasserstein, x, y, 2, theta)
    # Couplings have different costs here, so that the cost tells which one it is.
    assert np.diff(sampler.cost).min() > 1e-9
    label = np.searchsorted((sampler.cost[1:] + sampler.cost[:-1]) / 2, found)
    np.testing.assert_allclose(sampler.cost[label], found, rtol=1e-9)
    counts = np.bincount(label, minlength=len(sampler.cost))
    expected = 100_000 * sampler.probability
    often = expected > 10
    rest = [counts[~often].sum()], [expected[~often].sum()]
    observed, expected = np.append(counts[often], rest[0]), np.append(expected[often], rest[1])
    observed, expected = observed[expected > 0], expected[expected > 0]
    assert stats.chisquare(observed, expected).pvalue > 1e-5
    shifted = expected * (1 + 0.1 * np.where(np.arange(len(expected)) % 2, 1, -1))
    assert stats.chisquare(observed, shifted * observed.sum() / shifted.sum()).pvalue < 1e-5


@pytest.mark.parametrize(("n", "m", "dim"), [(2, 2, 2), (4, 4, 2), (4, 4, 3), (2, 2, 7)])
def test_every_coupling_is_drawn_as_often_as_it_should(n, m, dim):
    """In each draw the count of a coupling is within 2 of N times its probability: a cell at either end."""
    x, y = problem(n, m, dim)
    sampler = Stratified(x, y)
    theta = blocks(sampler, 200, 30, dim)
    found = scores(osl.projected_wasserstein, x, y, 2, theta)
    for cost, probability in zip(sampler.cost, sampler.probability, strict=True):
        counts = np.isclose(found, cost, rtol=1e-9).sum(axis=1)
        assert np.abs(counts - 30 * probability).max() < 2
        # Five errors of a mean of bounded counts.
        assert abs(counts.mean() - 30 * probability) <= 5 * counts.std() / math.sqrt(200) + 1e-9


def cells(sampler, n_directions):
    """The share of every coupling in every cell, `(n_directions, couplings)`; rows sum to 1."""
    ends = np.concatenate([[0.0], np.cumsum(sampler.probability)])
    edges = np.arange(n_directions + 1) / n_directions
    low, high = np.maximum(ends[:-1], edges[:-1, None]), np.minimum(ends[1:], edges[1:, None])
    return np.maximum(high - low, 0.0) * n_directions


def exact_errors(sampler, x, y, p, method, n_directions, **options):
    """MSE of iid and of stratified directions in the plane: Var f / N, less Var(cell means) / N."""
    function = angular_score(x, y, p, method=method, **options)
    iid = function.variance() / n_directions
    start, length = sampler.regions.piece.T
    breaks = np.unique(np.concatenate([function.breaks, start, start + length]))
    node, weight = np.polynomial.legendre.leggauss(12)
    half = np.diff(breaks) / 2
    centre = breaks[:-1] + half
    integral = half * (function(centre[:, None] + half[:, None] * node) @ weight)
    by_start = np.argsort(start)
    arc = by_start[np.searchsorted(start[by_start], centre) - 1]
    mean = np.bincount(sampler.regions.group[arc], integral) / np.pi / sampler.probability
    gain = np.var(cells(sampler, n_directions) @ mean) / n_directions
    return iid, iid - gain, gain


@pytest.mark.parametrize("method", ["sliced", "projected"])
@pytest.mark.parametrize(("n", "m", "weighted"), [(2, 2, False), (3, 3, False), (5, 8, False), (6, 4, True)])
def test_exact_error_is_less_than_iid(method, n, m, weighted):
    for seed in range(5):
        x, y = problem(n, m, 2, seed)
        rng = np.random.default_rng(seed)
        options = {"x_weights": random_weights(rng, n)} if weighted else {}
        for p in (1, 2):
            sampler = Stratified(x, y, p=p, **options)
            for n_directions in (2, 3, 10):
                iid, stratified, gain = exact_errors(sampler, x, y, p, method, n_directions, **options)
                # Strictly less, as the theorem says: mean scores of couplings differ.
                assert gain > 1e-9 * iid
                assert stratified >= -1e-12 * iid
                exact = estimator_mse_plane(x, y, p, method=method, n_directions=n_directions, **options)
                assert math.isclose(iid, exact, rel_tol=1e-12)


@examples(60)
@given(x=grid, y=grid, p=st.sampled_from([1, 2]), n_directions=st.integers(1, 6))
def test_strictly_better_exactly_where_costs_differ(x, y, p, n_directions):
    sampler = Stratified(x, y, p=p)
    iid, _, gain = exact_errors(sampler, x, y, p, "projected", n_directions)
    if n_directions > 1 and np.ptp(sampler.cost) > 1e-12:
        assert gain > 1e-6 * iid
    else:
        assert gain < 1e-20
    iid, _, gain = exact_errors(sampler, x, y, p, "sliced", n_directions)
    assert -1e-15 <= gain <= iid + 1e-15


@pytest.mark.parametrize(("method", "p"), [("sliced", 1), ("projected", 2)])
def test_simulated_error_is_the_exact_one(method, p):
    """5 standard errors; a fifth more must be seen."""
    x, y = problem(4, 4, 2)
    distance = {"sliced": osl.sliced_wasserstein, "projected": osl.projected_wasserstein}[method]
    truth = angular_score(x, y, p, method=method).mean()
    sampler = Stratified(x, y, p=p)
    _, exact, _ = exact_errors(sampler, x, y, p, method, 5)
    square = (scores(distance, x, y, p, blocks(sampler, 20_000, 5, 2)).mean(axis=1) - truth) ** 2
    error = square.std() / math.sqrt(len(square))
    assert abs(square.mean() - exact) < 5 * error
    assert abs(square.mean() - 1.2 * exact) > 5 * error


@pytest.mark.parametrize(("n", "m", "dim"), [(3, 3, 3), (4, 4, 3), (2, 2, 6)])
@pytest.mark.parametrize("name", ["sliced", "projected"])
def test_simulated_error_in_higher_dimension(n, m, dim, name):
    """Five standard errors each: no bias, and the error of iid directions less the variance of cell means.

    How the score depends on the coupling is learned from 60,000 iid directions.
    """
    x, y = problem(n, m, dim)
    distance = {"sliced": osl.sliced_wasserstein, "projected": osl.projected_wasserstein}[name]
    sampler = Stratified(x, y)
    theta = osl.directions.IID().sample(60_000, dim, rng=2).theta
    score, cost = scores(distance, x, y, 2, theta), scores(osl.projected_wasserstein, x, y, 2, theta)
    label = np.searchsorted((sampler.cost[1:] + sampler.cost[:-1]) / 2, cost)
    mean = np.bincount(label, score, len(sampler.cost)) / np.maximum(np.bincount(label), 1)
    gain = np.var(cells(sampler, 6) @ mean) / 6
    expected = score.var() / 6 - gain
    means = scores(distance, x, y, 2, blocks(sampler, 6000, 6, dim)).mean(axis=1)
    bias_error = math.hypot(means.std() / math.sqrt(6000), score.std() / math.sqrt(60_000))
    assert abs(means.mean() - score.mean()) < 5 * bias_error
    square, by_iid = (means - means.mean()) ** 2, (score - score.mean()) ** 2 / 6
    error = math.hypot(square.std() / math.sqrt(6000), by_iid.std() / math.sqrt(60_000))
    assert abs(square.mean() - expected) < 5 * error
    if name == "projected":
        # All the error of PW lies between couplings, so most of it goes; iid directions would be seen.
        assert square.mean() < by_iid.mean() / 2
        assert abs(by_iid.mean() - expected) > 5 * error


@pytest.mark.parametrize("n_directions", [2, 3, 8])
def test_the_definition_of_the_paper(n_directions):
    """Condition (ii) on the diagonal, and what its proof needs: a negative semidefinite matrix."""
    for n, m, dim in [(2, 2, 2), (4, 4, 2), (4, 4, 3)]:
        sampler = Stratified(*problem(n, m, dim))
        share, p = cells(sampler, n_directions), sampler.probability
        np.testing.assert_allclose(share.sum(axis=1), 1, rtol=1e-12)
        np.testing.assert_allclose(share.mean(axis=0), p, rtol=1e-9, atol=1e-15)
        # Two different rows come from two different cells, shuffled.
        joint = (np.outer(share.sum(axis=0), share.sum(axis=0)) - share.T @ share) / (
            n_directions * (n_directions - 1)
        )
        assert (np.diag(joint) <= p**2 + 1e-15).all()
        assert np.linalg.eigvalsh(joint - np.outer(p, p)).max() < 1e-14


@pytest.mark.parametrize("seed", range(6))
def test_orthogonal_pairs_of_the_2x2_proposition_are_stratified(seed):
    """P(both in A), P(both in B) and P(one each way), exactly, drawn, and for two stratified directions."""
    x, y = problem(2, 2, 2, seed)
    sampler = Stratified(x, y)
    p = sampler.probability[0]
    proposition = np.array(
        [
            [2 * max(p - 0.5, 0), 0.5 - abs(0.5 - p)],
            [0.5 - abs(0.5 - p), 2 * max(0.5 - p, 0)],
        ]
    )
    # Exactly: the labels of both directions are constant between these angles.
    start = sampler.regions.piece[:, 0]
    breaks = np.unique(np.concatenate([start, np.mod(start + np.pi / 2, np.pi), [np.pi / 2, np.pi]]))
    middle, share = (breaks[1:] + breaks[:-1]) / 2, np.diff(breaks) / np.pi
    by_start = np.argsort(start)

    def label(angle):
        arc = by_start[np.searchsorted(start[by_start], np.mod(angle, np.pi)) - 1]
        return sampler.regions.group[arc]

    exact = np.zeros((2, 2))
    np.add.at(exact, (label(middle), label(middle + np.pi / 2)), share)
    np.testing.assert_allclose(exact, proposition, atol=1e-14)
    # Stratified in the sense of the paper: (ii) and exchangeable; (i) as PW is constant on regions.
    q = sampler.probability
    assert (np.diag(exact) <= q**2 + 1e-15).all()
    assert exact[0, 1] >= q[0] * q[1] - 1e-15
    # Two stratified directions have the same joint law, so PW has the same error.
    first, second = cells(sampler, 2)
    np.testing.assert_allclose((np.outer(first, second) + np.outer(second, first)) / 2, proposition, atol=1e-14)
    _, stratified, _ = exact_errors(sampler, x, y, 2, "projected", 2)
    iid, orthogonal = (
        estimator_mse_plane(x, y, 2, method="projected", directions=name, n_directions=2)
        for name in ("iid", "orthogonal")
    )
    assert math.isclose(stratified, orthogonal, rel_tol=1e-9, abs_tol=1e-14 * iid)
    assert orthogonal < iid
    # What the sampler of orthogonal directions draws, within five errors of a share of 10^4.
    theta = Orthogonal().sample(20_000, 2, rng=seed).theta.reshape(-1, 2, 2)
    drawn = label(np.arctan2(theta[..., 1], theta[..., 0]))
    frequency = np.zeros((2, 2))
    np.add.at(frequency, (drawn[:, 0], drawn[:, 1]), 1e-4)
    assert (np.abs(frequency - proposition) <= 5 * np.sqrt(proposition * (1 - proposition) / 10_000)).all()


def test_one_draw_is_one_block_without_an_error_bar():
    x, y = problem(3, 3, 2)
    sampler = Stratified(x, y)
    assert sampler.sample(9, 2, rng=0).block.tolist() == [0] * 9
    assert sampler.sample(0, 2, rng=0).theta.shape == (0, 2)
    est = osl.projected_wasserstein(x, y, directions=sampler, n_directions=9, rng=0)
    assert est.n_blocks == 1
    assert math.isnan(est.stderr)
    again = osl.projected_wasserstein(
        x, y, directions=est.directions, n_directions=est.n_directions, rng=est.seed
    )
    assert again.value == est.value
    np.testing.assert_array_equal(sampler.row(4, 9, 2, rng=3), sampler.sample(9, 2, rng=3).theta[4])


def test_a_value_like_the_other_samplers():
    x, y = problem(3, 3, 2)
    sampler = Stratified(x, y)
    assert sampler == Stratified(x.tolist(), y)
    assert hash(sampler) == hash(pickle.loads(pickle.dumps(sampler)))
    assert sampler != Stratified(x, y, p=1)
    assert sampler != Stratified(x, y + 1)
    with pytest.raises(AttributeError):
        sampler.p = 3
    with pytest.raises(ValueError, match="read-only"):
        sampler.x[0, 0] = 1
    x[0, 0] = 99
    assert sampler.x[0, 0] != 99
    assert repr(sampler) == "Stratified(x of shape (3, 2), y of shape (3, 2): 5 couplings)"


@pytest.mark.parametrize(("n", "m", "dim"), [(3, 4, 2), (4, 4, 3), (2, 2, 6)])
def test_the_same_directions_on_every_library(backend, n, m, dim):
    x, y = problem(n, m, dim)
    sampler = Stratified(backend.asarray(x), backend.asarray(y))
    expected = osl.sliced_wasserstein(x, y, 1, directions=Stratified(x, y), n_directions=8, rng=5).value
    got = osl.sliced_wasserstein(
        backend.asarray(x), backend.asarray(y), 1, directions=sampler, n_directions=8, rng=5
    ).value
    assert math.isclose(float(got), float(expected), rel_tol=10 * backend.tolerance(8)["rtol"])


def test_a_traced_key_draws_the_same():
    import jax
    import jax.numpy as jnp

    x, y = (jnp.asarray(c) for c in problem(4, 4, 3))
    sampler = Stratified(x, y)

    def value(x, y, key):
        return osl.sliced_wasserstein(x, y, 1, directions=sampler, n_directions=8, rng=key).value

    key = jax.random.key(3)
    np.testing.assert_allclose(jax.jit(value)(x, y, key), value(x, y, key), rtol=1e-5)


@pytest.mark.parametrize("scale", [2.0**600, 2.0**-600])
def test_huge_and_tiny_coordinates(scale):
    x, y = problem(3, 3, 3)
    plain, scaled = Stratified(x, y, p=1), Stratified(scale * x, scale * y, p=1)
    np.testing.assert_array_equal(scaled.probability, plain.probability)
    np.testing.assert_allclose(scaled.cost, scale * plain.cost, rtol=1e-14)


def test_clouds_in_a_plane_of_higher_dimension():
    """Only the span of the differences counts: the plane has the same probabilities wherever it lies."""
    x, y = problem(6, 5, 2)
    place = np.linalg.qr(np.random.default_rng(1).normal(size=(7, 2)))[0].T
    flat, lifted = Stratified(x, y), Stratified(x @ place + 3, y @ place + 3)
    np.testing.assert_allclose(lifted.probability, flat.probability, rtol=0, atol=1e-12)
    np.testing.assert_allclose(lifted.cost, flat.cost, rtol=1e-12)


@pytest.mark.parametrize(
    ("sizes", "message"),
    [
        ((3, 3, 4), r"must span at most 3 dimensions together.*; got 4\..*Orthogonal"),
        ((12, 3, 3), r"at most 64 differences.*; got 69\..*Orthogonal"),
        ((200, 3, 2), r"at most 16384 differences.*; got 19903\..*Orthogonal"),
    ],
)
def test_what_is_not_supported_is_said(sizes, message):
    with pytest.raises(ValueError, match=message):
        Stratified(*problem(*sizes))


def test_bad_input_is_named():
    x, y = problem(3, 3, 2)
    with pytest.raises(ValueError, match=r"`p` must be .*at least 1"):
        Stratified(x, y, p=0)
    with pytest.raises(ValueError, match=r"must be single clouds \(n, dim\) for `Stratified`"):
        Stratified(x[None], y)
    with pytest.raises(ValueError, match=r"stratified for clouds of dim = 2; got dim = 3"):
        Stratified(x, y).sample(4, 3)
