"""Sort kernels against plain references, at awkward sizes."""

from __future__ import annotations

import numpy as np
import pytest
from helpers import unit_rows

from orthoslice.backend.kernels.numba.lanes import BYTES, SORTING_16, Network
from orthoslice.backend.kernels.numba.sliced import score_projections, slope_points, slope_projections
from orthoslice.backend.kernels.numba.sorting import column_rows, sort_columns
from orthoslice.costs import lines
from orthoslice.couplings import orders
from orthoslice.directions.base import DenseDirections

SIZES = [1, 2, 3, 63, 257, 512, 513, 1000, 2500, 2501, 4097]


def projections(rng: np.random.Generator, slices: int, n: int, dtype: type) -> np.ndarray:
    """Numbers of all signs and sizes, with ties and both zeros among them."""
    p = rng.normal(size=(slices, n)) * 10.0 ** rng.integers(-3, 3, size=(slices, n))
    p[rng.random((slices, n)) < 0.1] = 0.0
    p[rng.random((slices, n)) < 0.05] = -0.0
    p[rng.random((slices, n)) < 0.1] = 1.5
    return p.astype(dtype)


@pytest.mark.parametrize("n", [1, 2, 15, 16, 17, 33, 64, 65, 200, 257, 513, 1000, 1025, 2049])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_network_sorts_every_column(n: int, dtype: type, rng: np.random.Generator) -> None:
    lanes = BYTES // np.dtype(dtype).itemsize
    buffer = np.full((column_rows(n), lanes), np.inf, dtype=dtype)
    buffer[:n] = projections(rng, lanes, n, dtype).T
    given, expected = buffer.copy(), np.sort(buffer, axis=0)
    index = np.repeat(np.arange(len(buffer), dtype=f"u{given.itemsize}")[:, None], lanes, axis=1)
    sort_columns(buffer, None, n)
    np.testing.assert_array_equal(buffer, expected)
    moved = given.copy()
    sort_columns(moved, index, n)
    np.testing.assert_array_equal(moved, expected)
    np.testing.assert_array_equal(index[:n], np.argsort(given[:n], axis=0, kind="stable"))


def test_networks_sort_all_sequences_of_two_numbers() -> None:
    """So they sort all sequences (the zero-one principle); without any of its steps, the first does not."""
    words = np.arange(1 << 16)

    def sorts(network: Network) -> bool:
        bits = [words >> k & 1 for k in range(16)]
        for i, j in network:
            bits[i], bits[j] = bits[i] & bits[j], bits[i] | bits[j]
        return all((bits[k] <= bits[k + 1]).all() for k in range(15))

    assert sorts(SORTING_16)
    assert not any(sorts([*SORTING_16[:k], *SORTING_16[k + 1 :]]) for k in range(len(SORTING_16)))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_nan_stays_in_its_row(dtype: type, rng: np.random.Generator) -> None:
    """Rows share vectors, and padding could take the place of what has no order."""
    px, py = (rng.normal(size=(40, 37)).astype(dtype) for _ in range(2))
    expected = score_projections(px.copy(), py.copy(), 2.0)
    px[3, 5], py[20] = np.nan, np.nan
    bad = np.isin(np.arange(40), (3, 20))
    scores, *slopes = slope_projections(px, py, 2.0, 1.0)
    for found in (score_projections(px, py, 2.0), scores):
        np.testing.assert_array_equal(np.isnan(found), bad)
        np.testing.assert_allclose(found[~bad], expected[~bad], rtol=1e-6)
    assert all((np.isnan(side).any(axis=1) == bad).all() for side in slopes)


