"""Shapes of columns and pairs of them, against plain loops over labellings."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from scipy.special import eval_legendre
from scipy.stats import rankdata, spearmanr

from orthoslice.applications.two_sample import contrasts, labels
from orthoslice.backend.arrays import LABELS, Key

KEY = Key.from_seed(3, np.zeros(1))


def labelled(exchange: labels.Exchange, count: int) -> np.ndarray:
    """Which points every labelling calls x, `(labellings, points)`."""
    key = KEY.fold(0, LABELS)
    words = [labels.label_block(key, k, exchange) for k in range(-(-count // 64))]
    return np.concatenate([labels.unpacked(w) for w in words], axis=1).T[:count][:, exchange.unit]


def plain(points: np.ndarray, in_x: np.ndarray) -> tuple[list[float], float]:
    n, n_x = len(points), in_x.sum()
    ranks = [(2 * rankdata(column) - 1 - n) / n for column in points.T]

    def apart(scores: np.ndarray) -> float:
        gap = scores[in_x].mean() - scores[~in_x].mean()
        return gap / (scores.std() * np.sqrt(1 / n_x + 1 / (n - n_x))) if np.ptp(scores) > 1e-9 else 0.0

    shapes = [sum(apart(eval_legendre(k, own)) ** 2 for k in range(1, 5)) for own in ranks]
    return shapes, max(abs(apart(a * b)) for a, b in itertools.combinations(ranks, 2))


def some_points(rng: np.random.Generator) -> np.ndarray:
    """A column of reals, one of few values, one that is 0 or 1, and a constant one."""
    return np.column_stack(
        [rng.normal(size=40), rng.integers(0, 4, 40), rng.random(40) < 0.3, np.full(40, 7.0)]
    )


@pytest.mark.parametrize("design", ["free", "pairs", "clusters"])
@pytest.mark.parametrize("step", [3, 1 << 12])
def test_contrasts_are_what_plain_loops_find(
    design: str, step: int, rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(contrasts, "_POINTS_AT_ONCE", step)
    monkeypatch.setattr(contrasts, "_SCORES_AT_ONCE", 4 * step)
    points, in_x = some_points(rng), np.arange(40) < 18
    exchange = labels.free_exchange(18, 22)
    if design == "pairs":
        in_x = np.arange(40) % 2 == 0
        exchange = labels.grouped_exchange(in_x, np.arange(40) // 2)
    if design == "clusters":
        # Of 3 points in x and of 2 in y, so that labellings differ in their sizes.
        exchange = labels.grouped_exchange(in_x, np.r_[np.arange(18) // 3, 6 + np.arange(22) // 2])
    waves = list(contrasts.contrast_waves(points, exchange, KEY, (70, 300, 330)))
    expected = [plain(points, own) for own in labelled(exchange, 330)]
    for look, found in zip((70, 300, 330), waves, strict=True):
        assert found.shapes.shape == (4, look)
        np.testing.assert_allclose(found.shapes.T, [s for s, _ in expected[:look]], atol=1e-9)
        assert found.pairs is not None
        np.testing.assert_allclose(found.pairs, [p for _, p in expected[:look]], atol=1e-9)


def test_ranks_are_those_of_scipy(rng: np.random.Generator) -> None:
    points = some_points(rng)
    expected = 2 * rankdata(points, axis=0) - 1 - len(points)
    np.testing.assert_array_equal(contrasts.column_ranks(points), expected.T)
    found = np.corrcoef(contrasts.column_ranks(points)[:2])[0, 1]
    assert found == pytest.approx(spearmanr(points[:, 0], points[:, 1])[0])


def test_monotone_units_change_nothing(rng: np.random.Generator) -> None:
    points, exchange = rng.normal(size=(40, 3)), labels.free_exchange(18, 22)
    (found,), (other,) = (
        contrasts.contrast_waves(p, exchange, KEY, (64,)) for p in (points, np.exp(3 * points) + 1e3)
    )
    np.testing.assert_array_equal(found.shapes, other.shapes)


def test_one_column_has_no_pairs_and_large_tables_neither() -> None:
    assert not contrasts.has_pairs(100, 1)
    assert contrasts.has_pairs(10_000, 60)
    assert not contrasts.has_pairs(10_000, 200)
    assert contrasts.has_shapes(10_000, 1000)
    assert not contrasts.has_shapes(10_000, 2048)
