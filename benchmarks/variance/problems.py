"""What is estimated: pairs of clouds, each from a seed, and how many directions there are."""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from orthoslice import datasets

Array: TypeAlias = np.ndarray[Any, Any]
Clouds: TypeAlias = tuple[Array, Array]

DIMS = (2, 3, 5, 10, 16, 50, 64, 100, 784)
SIZES = (2, 10, 100, 1000)
SHOWN_DIMS = (2, 3, 5, 16, 64)
DEFAULT_DIMS = (2, 3, 5, 9)
N_DEFAULT = 128
"""Directions by default in up to 16 dimensions."""
SHOWN_SETS = 20
"""Data sets of the problems that targets are about."""


class Unavailable(Exception):
    """Data that cannot be had here; the message says what to install or where to put it."""


@dataclass(frozen=True)
class Problem:
    """Pairs of clouds that differ by a seed, and a number of directions."""

    group: str
    name: str
    dim: int
    n_directions: int
    make: Callable[[int], Clouds]
    n_sets: int = 1

    @property
    def title(self) -> str:
        return f"{self.name}, d={self.dim}, N={self.n_directions}"


def gaussians(n: int, dim: int, seed: int) -> Clouds:
    """Two samples of one standard normal distribution."""
    rng = np.random.default_rng([n, dim, seed])
    return rng.standard_normal((n, dim)), rng.standard_normal((n, dim))


def _torus(rng: np.random.Generator, n: int, radius: float, thickness: float) -> Array:
    around, across = rng.uniform(0, 2 * np.pi, size=(2, n))
    out = radius + thickness * np.cos(across)
    return np.stack([out * np.cos(around), out * np.sin(around), thickness * np.sin(across)], axis=1)


def tori(seed: int, n: int = 1000) -> Clouds:
    """Two noisy tori, one of them larger, turned and moved."""
    rng = np.random.default_rng([3, seed])
    turn = np.linalg.qr(rng.standard_normal((3, 3)))[0]
    x = _torus(rng, n, 1.0, 0.3)
    y = _torus(rng, n, 1.3, 0.4) @ turn.T + 0.5 * rng.standard_normal(3)
    return x + 0.05 * rng.standard_normal((n, 3)), y + 0.05 * rng.standard_normal((n, 3))


def knots(seed: int, n: int = 1000) -> Clouds:
    """A trefoil against a figure-eight knot, with noise."""
    rng = np.random.default_rng([4, seed])
    s, t = rng.uniform(0, 2 * np.pi, size=(2, n))
    x = np.stack([np.sin(s) + 2 * np.sin(2 * s), np.cos(s) - 2 * np.cos(2 * s), -np.sin(3 * s)], axis=1)
    out = 2 + np.cos(2 * t)
    y = np.stack([out * np.cos(3 * t), out * np.sin(3 * t), np.sin(4 * t)], axis=1)
    return x + 0.05 * rng.standard_normal((n, 3)), y + 0.05 * rng.standard_normal((n, 3))


def boxes(seed: int, n: int = 1000) -> Clouds:
    """The surface of a box against that of an ellipsoid of about its size: symmetric, as made things are."""
    rng = np.random.default_rng([5, seed])
    x = rng.uniform(-1, 1, size=(n, 3))
    x[np.arange(n), rng.integers(3, size=n)] = rng.choice([-1.0, 1.0], size=n)
    y = rng.standard_normal((n, 3))
    y /= np.linalg.norm(y, axis=1, keepdims=True)
    return x * [1.0, 0.7, 0.4], 1.2 * y * [1.0, 0.7, 0.4]


def digits(first: int, second: int, seed: int) -> Clouds:
    return datasets.digits(first), datasets.digits(second)


def cells(seed: int) -> Clouds:
    """Two kinds of blood cells."""
    try:
        scanpy = importlib.import_module("scanpy")
    except ModuleNotFoundError:
        raise Unavailable("single cells need scanpy: pip install scanpy") from None
    table = scanpy.datasets.pbmc68k_reduced()
    kinds = table.obs["bulk_labels"]
    names = kinds.value_counts().index[:2]
    x, y = (np.asarray(table.obsm["X_pca"][(kinds == name).to_numpy()], dtype=np.float64) for name in names)
    return x, y


def mnist(seed: int, n: int = 1000) -> Clouds:
    """Images of 3 and of 8, as many of each, pixels between 0 and 1."""
    try:
        data = importlib.import_module("experiments.data")
        found = data.load("mnist")
    except (ModuleNotFoundError, FileNotFoundError) as error:
        raise Unavailable(f"MNIST was not found: {error}") from None
    images = found.images.reshape(len(found.labels), -1) / 255.0
    x, y = (images[found.labels == label][:n].astype(np.float64) for label in (3, 8))
    return x, y


def all_problems() -> list[Problem]:
    """What the targets ask for first, then the rest, the quick ones first."""
    shown = [
        Problem("shown", "Gaussians M=1000", d, 4 * d, functools.partial(gaussians, 1000, d), SHOWN_SETS)
        for d in SHOWN_DIMS
    ]
    default = [
        Problem("default", "Gaussians M=1000", d, N_DEFAULT, functools.partial(gaussians, 1000, d), SHOWN_SETS)
        for d in DEFAULT_DIMS
    ]
    default.append(Problem("default", "two noisy tori", 3, N_DEFAULT, tori, SHOWN_SETS))
    shown.insert(2, Problem("shown", "two noisy tori", 3, 48, tori, SHOWN_SETS))
    shown.insert(4, Problem("shown", "digits 0 and 1", 64, 256, functools.partial(digits, 0, 1)))
    others = [
        Problem("shapes", "two knots", 3, 48, knots),
        Problem("shapes", "box and ellipsoid", 3, 48, boxes),
        Problem("shapes", "two noisy tori", 3, 192, tori),
        Problem("digits", "digits 3 and 8", 64, 256, functools.partial(digits, 3, 8)),
        Problem("digits", "digits 4 and 9", 64, 512, functools.partial(digits, 4, 9)),
        Problem("cells", "two kinds of cells", 50, 200, cells),
    ]
    paper = [
        Problem("gaussians", f"Gaussians M={n}", d, 4 * d, functools.partial(gaussians, n, d))
        for d in DIMS
        for n in SIZES
        if not (n == 1000 and d in SHOWN_DIMS)
    ]
    # What takes longest comes last.
    paper.sort(key=lambda problem: problem.dim)
    return [*shown, *default, *others, *paper, Problem("mnist", "MNIST 3 and 8", 784, 784, mnist)]


def smoke_problems() -> list[Problem]:
    """One of each kind that needs no other packages, in seconds."""
    return [
        Problem("shown", "Gaussians M=10", 2, 8, functools.partial(gaussians, 10, 2), 2),
        Problem("default", "Gaussians M=10", 2, 32, functools.partial(gaussians, 10, 2), 2),
        Problem("shapes", "two noisy tori", 3, 12, functools.partial(tori, n=20)),
        Problem("gaussians", "Gaussians M=10", 4, 16, functools.partial(gaussians, 10, 4)),
    ]
