"""The plain references that the exact answers are held against."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from numpy.typing import NDArray

Array = NDArray[np.float64]
Scores = Callable[..., Array]


def _scores(
    angles: Array,
    x: Array,
    y: Array,
    p: int,
    score: str,
    x_weights: Array | None = None,
    y_weights: Array | None = None,
) -> Array:
    """Score of each angle by sorting and merging quantiles, nothing shared with the sweep."""
    x, y = np.asarray(x, dtype=float), np.asarray(y, dtype=float)
    n, m = len(x), len(y)
    theta = np.stack([np.cos(angles), np.sin(angles)])
    ix, iy = np.argsort(x @ theta, axis=0).T, np.argsort(y @ theta, axis=0).T
    if n == m and x_weights is None and y_weights is None:
        mass = np.full((len(angles), n), 1 / n)
    else:
        wx = np.full(n, 1 / n) if x_weights is None else np.asarray(x_weights)
        wy = np.full(m, 1 / m) if y_weights is None else np.asarray(y_weights)
        cx, cy = np.cumsum(wx[ix], axis=1), np.cumsum(wy[iy], axis=1)
        edges = np.sort(np.concatenate([np.zeros((len(angles), 1)), cx, cy], axis=1), axis=1)
        mass, middle = np.diff(edges, axis=1), (edges[:, 1:] + edges[:, :-1]) / 2
        ix = np.take_along_axis(ix, np.minimum((cx[:, None, :] < middle[:, :, None]).sum(-1), n - 1), 1)
        iy = np.take_along_axis(iy, np.minimum((cy[:, None, :] < middle[:, :, None]).sum(-1), m - 1), 1)
    delta = x[ix] - y[iy]
    if score == "projected":
        cost = np.hypot(delta[..., 0], delta[..., 1])
    else:
        cost = np.abs(np.einsum("akc,ca->ak", delta, theta))
    return (mass * cost**p).sum(axis=1)


@pytest.fixture(scope="session")
def scores() -> Scores:
    """Scores of given angles, by sorting."""
    return _scores


@pytest.fixture(scope="session")
def midpoint() -> Callable[..., tuple[float, float]]:
    """Mean score by a midpoint rule of 10^5 angles, and a bound on the error of that rule."""

    def rule(x: Array, y: Array, p: int, score: str, **weights: Array | None) -> tuple[float, float]:
        n_angles = 100_000
        angles = (np.arange(n_angles) + 0.5) * np.pi / n_angles
        values = np.concatenate([_scores(part, x, y, p, score, **weights) for part in np.split(angles, 20)])
        # Half a step times the jumps; where there are none, an eighth of a step squared times the kinks.
        jumps = np.abs(np.diff(values, append=values[:1])).sum() / (2 * n_angles)
        kinks = np.abs(np.diff(values, n=2, append=values[:2])).sum() / (8 * n_angles)
        bound = jumps if score == "projected" else kinks
        return float(values.mean()), 1.1 * float(bound) + 1e-12

    return rule
