"""Independent directions: algorithms 1 and 2 of the paper."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Self

from orthoslice.backend.arrays import DType, Key, namespace, normals, wide_float
from orthoslice.directions.base import DEFAULT_BLOCKS, DenseDirections, Sampler, default_rows


@dataclass(frozen=True, kw_only=True, repr=False)
class IID(Sampler):
    """Independent directions, uniform on the sphere: every direction is a block of its own.

    The baseline of the paper (its algorithms 1 and 2). Prefer :class:`Orthogonal`, which is unbiased too and
    never worse than ``(dim + 4) / (dim + 1)`` times this in mean squared error, and mostly far better.

    Examples
    --------
    >>> import numpy as np, orthoslice as osl
    >>> sample = osl.directions.IID().sample(4, dim=3, rng=0)
    >>> bool(np.allclose(np.linalg.norm(sample.theta, axis=1), 1)), sample.block.tolist()
    (True, [0, 1, 2, 3])
    """

    name: ClassVar[str] = "iid"
    extends: ClassVar[bool] = True

    def block_rows(self, n_directions: int, dim: int) -> int:
        return 1

    def with_default_size(self, dim: int) -> tuple[Self, int]:
        return self, DEFAULT_BLOCKS * default_rows(dim)

    def draw(self, key: Key, rows: int, dim: int, dtype: DType) -> DenseDirections:
        xp = namespace(key.high)
        gaussian = xp.reshape(normals(key, rows, dim, wide_float(key.high)), (-1, dim))
        theta = gaussian / xp.sqrt(xp.sum(gaussian * gaussian, axis=1, keepdims=True))
        return DenseDirections(xp.astype(theta, dtype))
