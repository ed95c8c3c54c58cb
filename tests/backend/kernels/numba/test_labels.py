"""Kernels for many labellings against plain references, at awkward sizes."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import chi2

from orthoslice.applications.two_sample import labels, pricing
from orthoslice.backend.arrays import LABELS, Key
from orthoslice.backend.kernels import LABELLINGS

KEY = Key.from_seed(7, np.zeros(1)).fold(0, LABELS)


def strata(rng: np.random.Generator, n_points: int) -> labels.Exchange:
    """Points in groups that have members in both samples."""
    group = np.repeat(np.arange(n_points // 2), 2)
    in_x = np.tile([True, False], n_points // 2)
    shuffled = rng.permutation(len(group))
    return labels.grouped_exchange(in_x[shuffled], group[shuffled])


def clusters(rng: np.random.Generator, n_clusters: int) -> labels.Exchange:
    group = np.repeat(np.arange(n_clusters), rng.integers(1, 6, size=n_clusters))
    return labels.grouped_exchange(group < (n_clusters + 1) // 2, rng.permutation(n_clusters)[group])


def exchanges(rng: np.random.Generator) -> list[labels.Exchange]:
    sizes = [(1, 1), (1, 5), (7, 2), (33, 31), (100, 101)]
    return [*(labels.free_exchange(n, m) for n, m in sizes), strata(rng, 20), clusters(rng, 9)]


def test_draws_are_those_of_the_reference(rng: np.random.Generator) -> None:
    for exchange in exchanges(rng):
        for first in (0, 64, 1 << 20):
            drawn = []
            for name in ("numba", "reference"):
                with labels.draw_labels.using(name):
                    drawn.append(labels.draw_labels(KEY, first, exchange))
            np.testing.assert_array_equal(*drawn)
            assert drawn[0].dtype == np.uint64


def test_strata_keep_their_numbers(rng: np.random.Generator) -> None:
    for exchange in exchanges(rng):
        table = labels.unpacked(labels.label_block(KEY, 1, exchange))
        stratum = np.cumsum(exchange.quota >= 0) - 1
        for k, quota in enumerate(exchange.quota[exchange.quota >= 0]):
            assert (table[stratum == k].sum(axis=0) == quota).all()
    assert (labels.unpacked(labels.label_block(KEY, 0, exchange))[:, 0] == exchange.observed).all()


def _statistic(counts: np.ndarray) -> float:
    return float(((counts - counts.mean()) ** 2 / counts.mean()).sum())


def test_all_subsets_are_equally_likely() -> None:
    """Chi-square on the 10 subsets of 2 out of 5: a false alarm once in a million seeds."""
    exchange = labels.free_exchange(2, 3)
    tables = [labels.unpacked(labels.draw_labels(KEY, k * LABELLINGS, exchange)) for k in range(200)]
    codes = (1 << np.arange(5)) @ np.concatenate(tables, axis=1)
    counts = np.unique(codes, return_counts=True)[1]
    assert len(counts) == 10
    limit = chi2.isf(1e-6, 9)
    assert _statistic(counts) < limit
    # Negative control: one subset an eighth too often.
    counts[0] += counts[0] // 8 * 2
    assert _statistic(counts) > limit


@pytest.mark.parametrize("p", [1.0, 1.5, 2.0, 3.0])
def test_totals(p: float, rng: np.random.Generator) -> None:
    for exchange in exchanges(rng):
        points = rng.normal(size=(len(exchange.unit), 3))
        points[rng.random(len(points)) < 0.2] = 1.0
        values = points @ rng.normal(size=(3, 4))
        order = np.argsort(values, axis=0, kind="stable").T
        values = np.take_along_axis(values.T, order, axis=1)
        words = labels.label_block(KEY, 0, exchange)
        for lanes in (1, 37, 64):
            sizes = exchange.sizes(words, lanes)
            found = {}
            for name in ("numba", "reference"):
                with pricing.line_totals.using(name), pricing.space_totals.using(name):
                    lines = pricing.line_totals(values, exchange.unit[order], words, sizes, p)
                    places = order.astype(np.uint32)
                    space = pricing.space_totals(points, places, exchange, words, sizes, p)
                    found[name] = np.stack([lines, space])
            assert found["numba"].shape == (2, lanes)
            np.testing.assert_allclose(found["numba"], found["reference"], rtol=1e-12, atol=1e-14)


def test_sizes_of_clusters(rng: np.random.Generator) -> None:
    exchange = clusters(rng, 9)
    words = labels.label_block(KEY, 0, exchange)
    table = labels.unpacked(words)[exchange.unit]
    sizes = exchange.sizes(words, LABELLINGS)
    np.testing.assert_array_equal(sizes, table.sum(axis=0))
    assert len(set(sizes.tolist())) > 1


@pytest.mark.parametrize("p", [1.0, 2.0, 3.5])
@pytest.mark.parametrize(("n", "m"), [(2, 3), (20, 31), (64, 65)])
def test_totals_of_what_is_kept(p: float, n: int, m: int, rng: np.random.Generator) -> None:
    exchange = labels.half_exchange(n, m)
    values = np.round(rng.normal(size=(4, n + m)), 1)
    order = np.argsort(values, axis=1, kind="stable")
    values, at = np.take_along_axis(values, order, axis=1), order.astype(np.uint32)
    words = labels.label_block(KEY, 0, exchange)
    kept = labels.unpacked(words)
    assert kept[:, 0].all()
    sizes = np.stack([kept[:n].sum(axis=0), kept[n:].sum(axis=0)], axis=1)
    assert (sizes[1:] == (n // 2, m // 2)).all()
    for lanes in (1, 37, 64):
        found = []
        for name in ("numba", "reference"):
            with pricing.kept_totals.using(name):
                found.append(pricing.kept_totals(values, at, words, sizes[:lanes], n, p))
        assert found[0].shape == (lanes,)
        np.testing.assert_allclose(*found, rtol=1e-12, atol=1e-14)


def test_sorted_rows_have_the_units_of_the_reference(rng: np.random.Generator) -> None:
    for n in (1, 5, 70, 5000, 300_000):
        unit = rng.permutation(n).astype(np.uint32)
        # With ties, which keep their order.
        rows = np.round(rng.normal(size=(2, n)), 2)
        found = []
        for name in ("numba", "reference"):
            with pricing.sort_with_units.using(name):
                found.append(pricing.sort_with_units(rows.copy(), unit))
        for mine, plain in zip(*found, strict=True):
            np.testing.assert_array_equal(mine, plain)
