"""Fixed sets of directions, each turned by random rotations."""

from __future__ import annotations

import abc
from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from orthoslice.arrays import DType, Stream, device, namespace, normals, wide_float
from orthoslice.arrays.operations import orthonormal_rows
from orthoslice.blocks import Run
from orthoslice.directions.base import DEFAULT_BLOCKS, DenseDirections, Sampler, check_count, default_rows


@dataclass(frozen=True, kw_only=True, repr=False)
class PointSet(Sampler):
    """Base of samplers that turn a fixed set of directions by independent random rotations.

    Every row is uniform on the sphere, so estimates are unbiased, whatever the set. One rotated set is one
    block: its rows depend on each other. `replicates` of them, each with its own rotation, share the number of
    directions and give the error bar. Say what the set is in :meth:`points`; give quadrature weights in
    :meth:`weights` if its rows do not count alike.

    Parameters
    ----------
    replicates
        Independent rotations that share the directions. More of them make a better error bar, fewer make larger
        sets, which err less; 1 gives the least error and no bar.

    Examples
    --------
    >>> import numpy as np, orthoslice as osl
    >>> class Cross(osl.directions.PointSet):
    ...     "The axes and the diagonals of the plane, as far as there are rows."
    ...     name = "cross"
    ...     def points(self, rows, dim):
    ...         angle = np.pi / 4 * np.arange(rows)
    ...         return np.stack([np.cos(angle), np.sin(angle)], axis=1)
    >>> x, y = np.zeros((1, 2)), np.array([[3.0, 4.0]])
    >>> est = osl.sliced_wasserstein(x, y, directions=Cross(), n_directions=16, rng=0)
    >>> round(float(est.value), 9), est.n_blocks
    (12.5, 4)
    """

    replicates: int = 4

    def __post_init__(self) -> None:
        check_count("replicates", self.replicates)

    @abc.abstractmethod
    def points(self, rows: int, dim: int) -> np.ndarray[Any, Any]:
        """The set: `rows` unit vectors, shape `(rows, dim)`."""

    def block_rows(self, n_directions: int, dim: int) -> int:
        return -(-n_directions // min(self.replicates, n_directions))

    def runs(self, n_directions: int, dim: int) -> tuple[Run, ...]:
        """As many sets as replicates, of one size or differing by one row: none is cut short."""
        sets = min(self.replicates, n_directions)
        rows, longer = divmod(n_directions, sets)
        return tuple(run for run in (Run(longer, rows + 1), Run(sets - longer, rows)) if run.n_blocks)

    def with_default_size(self, dim: int) -> tuple[Self, int]:
        return self, DEFAULT_BLOCKS * default_rows(dim)

    def draw(self, stream: Stream, rows: int, dim: int, dtype: DType) -> DenseDirections:
        xp, wide = namespace(stream.high), wide_float(stream.high)
        rotation = orthonormal_rows(normals(stream, dim, dim, wide))
        points = xp.asarray(self.points(rows, dim), dtype=wide, device=device(stream.high))
        theta = xp.reshape(xp.matmul(points, rotation), (-1, dim))
        return DenseDirections(xp.astype(theta, dtype))
