"""Rows in pieces: rough orders, counts and costs against plain references, for kind and unkind laws."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

from orthoslice.backend.kernels.numba import pieces as kernels
from orthoslice.backend.kernels.rough_order import leading_bits, rough_bounds
from orthoslice.costs.lines import sorted_scores
from orthoslice.costs.pieces import RowInPieces, mark_counts, order_roughly, piece_cost
from orthoslice.directions.base import steady_product

HostArray = np.ndarray[Any, Any]
Law = Callable[[np.random.Generator, int], HostArray]

LAWS: dict[str, Law] = {
    "normal": lambda rng, n: rng.standard_normal(n),
    "Cauchy": lambda rng, n: rng.standard_cauchy(n),
    "one value": lambda _, n: np.full(n, -0.25),
    "tied": lambda rng, n: rng.standard_normal(n).round(1),
    # All have the same leading bits, so that nothing can be cut.
    "far": lambda rng, n: 1000 + rng.random(n),
    "extreme": lambda rng, n: rng.choice([-3e38, -1e-40, -0.0, 0.0, 1e-40, 1.0, 3e38], n),
}
law = pytest.mark.parametrize("law", LAWS.values(), ids=LAWS.keys())
dtype = pytest.mark.parametrize("dtype", [np.float32, np.float64])


@law
@dtype
@pytest.mark.parametrize("n", [1, 7, 40_000])
def test_rough_order(law: Law, dtype: type, n: int, rng: np.random.Generator) -> None:
    rows = np.stack([law(rng, n) for _ in range(2)]).astype(dtype)
    found = rows.copy()
    order_roughly(found)
    np.testing.assert_array_equal(np.sort(found), np.sort(rows))
    for row in found:
        assert (np.diff(leading_bits(row).astype(np.int64)) >= 0).all()
        lows, highs = rough_bounds(row)
        # A binary search in the rough order finds what one in the full order finds.
        for bounds in (lows, highs):
            np.testing.assert_array_equal(np.searchsorted(row, bounds), np.searchsorted(np.sort(row), bounds))
        assert (np.searchsorted(row, lows) < np.searchsorted(row, highs)).all()


def test_rows_without_points_in_a_new_thread() -> None:
    """The first that a thread orders may be empty: it has no memory from earlier rows then."""
    with ThreadPoolExecutor(1) as pool:
        assert pool.submit(order_roughly, np.zeros((1, 0))).exception() is None


@law
@dtype
def test_marks_are_counted(law: Law, dtype: type, rng: np.random.Generator) -> None:
    row = law(rng, 30_000).astype(dtype)
    drawn = np.concatenate([row[:40], row[:3], rng.standard_normal(9).astype(dtype)])
    marks = np.concatenate([[-np.inf], np.sort(drawn), [np.inf]]).astype(dtype)
    found = mark_counts(iter(np.split(row, [5, 5, 20_000])), marks)
    with mark_counts.using("reference"):
        np.testing.assert_array_equal(found, mark_counts([row], marks))


def _pieces(rng: np.random.Generator, row: HostArray) -> list[HostArray]:
    """The row in pieces, one of them empty, each in rough order."""
    cuts = np.sort(rng.integers(0, row.size + 1, 4))
    found = [piece.copy() for piece in np.split(row, [*cuts, cuts[-1]])]
    for piece in found:
        order_roughly(piece[None])
    return found


@law
@dtype
@pytest.mark.parametrize("sizes", [(1, 1), (5, 3), (12_000, 12_000), (12_000, 9_000)], ids=str)
def test_costs(
    law: Law, dtype: type, sizes: tuple[int, int], rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of whole rows, and of a range within them with tied numbers at its ends."""
    monkeypatch.setattr(kernels, "_PART", 1 << 11)
    monkeypatch.setattr(kernels, "_DRAWN", 1 << 4)
    shared = int(np.gcd(*sizes))
    rows = [law(rng, n).astype(dtype) / dtype(k) for k, n in enumerate(sizes, 2)]
    sides = [RowInPieces(_pieces(rng, row), n // shared) for row, n in zip(rows, sizes[::-1], strict=True)]
    mass = sizes[0] * sides[0].unit
    first = int(rng.integers(0, mass))
    low, high = (float(end) for end in (min(map(np.min, rows)), max(map(np.max, rows))))
    within = [side._replace(skipped=first, ends=((low, 5), (high, 5_000))) for side in sides]
    for p in (1.0, 2.0, 2.5):
        if p > 1 and max(-low, high) > 1e30:
            continue
        for chosen, moved in ((sides, mass), (within, mass - first), (within, (mass - first) // 3 + 1)):
            found = piece_cost(*chosen, moved, p)
            with piece_cost.using("reference"):
                known = piece_cost(*chosen, moved, p)
            # The powers of the least numbers are 0 to the reference.
            rtol = 1e-11 if dtype is np.float64 else 2e-5
            np.testing.assert_allclose(found, known, rtol=rtol, atol=1e-40 * moved)


def test_long_rows_are_sorted_in_parts(rng: np.random.Generator) -> None:
    """Parts fit a cache where they can; where all leading bits are equal, memory is still bounded."""
    n = 600_000
    for name, fewest in (("normal", 4), ("far", 1)):
        rows = [LAWS[name](rng, n).astype(np.float32) for _ in range(2)]
        sides = [RowInPieces(_pieces(rng, row), 1) for row in rows]
        parts = kernels._Ordered(sides[0])
        assert len(parts.bounds) >= fewest
        assert (parts.longest < n / 3) == (name == "normal")
        piece_cost(*sides, n, 2.0)
        tracemalloc.start()
        piece_cost(*sides, n, 2.0)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        bound = piece_cost.row_bytes(*sides, n, 2.0)
        assert peak < 1.05 * bound
        assert (peak < bound / 2) == (name == "normal")


@pytest.mark.parametrize("sizes", [(2_100_000, 2_100_000), (2_100_000, 50)], ids=str)
def test_rows_that_no_cache_holds(sizes: tuple[int, int], rng: np.random.Generator) -> None:
    """They go another way than shorter ones, to the same scores."""
    px, py = (rng.standard_normal((1, n), dtype=np.float32) for n in sizes)
    assert sorted_scores.chosen(px, py, 2.0) is not sorted_scores.chosen(px[:, :50], py[:, :50], 2.0)
    with sorted_scores.using("numba"):
        known = sorted_scores(px.copy(), py.copy(), 2.0)
    np.testing.assert_allclose(sorted_scores(px, py, 2.0), known, rtol=1e-10)


@dtype
@pytest.mark.parametrize("dim", [1, 3, 17])
def test_steady_projections(dtype: type, dim: int, rng: np.random.Generator) -> None:
    """To the last digit those of the reference, whichever points and directions are beside them."""
    theta, points = rng.standard_normal((5, dim)).astype(dtype), rng.standard_normal((1000, dim)).astype(dtype)
    found = steady_product(theta, points)
    with steady_product.using("reference"):
        np.testing.assert_array_equal(found, steady_product(theta, points))
    np.testing.assert_array_equal(found[2:3, 501:504], steady_product(theta[2:3], points[501:504]))
    np.testing.assert_array_equal(found, steady_product(theta, np.asfortranarray(points)))
