"""Sets of directions that are made random as a whole, and replicates of them for the error bar."""

from __future__ import annotations

import abc
from dataclasses import dataclass, replace
from typing import ClassVar, Self

from orthoslice.backend.arrays import DType, HostArray, Key, constant, namespace, normals, wide_float
from orthoslice.backend.arrays.operations import orthonormal_rows
from orthoslice.directions.base import DEFAULT_BLOCKS, DenseDirections, Sampler, check_count, default_rows
from orthoslice.directions.layout import Run, whole_blocks


@dataclass(frozen=True, kw_only=True, repr=False)
class Replicated(Sampler):
    """Base of samplers whose blocks are sets of directions, each made random as a whole.

    Parameters
    ----------
    replicates
        Independent sets that share the directions. More of them make a better error bar, fewer make larger
        sets, which err less; 1 gives the least error and no bar.
    block_size
        Rows of a set, if their number is to be the same however many directions there are: then there are as
        many sets as it takes, and `replicates` says nothing. Runs that stop at a tolerance go on that way.

    Examples
    --------
    :class:`PointSet` and :class:`Sobol` are made of it:

    >>> import orthoslice as osl
    >>> sobol = osl.directions.Sobol(replicates=3)
    >>> isinstance(sobol, osl.directions.Replicated), sobol.runs(8, dim=5)
    (True, (Run(n_blocks=2, rows=3), Run(n_blocks=1, rows=2)))
    """

    replicates: int = 4
    block_size: int | None = None
    why_no_error_bar: ClassVar[str] = (
        "all directions are one set; with `replicates=8` independent ones share them, whose means tell it"
    )

    def __post_init__(self) -> None:
        check_count("replicates", self.replicates)
        if self.block_size is not None:
            check_count("block_size", self.block_size)

    def block_rows(self, n_directions: int, dim: int) -> int:
        return max(run.rows for run in self.runs(n_directions, dim))

    def runs(self, n_directions: int, dim: int) -> tuple[Run, ...]:
        """As many sets as replicates, of one size or differing by one row: none is cut short."""
        if self.block_size is not None:
            return whole_blocks(n_directions, self.block_size)
        sets = self._n_sets(n_directions, dim)
        rows, longer = divmod(n_directions, sets)
        return tuple(run for run in (Run(longer, rows + 1), Run(sets - longer, rows)) if run.n_blocks)

    def _n_sets(self, n_directions: int, dim: int) -> int:
        """How many sets share the directions where no `block_size` was given."""
        return min(self.replicates, n_directions)

    def with_default_size(self, dim: int) -> tuple[Self, int]:
        return self, DEFAULT_BLOCKS * default_rows(dim)

    def for_tolerance(self, dim: int, most: int) -> Self:
        """Sets of `2 * default_rows(dim)` rows, or fewer for a small `most`; as many sets as it takes."""
        if self.block_size is not None:
            return self
        return replace(self, block_size=min(2 * default_rows(dim), -(-most // DEFAULT_BLOCKS)))


@dataclass(frozen=True, kw_only=True, repr=False)
class PointSet(Replicated):
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
    block_size
        Rows of a set, if their number is to be the same however many directions there are: then there are as
        many sets as it takes, and `replicates` says nothing. Runs that stop at a tolerance go on that way.

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

    @abc.abstractmethod
    def points(self, rows: int, dim: int) -> HostArray:
        """The set: `rows` unit vectors, shape `(rows, dim)`."""

    def draw(self, key: Key, rows: int, dim: int, dtype: DType) -> DenseDirections:
        xp, wide = namespace(key.high), wide_float(key.high)
        rotation = orthonormal_rows(normals(key, dim, dim, wide))
        points = constant(_points_of, (self, rows, dim), rotation)
        theta = xp.reshape(xp.matmul(points, rotation), (-1, dim))
        return DenseDirections(xp.astype(theta, dtype))


def _points_of(sampler: PointSet, rows: int, dim: int) -> HostArray:
    return sampler.points(rows, dim)
