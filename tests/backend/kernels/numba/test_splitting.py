"""Rows too long for the cache: split, then sorted piece by piece, against NumPy."""

from __future__ import annotations

import numpy as np
import pytest

from orthoslice.backend.kernels.numba.sliced import order_projections
from orthoslice.backend.kernels.numba.sorting import SHORTEST_SPLIT, counters
from orthoslice.backend.kernels.numba.splitting import piece_bounds, sort_row
from orthoslice.costs import lines
from orthoslice.couplings import orders

pytest.importorskip("numba")

# One piece, few, many of a few numbers each, and one that holds almost everything twice.
ROWS = {
    "one size": lambda rng, n: 1 + rng.random(n) / 8,
    "normal": lambda rng, n: rng.normal(size=n),
    "all sizes": lambda rng, n: 10.0 ** rng.uniform(-35, 35, n) * rng.choice([-1, 1], n),
    "ties and both zeros": lambda rng, n: rng.choice([0.0, -0.0, 1.5, -2.0, rng.normal()], n),
}


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("kind", ROWS)
@pytest.mark.parametrize("n", [SHORTEST_SPLIT, SHORTEST_SPLIT + 3])
def test_long_rows(n: int, kind: str, dtype: type, rng: np.random.Generator) -> None:
    row = ROWS[kind](rng, n).astype(dtype)
    bits = row.view(np.uint32 if dtype is np.float32 else np.uint64)
    bounds = piece_bounds(n, bits.itemsize)
    found = sort_row(bits, np.empty_like(bits), np.empty_like(bits), counters(bits[None, :]), bounds)
    np.testing.assert_array_equal(found.view(dtype), np.sort(row))
    np.testing.assert_array_equal(order_projections(row[None, :])[0], np.argsort(row, kind="stable"))


def test_long_clouds_against_the_reference(rng: np.random.Generator) -> None:
    """Either side may be long: each has its own counters."""
    long, short = rng.normal(size=(1, SHORTEST_SPLIT + 1)), rng.normal(size=(1, 1000))
    for px, py in ((long, short), (short, long), (long, 1 + long[:, ::-1])):
        with lines.sorted_slopes.using("reference"), orders.stable_order.using("reference"):
            expected = lines.sorted_slopes(px, py, 1.5, 0.7)
        with lines.sorted_slopes.using("numba"):
            found = lines.sorted_slopes(px, py, 1.5, 0.7)
        for a, b in zip(found, expected, strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-15)
