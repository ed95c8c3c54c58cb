"""Other people's estimators, written from their papers.

- Quasi-Monte Carlo (Nguyen, Bariletto and Ho, "Quasi-Monte Carlo for 3D sliced Wasserstein", 2024): Sobol's
  points made Gaussian and of length 1, as they are or scrambled; and in space the generalised spiral, which
  POT's development branch has. What is not random errs by an amount that depends on how the clouds happen to
  lie, so its squared error is the mean over random rotations of them. Turning the directions is the same.
- Orthogonal blocks (the paper; POT's development branch calls them UnifOrtho).
- Control variates of Nguyen and Ho ("Sliced Wasserstein estimation with control variates", 2024): the squared
  gap of the means along a direction (lower), and with both variances added (upper); one factor, fitted on the
  draws that it corrects, as in their text.
- Spherical harmonics (Leluc, Dieuleveut, Portier, Segers and Zhuman, 2024): least squares on all harmonics of
  even degree up to some degree, on iid directions; the estimate is the integral of the fit.
"""

from __future__ import annotations

import functools
import itertools
import math
import warnings

import numpy as np
from scipy.special import ndtri
from scipy.stats import qmc

from benchmarks.variance.problems import Array


def iid(n: int, dim: int, seed: int) -> Array:
    return _unit(np.random.default_rng(seed).standard_normal((n, dim)))


def orthogonal(n: int, dim: int, seed: int) -> Array:
    """Independent Haar bases, one after the other; the last one cut short."""
    rng = np.random.default_rng(seed)
    blocks = [_rotation(rng, dim) for _ in range(-(-n // dim))]
    return np.concatenate(blocks)[:n]


def sobol(n: int, dim: int, seed: int) -> Array:
    """Sobol's points with SciPy's scrambling."""
    return _from_cube(qmc.Sobol(dim, scramble=True, rng=seed), n)


def plain_sobol(n: int, dim: int, seed: int) -> Array:
    """Sobol's points as they are, turned."""
    return _plain_sobol(n, dim) @ _rotation(np.random.default_rng(seed), dim)


@functools.lru_cache(maxsize=4)
def _plain_sobol(n: int, dim: int) -> Array:
    """Without the corner and the middle of the cube, which have no direction."""
    engine = qmc.Sobol(dim, scramble=False)
    engine.fast_forward(2)
    return _from_cube(engine, n)


def _from_cube(engine: qmc.Sobol, n: int) -> Array:
    with warnings.catch_warnings():
        # It says that numbers other than powers of two are out of balance; they are what was asked for.
        warnings.simplefilter("ignore", UserWarning)
        return _unit(ndtri(np.clip(engine.random(n), 1e-12, 1 - 1e-12)))


def spiral(n: int, dim: int, seed: int) -> Array:
    """The generalised spiral in space, turned."""
    height = np.linspace(-1, 1, n)
    across = np.sqrt(1 - height**2)
    angle = 1.8 * math.sqrt(n) * height
    rows = np.stack([across * np.sin(angle), across * np.cos(angle), height], axis=1)
    return rows @ _rotation(np.random.default_rng(seed), 3)


def lower(theta: Array, scores: Array, x: Array, y: Array) -> float:
    """With the squared gap of the means as control."""
    gap = x.mean(axis=0) - y.mean(axis=0)
    return _controlled(scores, (theta @ gap) ** 2, gap @ gap / x.shape[1])


def upper(theta: Array, scores: Array, x: Array, y: Array) -> float:
    """With the squared gap of the means and both variances as control."""
    gap = x.mean(axis=0) - y.mean(axis=0)
    both = sum(np.var(c @ theta.T, axis=0) for c in (x, y))
    mean = (gap @ gap + sum(float(c.var(axis=0).sum()) for c in (x, y))) / x.shape[1]
    return _controlled(scores, (theta @ gap) ** 2 + both, float(mean))


def _controlled(scores: Array, control: Array, mean: float) -> float:
    away = control - control.mean()
    square = float(away @ away)
    factor = float(away @ scores) / square if square > 0 else 0.0
    return float(scores.mean() - factor * (control.mean() - mean))


def harmonics(theta: Array, scores: Array, x: Array, y: Array) -> float:
    """The integral of the least-squares fit by all harmonics of even degree, as many as can be afforded."""
    degree = harmonic_degree(len(theta), theta.shape[1])
    powers, means = _even_basis(theta.shape[1], degree)
    columns = np.ones((len(theta), len(powers)))
    for axis in range(theta.shape[1]):
        table = theta[:, axis, None] ** np.arange(degree + 1)
        columns *= table[:, powers[:, axis]]
    return float(np.linalg.lstsq(columns, scores, rcond=None)[0] @ means)


def harmonic_degree(n: int, dim: int) -> int:
    """The largest even degree whose harmonics number at most half of the directions; 0 if there is none.

    Harmonics of even degree up to 2 k span what monomials of degree 2 k span on the sphere.
    """
    degree = 0
    while math.comb(dim + degree + 1, dim - 1) <= n // 2:
        degree += 2
    return degree


@functools.lru_cache(maxsize=4)
def _even_basis(dim: int, degree: int) -> tuple[Array, Array]:
    """Exponents of all monomials of a degree, and their means over the sphere."""
    powers = np.zeros((math.comb(dim + degree - 1, dim - 1), dim), dtype=np.intp)
    for row, axes in enumerate(itertools.combinations_with_replacement(range(dim), degree)):
        np.add.at(powers[row], list(axes), 1)
    below = math.prod(range(dim, dim + degree, 2))
    odd_products = [1.0 if k % 2 == 0 else 0.0 for k in range(degree + 1)]
    for k in range(2, degree + 1, 2):
        odd_products[k] = odd_products[k - 2] * (k - 1)
    means = np.prod(np.asarray(odd_products)[powers], axis=1) / below
    return powers, means


def _rotation(rng: np.random.Generator, dim: int) -> Array:
    q, r = np.linalg.qr(rng.standard_normal((dim, dim)))
    rotation: Array = q * np.sign(np.diagonal(r))
    return rotation


def _unit(rows: Array) -> Array:
    unit: Array = rows / np.linalg.norm(rows, axis=1, keepdims=True)
    return unit
