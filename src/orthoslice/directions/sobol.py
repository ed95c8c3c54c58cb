"""Sobol's points, scrambled, mapped to the sphere."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import ClassVar, cast

import numpy as np

from orthoslice.backend.arrays import Array, DType, HostArray, Key, Namespace, constant, namespace, wide_float
from orthoslice.backend.arrays.key import unit_interval, words
from orthoslice.directions.base import DenseDirections
from orthoslice.directions.layout import Run
from orthoslice.directions.point_set import Replicated

# As far as SciPy's direction numbers (Joe and Kuo, 2008) go.
_MOST_DIMENSIONS = 21201

_BITS = 32


@dataclass(frozen=True, kw_only=True, repr=False)
class Sobol(Replicated):
    """Sobol's low-discrepancy points, made Gaussian by the inverse of the normal distribution, and of length 1.

    Randomised quasi-Monte Carlo, as others use it for sliced distances: here to compare with, in up to 21,201
    dimensions. It gains on independent directions everywhere, about a half, and keeps some of that for PW. For
    SW, :class:`Orthogonal` is better from 5 dimensions on or with few directions, and :class:`Optimized` and
    :class:`Equispaced` are better wherever they can be used. Sets of a power of two rows are the most even.

    Each set has the same points (SciPy's, with one linear scrambling for all) under a digital shift of its own:
    in every coordinate some bits, which are drawn, are flipped in all rows. So every row is uniform, to 32 bits
    a coordinate, and estimates are unbiased. Unlike a new scrambling, which errs no less, a shift can be drawn
    on any device and within compiled programs.

    Parameters
    ----------
    replicates, block_size
        As in :class:`PointSet`, with 8 replicates by default: in few dimensions the means of 4 sets are too
        often alike.

    Examples
    --------
    >>> import numpy as np, orthoslice as osl
    >>> sample = osl.directions.Sobol(replicates=4).sample(64, dim=5, rng=0)
    >>> np.bincount(sample.block).tolist()
    [16, 16, 16, 16]

    In every coordinate as many rows of a set are positive as are negative:

    >>> (sample.theta[:16] > 0).sum(axis=0).tolist()
    [8, 8, 8, 8, 8]
    """

    replicates: int = 8
    name: ClassVar[str] = "sobol"
    extends: ClassVar[bool] = True

    def runs(self, n_directions: int, dim: int) -> tuple[Run, ...]:
        if dim > _MOST_DIMENSIONS:
            raise ValueError(
                f"Sobol directions go up to {_MOST_DIMENSIONS:,} dimensions; got dim {dim}. Pass "
                '`directions="orthogonal"`.'
            )
        return super().runs(n_directions, dim)

    def draw(self, key: Key, rows: int, dim: int, dtype: DType) -> DenseDirections:
        xp = namespace(key.high)
        points = constant(_scrambled, (rows, dim), key.high)
        shifted = points[None, :, :] ^ words(key, 1, dim)[0]
        gaussian = _normal_quantile(xp, *unit_interval(xp, shifted, wide_float(key.high)))
        gaussian = xp.reshape(gaussian, (-1, dim))
        theta = gaussian / xp.sqrt(xp.sum(gaussian * gaussian, axis=1, keepdims=True))
        return DenseDirections(xp.astype(theta, dtype))


@functools.lru_cache(maxsize=16)
def _scrambled(rows: int, dim: int) -> HostArray:
    """The first points, as words of 32 bits `(rows, dim)`, after one random linear scrambling (Matousek 1998).

    Bit k of a coordinate becomes a sum of itself and of some of those above it. Unscrambled, the first points
    of many dimensions lie on few planes.
    """
    from scipy.stats import qmc  # slow to import

    # A power of two are drawn, so that SciPy does not warn of lost balance.
    engine = qmc.Sobol(dim, scramble=False, bits=_BITS)
    points = engine.random(1 << max(rows - 1, 0).bit_length())[:rows]
    plain = np.ldexp(points, _BITS).astype(np.uint32)
    # Row k of each matrix says which bits are added up; counted from the highest, none below bit k.
    key = Key.from_seed(0, np.zeros(1))
    chosen = cast(HostArray, words(key, dim, _BITS)[0][0]).view(np.uint32)
    own = np.uint32(1) << np.arange(_BITS - 1, -1, -1, dtype=np.uint32)
    masks = (chosen & ~(own - np.uint32(1))) | own
    scrambled = np.zeros_like(plain)
    for k in range(_BITS):
        parity = np.bitwise_count(plain & masks[None, :, k]) & 1
        scrambled |= parity.astype(np.uint32) * own[k]
    result: HostArray = scrambled.view(np.int32)
    return result


# Coefficients of rational functions, the highest last: algorithm AS 241 (Wichura, Applied Statistics 1988).
_CENTRE = (
    (
        3.3871328727963666080e0,
        1.3314166789178437745e2,
        1.9715909503065514427e3,
        1.3731693765509461125e4,
        4.5921953931549871457e4,
        6.7265770927008700853e4,
        3.3430575583588128105e4,
        2.5090809287301226727e3,
    ),
    (
        1.0,
        4.2313330701600911252e1,
        6.8718700749205790830e2,
        5.3941960214247511077e3,
        2.1213794301586595867e4,
        3.9307895800092710610e4,
        2.8729085735721942674e4,
        5.2264952788528545610e3,
    ),
)
_TAIL = (
    (
        1.42343711074968357734e0,
        4.63033784615654529590e0,
        5.76949722146069140550e0,
        3.64784832476320460504e0,
        1.27045825245236838258e0,
        2.41780725177450611770e-1,
        2.27238449892691845833e-2,
        7.74545014278341407640e-4,
    ),
    (
        1.0,
        2.05319162663775882187e0,
        1.67638483018380384940e0,
        6.89767334985100004550e-1,
        1.48103976427480074590e-1,
        1.51986665636164571966e-2,
        5.47593808499534494600e-4,
        1.05075007164441684324e-9,
    ),
)


def _normal_quantile(xp: Namespace, below: Array, above: Array) -> Array:
    """The normal quantile at `below`, given also `above = 1 - below`; for probabilities down to 2^-33.

    Examples
    --------
    >>> _normal_quantile(np, np.array([0.025, 0.5]), np.array([0.975, 0.5])).round(6).tolist()
    [-1.959964, 0.0]
    """
    away = 0.5 * (below - above)
    is_central = xp.abs(away) <= 0.425
    # Each formula gets arguments that it can take, also where the other is used.
    near = xp.where(is_central, 0.180625 - away * away, xp.zeros_like(away))
    root = xp.sqrt(-xp.log(xp.minimum(below, above)))
    central = away * _rational(near, *_CENTRE)
    tail = _rational(root - 1.6, *_TAIL)
    return xp.where(is_central, central, xp.where(away < 0, -tail, tail))


def _rational(x: Array, numerator: tuple[float, ...], denominator: tuple[float, ...]) -> Array:
    above, below = (
        functools.reduce(lambda total, c: total * x + c, reversed(of), 0.0 * x)
        for of in (numerator, denominator)
    )
    return above / below
