"""Orthogonally coupled directions: algorithms 3 and 4 of the paper."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from orthoslice.backend.arrays import DType, Key, namespace, normals, wide_float
from orthoslice.backend.arrays.operations import orthonormal_rows
from orthoslice.directions.base import BlockSampler, DenseDirections


@dataclass(frozen=True, kw_only=True, repr=False)
class Orthogonal(BlockSampler):
    """Independent blocks of orthonormal directions, each Haar-distributed on O(dim).

    UnifOrt of the paper (algorithms 3 and 4), exactly: whole blocks of `dim` rows, and the first rows of one
    more block for what is left. Every row is uniform on the sphere, so estimates are unbiased; rows of a
    block repel each other, so estimates vary less. For p = 2 a whole block integrates the means and second
    moments of the clouds without error.

    Parameters
    ----------
    block_size
        Rows of a block, at most `dim` (the default; at most 128 of them where no number of directions is
        asked for). In high dimension a smaller one gives more independent blocks, hence an error bar, from the
        same number of directions; `block_size=dim` keeps blocks whole.

    Examples
    --------
    >>> import numpy as np, orthoslice as osl
    >>> theta = osl.directions.Orthogonal().sample(3, dim=3, rng=0).theta
    >>> bool(np.allclose(theta @ theta.T, np.eye(3)))
    True
    """

    name: ClassVar[str] = "orthogonal"

    def draw(self, key: Key, rows: int, dim: int, dtype: DType) -> DenseDirections:
        xp = namespace(key.high)
        gaussian = normals(key, rows, dim, wide_float(key.high))
        theta = orthonormal_rows(gaussian)
        return DenseDirections(xp.astype(xp.reshape(theta, (-1, dim)), dtype))
