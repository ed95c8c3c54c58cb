"""Kinds of clouds: Gaussian ones, which flatter every sort, and such as people have."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np

Array: TypeAlias = np.ndarray[Any, Any]
Maker: TypeAlias = Callable[[np.random.Generator, int, int], Array]


def _gaussian(rng: np.random.Generator, n: int, dim: int) -> Array:
    return rng.standard_normal((n, dim))


def _mostly_zero(rng: np.random.Generator, n: int, dim: int) -> Array:
    """Nine points in ten at the origin, as counts of rare things have them."""
    return _gaussian(rng, n, dim) * (rng.random((n, 1)) < 0.1)


def _one_hot(rng: np.random.Generator, n: int, dim: int) -> Array:
    cloud: Array = np.eye(dim)[rng.integers(dim, size=n)]
    return cloud


def _outlier(rng: np.random.Generator, n: int, dim: int) -> Array:
    cloud = _gaussian(rng, n, dim)
    cloud[n // 3] = 1e6
    return cloud


def _one_large_feature(rng: np.random.Generator, n: int, dim: int) -> Array:
    return _gaussian(rng, n, dim) * np.where(np.arange(dim) == 0, 1e4, 1)


def _few_distinct(rng: np.random.Generator, n: int, dim: int) -> Array:
    """Each of a hundred points many times."""
    cloud: Array = _gaussian(rng, 100, dim)[rng.integers(100, size=n)]
    return cloud


def _duplicates(rng: np.random.Generator, n: int, dim: int) -> Array:
    """Every point about forty times: too rarely to be seen in a sample, too often for a cell."""
    distinct = max(1, n // 40)
    cloud: Array = _gaussian(rng, distinct, dim)[rng.integers(distinct, size=n)]
    return cloud


def _sorted(rng: np.random.Generator, n: int, dim: int) -> Array:
    cloud = _gaussian(rng, n, dim)
    return cloud[np.argsort(cloud[:, 0])]


KINDS: dict[str, Maker] = {
    "Gaussian": _gaussian,
    "90% zeros": _mostly_zero,
    "integers": lambda rng, n, dim: np.rint(2 * _gaussian(rng, n, dim)),
    "one-hot": _one_hot,
    "lognormal": lambda rng, n, dim: np.exp(3 * _gaussian(rng, n, dim)),
    "Cauchy": lambda rng, n, dim: rng.standard_cauchy((n, dim)),
    "outlier": _outlier,
    "offset": lambda rng, n, dim: _gaussian(rng, n, dim) + 1e3,
    "one large feature": _one_large_feature,
    "few distinct": _few_distinct,
    "duplicates": _duplicates,
    "sorted": _sorted,
    "constant": lambda rng, n, dim: np.full((n, dim), 0.7),
    "equal clouds": _gaussian,
}
"""By name."""

SAME = ("equal clouds", "constant")
"""Those whose second cloud is the first again."""

TIED = ("90% zeros", "integers", "one-hot", "few distinct", "duplicates")
"""Those in which points occur more than once: how these share a gradient is not settled, only their sum."""


WITH_WEIGHTS = " with weights"
"""Ends the name of a kind of clouds whose points have weights."""


def base_kind(kind: str) -> str:
    """The kind of the points."""
    return kind.removesuffix(WITH_WEIGHTS)


def make_weights(rng: np.random.Generator, n: int) -> Array:
    """Weights `(n,)` that sum to 1, some hundred times as large as others."""
    weights = rng.exponential(size=n) + 0.01
    return weights / weights.sum()


def make_clouds(kind: str, rng: np.random.Generator, n: int, m: int, dim: int) -> tuple[Array, Array]:
    """Two clouds of a kind.

    Gaussian ones differ in scale and in place, by the same length in every dimension, so that no few directions
    decide the value and answers from other directions can be told from wrong ones. Of other kinds the second is
    drawn anew and moved by 1 in one coordinate, which keeps integers integers.
    """
    x = KINDS[kind](rng, n, dim)
    if kind in SAME:
        return x, x[np.arange(m) % n]
    if kind == "Gaussian":
        return x, 1.2 * KINDS[kind](rng, m, dim) + 0.3 / dim**0.5
    # Two outliers would differ by what rounding leaves of them.
    y = (_gaussian if kind == "outlier" else KINDS[kind])(rng, m, dim)
    return x, y + np.where(np.arange(dim) == 0, 1.0, 0.0)


def equal_points(*clouds: Array) -> Array:
    """For every point of these clouds, one after the other, which distinct point of its own cloud it is."""
    numbers: list[Array] = []
    for cloud in clouds:
        first = numbers[-1].max() + 1 if numbers else 0
        numbers.append(first + np.unique(cloud, axis=0, return_inverse=True)[1].reshape(-1))
    return np.concatenate(numbers)


def pooled(vector: Array, numbers: Array) -> Array:
    """A vector `(points * dim,)` summed over points of one number, `(numbers, dim)`."""
    columns = np.asarray(vector, np.float64).reshape(len(numbers), -1).T
    return np.stack([np.bincount(numbers, column) for column in columns], axis=1)
