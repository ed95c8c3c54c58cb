"""Sort kernels against plain references, at awkward sizes."""

from __future__ import annotations

import numpy as np
import pytest
from helpers import unit_rows

from orthoslice.backend.kernels.numba.sorting import LANES, sort_columns
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


@pytest.mark.parametrize("n", [1, 2, 3, 4, 5, 7, 8, 9, 63, 64, 65, 257, 1000])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_network_sorts_every_column(n: int, dtype: type, rng: np.random.Generator) -> None:
    buffer = projections(rng, LANES, n, dtype).T.copy()
    expected = np.sort(buffer, axis=0)
    sort_columns(buffer, buffer)
    np.testing.assert_array_equal(buffer, expected)


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


@pytest.mark.parametrize("slices", [1, 31, 32, 63, 64, 66, 130])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_columns(slices: int, dtype: type, rng: np.random.Generator) -> None:
    """Projected and sorted in columns, LANES at a time, and a last few as rows."""
    directions = DenseDirections(unit_rows(rng, slices + 2, 7).astype(dtype))
    for n, m in ((600, 600), (513, 20), (700, 900)):
        x, y = (rng.normal(size=(size, 7)).astype(dtype) for size in (n, m))
        arguments = (x, y, directions, slice(1, slices + 1), 1.5)
        with lines.sliced_scores.using("reference"):
            expected = lines.sliced_scores(*arguments)
        with lines.sliced_scores.using("columns"):
            got = lines.sliced_scores(*arguments)
        np.testing.assert_allclose(got, expected, rtol=1e-12 if dtype is np.float64 else 1e-4)


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
    with lines.sliced_scores.using("columns"), pytest.raises(TypeError, match="middling size"):
        lines.sliced_scores(np.zeros((5, 3)), np.zeros((5, 3)), directions, slice(0, 3), 2.0)
    torch = pytest.importorskip("torch")
    with lines.sorted_scores.using("numba"), pytest.raises(TypeError, match="NumPy arrays"):
        lines.sorted_scores(torch.zeros(2, 5), torch.zeros(2, 5), 2.0)
