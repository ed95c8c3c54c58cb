"""The coordinate axes as directions: projections are the columns of the points."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Self

from orthoslice.backend.array_types import Rows
from orthoslice.backend.arrays import Array, DType, Key, namespace
from orthoslice.directions.base import Directions, Sampler


class AxisDirections(Directions):
    """The rows of the identity matrix, never formed."""

    def __init__(self, dim: int) -> None:
        self.dim = self.ambient_dim = dim

    def project(self, points: Array, rows: Rows) -> Array:
        # A copy, as of every projection: sorting it in place must not sort the points.
        return namespace(points).asarray(points.T[rows, ...], copy=True)

    def adjoint(self, slopes: Array, rows: Rows) -> Array:
        raise NotImplementedError


@dataclass(frozen=True, kw_only=True, repr=False)
class Axes(Sampler):
    """All coordinate axes, as one block in their order: for statistics of every column.

    Examples
    --------
    >>> import numpy as np
    >>> Axes().sample(2, dim=2).theta.tolist()
    [[1.0, 0.0], [0.0, 1.0]]
    """

    name: ClassVar[str] = "axes"
    why_no_error_bar: ClassVar[str] = "axes are not drawn at random"

    def block_rows(self, n_directions: int, dim: int) -> int:
        return dim

    def with_default_size(self, dim: int) -> tuple[Self, int]:
        return self, dim

    def draw(self, key: Key, rows: int, dim: int, dtype: DType) -> AxisDirections:
        return AxisDirections(dim)
