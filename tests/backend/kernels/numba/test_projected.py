"""Small clouds on all directions of a projected step, in one call: against plain loops."""

from __future__ import annotations

import numpy as np
import pytest
from helpers import assert_rounded, unit_rows

pytest.importorskip("numba")

from orthoslice.backend.kernels.numba.projected import price_apart
from orthoslice.couplings.coupling import rank_pairs

Found = tuple[bool, np.ndarray, np.ndarray, np.ndarray]


def plain(x: np.ndarray, y: np.ndarray, theta: np.ndarray, p: float) -> tuple[np.ndarray, ...]:
    """Scores, and the gradients of their sum by x and y: every point split in equal parts, pair by pair."""
    n, m = len(x), len(y)
    scores, gx, gy = np.zeros(len(theta)), np.zeros(x.shape), np.zeros(y.shape)
    for s, v in enumerate(theta):
        for i, j in zip(np.argsort(x @ v).repeat(m), np.argsort(y @ v).repeat(n), strict=True):
            d = x[i] - y[j]
            length = np.linalg.norm(d)
            scores[s] += length**p / (n * m)
            pull = p * length ** (p - 2) * d / (n * m)
            gx[i] += pull
            gy[j] -= pull
    return scores, gx, gy


def found_by_kernel(
    x: np.ndarray, y: np.ndarray, theta: np.ndarray, p: float = 2.0, wanted: tuple[bool, bool] = (True, True)
) -> Found:
    scores = np.full(len(theta), np.nan)
    gx, gy = (np.zeros((len(c) if want else 0, c.shape[1])) for c, want in zip((x, y), wanted, strict=True))
    px, py = (theta @ c.T.astype(np.float64) for c in (x, y))
    is_done = price_apart(x, y, px, py, *rank_pairs(len(x), len(y), x), p, scores, gx, gy)
    return is_done, scores, gx, gy


@pytest.mark.thin(pairs=True)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("p", [1.0, 1.5, 2.0, 3.0])
@pytest.mark.parametrize("sizes", [(7, 7, 3), (12, 8, 2), (5, 11, 1), (1, 4, 3), (60, 60, 5)], ids=str)
def test_scores_and_gradients(
    sizes: tuple[int, int, int], p: float, dtype: type, rng: np.random.Generator
) -> None:
    n, m, dim = sizes
    x, y = rng.normal(size=(n, dim)).astype(dtype), (rng.normal(size=(m, dim)) + 0.5).astype(dtype)
    theta = unit_rows(rng, 4, dim)
    expected = plain(x.astype(np.float64), y.astype(np.float64), theta, p)
    is_done, *found = found_by_kernel(x, y, theta, p)
    assert is_done
    for ours, exact in zip(found, expected, strict=True):
        assert_rounded(ours, exact, np.float64, 10 * n * m)


@pytest.mark.parametrize("wanted", [(True, False), (False, True), (False, False)])
def test_only_what_is_wanted(wanted: tuple[bool, bool], rng: np.random.Generator) -> None:
    x, y, theta = rng.normal(size=(9, 3)), rng.normal(size=(6, 3)), unit_rows(rng, 4, 3)
    expected = plain(x, y, theta, 2.0)
    is_done, scores, *gradients = found_by_kernel(x, y, theta, wanted=wanted)
    assert is_done
    assert_rounded(scores, expected[0], np.float64, 100)
    for found, exact, want in zip(gradients, expected[1:], wanted, strict=True):
        assert_rounded(found, exact if want else exact[:0], np.float64, 100)


@pytest.mark.parametrize("far", [0.0, 2.0**-52, 2.0**-40])
def test_what_may_tie_is_left(far: float, rng: np.random.Generator) -> None:
    """Two points on one line across a direction, exactly or but for rounding."""
    x, y = rng.normal(size=(20, 2)), rng.normal(size=(20, 2))
    x[7, 0] = x[3, 0] + far
    for clouds in ((x, y), (y, x)):
        assert found_by_kernel(*clouds, np.eye(2)[:1])[0] == (far > 2.0**-50)
        assert found_by_kernel(*clouds, np.eye(2)[1:])[0]


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_what_is_not_finite_is_left(value: float, rng: np.random.Generator) -> None:
    x, y = rng.normal(size=(20, 2)), rng.normal(size=(20, 2))
    x[7, 0] = value
    assert not found_by_kernel(x, y, np.eye(2)[:1])[0]


def test_crowded_rows_are_left(rng: np.random.Generator) -> None:
    """What is too close for a short sort takes another one, which is not compiled here."""
    x, y = 1 + 1e-9 * rng.normal(size=(2000, 2)), rng.normal(size=(2000, 2))
    assert not found_by_kernel(x, y, np.eye(2)[:1])[0]
