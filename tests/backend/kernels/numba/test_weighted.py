"""Merges of weighted clouds against plain references and float64, at awkward sizes."""

from __future__ import annotations

import numpy as np
import pytest

import orthoslice as osl
from orthoslice.clouds.cloud import make_clouds
from orthoslice.clouds.ready import ReadyCloud, as_given, with_masses
from orthoslice.costs.weighted import weighted_slopes
from orthoslice.couplings import coupling
from orthoslice.couplings.coupling import couple
from orthoslice.estimates.population import study_lines

SIZES = [1, 2, 63, 257, 1000, 4097]
DTYPES = [np.float32, np.float64]
POWERS = [1.0, 1.5, 2.0, 3.0]
EVERYTHING = (True, True, True, True)

pytest.importorskip("numba")


def some_weights(rng: np.random.Generator, *shape: int) -> np.ndarray:
    """Weights that sum to 1; a third of them are 0, and many are equal."""
    weights = rng.integers(0, 3, size=shape).astype(float)
    weights[..., rng.integers(shape[-1])] += 1
    return weights / weights.sum(axis=-1, keepdims=True)


def weighted_pair(rng, n, m, dtype, batch=()):
    """Clouds that only lend their weights: the projections are made apart."""
    x, y = (ReadyCloud(np.zeros((*batch, k, 1), dtype), some_weights(rng, *batch, k)) for k in (n, m))
    return with_masses(x, y)


def distinct(rng, slices, batch, n, dtype):
    """Projections without ties, whose slopes are determined."""
    spread = np.arange(n) + 0.9 * rng.random((slices, *batch, n))
    return (rng.permuted(spread, axis=-1) / n).astype(dtype)


def both_rows(operation, *arguments):
    with operation.using("reference"):
        expected = operation(*arguments)
    with operation.using("numba"):
        return operation(*arguments), expected


def assert_slopes_agree(found, expected, dtype, n):
    """Scores, slopes by the projections and by the weights; the plain reference prices in the clouds' type."""
    tolerance = {np.float32: 1e-5, np.float64: 1e-12}[dtype]
    (scores, slopes, by_weights), (scores_0, slopes_0, by_weights_0) = found, expected
    assert scores.dtype == np.float64
    np.testing.assert_allclose(scores, scores_0, rtol=10 * tolerance, atol=tolerance / n)
    assert len(slopes) == len(slopes_0)
    assert len(by_weights) == len(by_weights_0)
    for a, b in zip((*slopes, *by_weights), (*slopes_0, *by_weights_0), strict=True):
        assert (a.dtype, a.shape) == (dtype, b.shape)
        np.testing.assert_allclose(a, b, atol=10 * tolerance * (1 + np.abs(b).max()))


