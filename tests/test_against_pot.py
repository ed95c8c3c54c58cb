"""Same projections, same answer as POT, and right where POT is not."""

from __future__ import annotations

import numpy as np
import ot
import pytest
from helpers import unit_rows, weights

import orthoslice as osl


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("m", [40, 33])
@pytest.mark.parametrize("p", [1, 1.5, 2, 3])
def test_sliced_agrees(rng: np.random.Generator, p: float, m: int, weighted: bool) -> None:
    x, y, theta = rng.normal(size=(40, 5)), rng.normal(size=(m, 5)) + 0.3, unit_rows(rng, 30, 5)
    a, b = (weights(rng, 40), weights(rng, m)) if weighted else (None, None)
    ours = osl.sliced_wasserstein(x, y, p, x_weights=a, y_weights=b, directions=theta)
    theirs = ot.sliced_wasserstein_distance(x, y, a, b, p=p, projections=theta.T)
    assert float(ours.distance) == pytest.approx(theirs, rel=1e-10)


@pytest.mark.parametrize("m", [40, 33])
def test_projected_agrees_with_the_expected_sliced_plan(rng: np.random.Generator, m: int) -> None:
    x, y, theta = rng.normal(size=(40, 5)), rng.normal(size=(m, 5)) + 0.3, unit_rows(rng, 30, 5)
    ours = osl.projected_wasserstein(x, y, 2, directions=theta)
    plan = ot.sliced.expected_sliced_plan(x, y, projections=theta.T, beta=0.0)[0]
    assert float(ours.value) == pytest.approx(float((np.asarray(plan) * ot.dist(x, y)).sum()), rel=1e-10)


def test_float32_does_not_drift_at_unequal_sizes() -> None:
    """A million against 700,001 points of one law: POT's float32 is off by four orders of magnitude."""
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(10**6, 1)), rng.normal(size=(700_001, 1))
    direction = np.ones((1, 1))
    wide = osl.sliced_wasserstein(x, y, directions=direction)
    narrow = osl.sliced_wasserstein(
        x.astype(np.float32), y.astype(np.float32), directions=direction.astype(np.float32)
    )
    assert narrow.value.dtype == np.float32
    assert float(narrow.value) == pytest.approx(float(wide.value), rel=0.05)
    assert 1e-7 < wide.value < 1e-4


def test_float32_does_not_drift_with_weights() -> None:
    rng = np.random.default_rng(0)
    n, m = 200_000, 140_001
    x, y = rng.normal(size=(n, 1)), rng.normal(size=(m, 1))
    wide = osl.sliced_wasserstein(x, y, directions=np.ones((1, 1)))
    narrow = osl.sliced_wasserstein(
        x.astype(np.float32),
        y.astype(np.float32),
        x_weights=np.full(n, 1 / n, np.float32),
        y_weights=np.full(m, 1 / m, np.float32),
        directions=np.ones((1, 1), np.float32),
    )
    assert float(narrow.value) == pytest.approx(float(wide.value), rel=0.05)