@pytest.mark.parametrize("n", SIZES)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_scores(n: int, dtype: type, rng: np.random.Generator) -> None:
    for m in {n, max(1, 2 * n // 3), n + 1}:
        px, py = projections(rng, 5, n, dtype), projections(rng, 5, m, dtype)
        for p in (1.0, 1.5, 2.0, 3.0):
            with lines.sorted_scores.using("reference"):
                expected = lines.sorted_scores(px.copy(), py.copy(), p)
            with lines.sorted_scores.using("numba"):
                got = lines.sorted_scores(px.copy(), py.copy(), p)
            assert got.dtype == np.float64
            np.testing.assert_allclose(got, expected, rtol=1e-12 if dtype is np.float64 else 2e-5)


@pytest.mark.parametrize("slices", [1, 7, 8, 16, 19])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_columns(slices: int, dtype: type, rng: np.random.Generator) -> None:
    """Projected and sorted as columns, a vector of them at a time, with slopes and without."""
    theta = unit_rows(rng, slices + 2, 7).astype(dtype)
    for n, m in ((600, 600), (13, 13), (3, 3), (513, 20), (7, 9)):
        x, y = (rng.normal(size=(size, 7)).astype(dtype) for size in (n, m))
        for p in (1.0, 1.5, 2.0):
            arguments = (x, y, DenseDirections(theta), slice(1, slices + 1), p)
            with lines.sliced_scores.using("reference"):
                expected = lines.sliced_scores(*arguments)
            with lines.sliced_scores.using("columns"):
                got = lines.sliced_scores(*arguments)
            rounded = {"rtol": 1e-12 if dtype is np.float64 else 1e-4}
            np.testing.assert_allclose(got, expected, **rounded)
            rows = theta[1 : slices + 1]
            with lines.sorted_slopes.using("reference"):
                _, *slopes = lines.sorted_slopes(rows @ x.T, rows @ y.T, p, 0.7)
            total, *found = slope_points(x, y, rows, p, 0.7)
            np.testing.assert_allclose(total, expected.sum(), **rounded)
            for a, b in zip(found, slopes, strict=True):
                np.testing.assert_allclose(a, b, atol=rounded["rtol"] / n, **rounded)


@pytest.mark.parametrize("n", SIZES)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_slopes(n: int, dtype: type, rng: np.random.Generator) -> None:
    for m in {n, max(1, 2 * n // 3)}:
        # Without ties: which of two equal points is matched is not determined.
        px, py = (rng.normal(size=(3, size)).astype(dtype) for size in (n, m))
        for p in (1.0, 1.5, 2.0):
            with lines.sorted_slopes.using("reference"):
                expected = lines.sorted_slopes(px, py, p, 0.7)
            with lines.sorted_slopes.using("numba"):
                got = lines.sorted_slopes(px, py, p, 0.7)
            for a, b in zip(got, expected, strict=True):
                tolerance = 1e-12 if dtype is np.float64 else 2e-5
                np.testing.assert_allclose(a, b, rtol=tolerance, atol=tolerance / n)


@pytest.mark.parametrize("n", [256, 257, 1000, 4097])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_order_is_stable(n: int, dtype: type, rng: np.random.Generator) -> None:
    p = projections(rng, 4, n, dtype)
    with orders.stable_order.using("numba"):
        got = orders.stable_order(p)
    np.testing.assert_array_equal(got, np.argsort(p, axis=-1, kind="stable"))


def test_refusals_say_why(rng: np.random.Generator) -> None:
    with orders.stable_order.using("numba"), pytest.raises(TypeError, match="longer rows"):
        orders.stable_order(rng.normal(size=(2, 5)))
    with lines.sorted_scores.using("numba"), pytest.raises(TypeError, match="no broadcasting"):
        lines.sorted_scores(rng.normal(size=(2, 1, 5)), rng.normal(size=(2, 3, 5)), 2.0)
    directions = DenseDirections(np.eye(3))
    for x, why in ((np.zeros((8193, 3)), "at most 8192"), (np.zeros((5, 3), np.float32), "one floating type")):
        with lines.sliced_scores.using("columns"), pytest.raises(TypeError, match=why):
            lines.sliced_scores(x, np.zeros((5, 3)), directions, slice(0, 3), 2.0)
    torch = pytest.importorskip("torch")
    with lines.sorted_scores.using("numba"), pytest.raises(TypeError, match="NumPy arrays"):
        lines.sorted_scores(torch.zeros(2, 5), torch.zeros(2, 5), 2.0)