@pytest.mark.parametrize("other_side", [False, True])
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("n", SIZES)
def test_slopes(n, dtype, other_side, rng):
    for m in {n, max(1, 2 * n // 3)}:
        x, y = weighted_pair(rng, n, m, dtype)
        px, py = distinct(rng, 3, (), n, dtype), distinct(rng, 3, (), m, dtype)
        for p in POWERS:
            found, expected = both_rows(weighted_slopes, px, py, x, y, p, 0.7, other_side, EVERYTHING)
            assert_slopes_agree(found, expected, dtype, n)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("p", POWERS)
def test_float32_is_priced_like_float64(p, dtype, rng):
    """The merge is exact and sums are of 64 bits: only the projections themselves are rounded."""
    x, y = weighted_pair(rng, 1000, 700, dtype)
    px, py = (rng.normal(size=(4, k)).astype(dtype) for k in (1000, 700))
    with weighted_slopes.using("reference"):
        wide = (a.astype(float) for a in (px, py))
        expected = weighted_slopes(*wide, x, y, p, 1.0, False, (False,) * 4)[0]
    with weighted_slopes.using("numba"):
        found = weighted_slopes(px, py, x, y, p, 1.0, False, (False,) * 4)[0]
    np.testing.assert_allclose(found, expected, rtol=1e-6 if dtype is np.float32 else 1e-12)


@pytest.mark.parametrize(
    "wanted", [(False, False, False, True), (True, False, True, False), (False, True, False, False)]
)
def test_only_what_is_wanted(wanted, rng):
    x, y = weighted_pair(rng, 40, 30, np.float64)
    px, py = distinct(rng, 3, (), 40, np.float64), distinct(rng, 3, (), 30, np.float64)
    found, expected = both_rows(weighted_slopes, px, py, x, y, 2.0, 1.0, False, wanted)
    assert_slopes_agree(found, expected, np.float64, 40)


@pytest.mark.parametrize(("lead_x", "lead_y"), [((3,), (3,)), ((2, 1), (1, 3)), ((1,), (4,))])
@pytest.mark.parametrize("dtype", DTYPES)
def test_batches_broadcast(lead_x, lead_y, dtype, rng):
    x, y = weighted_pair(rng, 65, 40, dtype, lead_x)[0], weighted_pair(rng, 65, 40, dtype, lead_y)[1]
    px, py = distinct(rng, 5, lead_x, 65, dtype), distinct(rng, 5, lead_y, 40, dtype)
    found, expected = both_rows(weighted_slopes, px, py, x, y, 1.5, 0.7, True, EVERYTHING)
    assert_slopes_agree(found, expected, dtype, 65)
    ix, iy = (np.argsort(a, axis=-1) for a in (px, py))
    for a, b in zip(*both_rows(coupling.merge_quantiles, ix, iy, x, y, False), strict=True):
        np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("other_side", [False, True])
@pytest.mark.parametrize("n", SIZES)
def test_pairs_are_equal_to_the_last_bit(n, other_side, rng):
    for m in {n, max(1, 2 * n // 3), n + 1}:
        x, y = weighted_pair(rng, n, m, np.float64)
        if m > n:
            x, y = with_masses(ReadyCloud(x.points), y)  # one cloud alone may have weights
        # Rounded projections tie.
        px, py = (rng.normal(size=(4, k)).round(1) for k in (n, m))
        with coupling.merge_quantiles.using("reference"):
            expected = couple(px, py, x, y, other_side)
        with coupling.merge_quantiles.using("numba"):
            found = couple(px, py, x, y, other_side)
        for a, b in zip(found, expected, strict=True):
            assert a.dtype == b.dtype
            np.testing.assert_array_equal(a, b)


def test_any_layout_and_nothing_is_overwritten(rng):
    x, y = weighted_pair(rng, 300, 200, np.float32)
    px, py = distinct(rng, 4, (), 300, np.float32), distinct(rng, 4, (), 200, np.float32)
    strided = np.asfortranarray(px), np.repeat(py, 2, axis=1)[:, ::2]
    for array in (px, py, *strided, x.weights, y.weights):
        array.flags.writeable = False
    arguments = (x, y, 2.0, 1.0, False, EVERYTHING)
    with weighted_slopes.using("numba"):
        expected = weighted_slopes(px, py, *arguments)
        found = weighted_slopes(*strided, *arguments)
    for a, b in zip((found[0], *found[1], *found[2]), (expected[0], *expected[1], *expected[2]), strict=True):
        np.testing.assert_array_equal(a, b)


def test_equal_clouds_cost_nothing(rng):
    x, w = rng.normal(size=(300, 3)), some_weights(rng, 300)
    assert osl.sliced_wasserstein(x, x.copy(), x_weights=w, y_weights=w.copy(), rng=0).value == 0
    order = rng.permutation(300)
    permuted = osl.sliced_wasserstein(x, x[order], x_weights=w, y_weights=w[order], rng=0)
    assert permuted.value == 0


@pytest.mark.parametrize("distance", [osl.sliced_wasserstein, osl.projected_wasserstein])
def test_public_calls_take_the_kernels(distance, rng):
    """The kernels are what runs, and weights that repeat points are those points repeated."""
    x, y = rng.normal(size=(90, 3)), rng.normal(size=(70, 3)) + 0.5
    counts = rng.integers(0, 4, size=90)
    operation = weighted_slopes if distance is osl.sliced_wasserstein else coupling.merge_quantiles
    with operation.using("numba"):
        weighted = distance(x, y, x_weights=counts / counts.sum(), rng=0)
    repeated = distance(np.repeat(x, counts, axis=0), y, rng=0)
    assert weighted.value == pytest.approx(repeated.value, rel=1e-12)


def test_both_clouds_have_masses_where_one_has_weights(rng):
    x, y = make_clouds(rng.normal(size=(5, 2)), rng.normal(size=(4, 2)), some_weights(rng, 5))
    with_x, with_y = with_masses(as_given(x), as_given(y))
    assert with_y.masses.sum() == with_x.masses.sum() == 2**62
    assert with_masses(as_given(y), as_given(y))[0].masses is None


@pytest.mark.parametrize("p", [1.0, 1.5, 2.0])
@pytest.mark.parametrize(("n", "m", "batch"), [(16, 16, ()), (64, 64, (2,)), (17, 40, (3,)), (700, 513, ())])
def test_samples_are_studied_as_by_the_reference(rng, n, m, batch, p):
    """Sizes whose points end together on no line, or in whole numbers: there the order of ends is sure."""
    px, py = distinct(rng, 5, batch, n, np.float64), 0.3 + distinct(rng, 5, batch, m, np.float64)
    firsts = (rng.random(k) < 0.5 for k in (n, m))
    found, expected = both_rows(study_lines, px, py, p, *firsts)
    shapes = [(5, *batch), (5, *batch), (*batch, n), (*batch, m)]
    for ours, theirs, shape in zip(found, expected, shapes, strict=True):
        assert ours.shape == shape
        np.testing.assert_allclose(ours, theirs, rtol=1e-9, atol=1e-12)
