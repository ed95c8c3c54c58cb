"""Kernels for many clouds against plain references, at awkward sizes."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from orthoslice.costs import segments

SIZES = [[1, 1], [1, 7, 2], [512, 513, 512], [2500, 64, 1, 2501]]


@pytest.mark.parametrize("sizes", SIZES, ids=str)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_segments(sizes: list[int], dtype: type, rng: np.random.Generator) -> None:
    starts = np.cumsum([0, *sizes])
    rows = rng.normal(size=(3, starts[-1])).astype(dtype)
    rows[:, rng.random(starts[-1]) < 0.1] = -0.0
    sorted_rows = [rows.copy(), rows.copy()]
    for name, table in zip(("numba", "reference"), sorted_rows, strict=True):
        with segments.sort_segments.using(name):
            segments.sort_segments(table, starts)
    np.testing.assert_array_equal(*sorted_rows)
    assert not np.array_equal(sorted_rows[0], rows) or max(sizes) == 1
    for p in (1.0, 1.5, 2.0):
        found = []
        for name in ("numba", "reference"):
            with segments.segment_costs.using(name):
                found.append(segments.segment_costs(sorted_rows[0], starts, p))
        assert found[0].shape == (len(sizes) * (len(sizes) - 1) // 2,)
        np.testing.assert_allclose(*found, rtol=1e-12 if dtype is np.float64 else 2e-5)


@pytest.mark.parametrize("sizes", [[1, 1], [1, 7, 2], [40, 33, 40]], ids=str)
@pytest.mark.parametrize("p", [1.0, 2.0, 2.5])
def test_costs_in_space(sizes: list[int], p: float, rng: np.random.Generator) -> None:
    starts = np.cumsum([0, *sizes])
    points = rng.normal(size=(starts[-1], 5))
    order = np.empty((3, starts[-1]), dtype=np.uint32)
    for row in order:
        row[:] = np.concatenate([a + rng.permutation(b - a) for a, b in itertools.pairwise(starts)])
    found = []
    for name in ("numba", "reference"):
        with segments.segment_space_costs.using(name):
            found.append(segments.segment_space_costs(points, order, starts, p))
    assert found[0].shape == (len(sizes) * (len(sizes) - 1) // 2,)
    np.testing.assert_allclose(*found, rtol=1e-12)
